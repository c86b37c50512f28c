// Plays one turn and writes its frames as frame-00.png .. in this folder: play_turn [ADDRESS [INSTRUCTION]]
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include <animegamer.hpp>
#include <animegamer_png.hpp>

int main(int count, char **arguments) try {
    const char *const address = count > 1 ? arguments[1] : "tcp://127.0.0.1:5570";
    ag::Client client(address);
    const std::string instruction = count > 2 ? arguments[2] : "Mirel waves gently in the city by day.";
    int result = -1;
    std::fprintf(stderr, "connecting to %s, for 30 s at most\n", address);
    client.connect();
    while (result < 0) { // a game's loop: draw, poll, wait for the next tick
        client.poll([&](const ag_event &event) {
            if (event.type == AG_EVENT_CONNECTED && event.request != 0) {
                client.add_buffers(std::size_t(event.of.welcome.frames), event.of.welcome.buffer_bytes);
                client.open();
            } else if (event.type == AG_EVENT_OPENED) {
                client.turn(event.game, instruction);
            } else if (event.type == AG_EVENT_STATE) {
                const ag_character &shown = event.of.state.shown;
                std::printf("stamina %d, social %d, entertainment %d\n", shown.stamina, shown.social, shown.entertainment);
            } else if (event.type == AG_EVENT_FRAME) {
                char name[32];
                std::snprintf(name, sizeof name, "frame-%02d.png", int(event.of.frame.index));
                ag::write_png(name, event.of.frame, event.buffer);
            } else if (event.type == AG_EVENT_DONE) {
                std::printf("turn %d took %.2f s\n", int(event.turn), event.of.done.total_s);
                result = 0;
            } else if (event.type == AG_EVENT_ERROR) {
                std::fprintf(stderr, "error: %s; %s\n", event.of.error.text, event.of.error.what_to_do);
                result = 1;
            }
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(16));
    }
    return result;
} catch (const ag::Error &error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
}
