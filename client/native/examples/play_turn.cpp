// Plays one turn and writes its frames as frame-00.bmp .. in this folder: play_turn [ADDRESS [INSTRUCTION]]
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include <animegamer.hpp>

/// A BMP has 32 bits a pixel in the order BGRA, and its last row first: just as the frames are asked for below.
static void write_bmp(const char *path, const ag_frame &frame, const void *pixels) {
    const auto width = std::uint32_t(frame.width), height = std::uint32_t(frame.height);
    std::string file = "BM";
    for (const std::uint32_t number : {54 + 4 * width * height, 0u, 54u, 40u, width, height, 1u | 32u << 16, 0u, 0u, 0u, 0u, 0u, 0u}) {
        file += {char(number), char(number >> 8), char(number >> 16), char(number >> 24)};
    }
    for (std::uint32_t y = 0; y < height; ++y) {
        file.append(static_cast<const char *>(pixels) + std::size_t(y) * std::size_t(frame.stride), 4 * std::size_t(width));
    }
    std::ofstream(path, std::ios::binary) << file;
}

int main(int count, char **arguments) try {
    const char *const address = count > 1 ? arguments[1] : "tcp://127.0.0.1:5570";
    ag::Options options(address);
    options.pixel_format = AG_BGRA32;
    options.flip = 1;
    ag::Client client(options);
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
                std::snprintf(name, sizeof name, "frame-%02d.bmp", int(event.of.frame.index));
                write_bmp(name, event.of.frame, event.buffer);
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
