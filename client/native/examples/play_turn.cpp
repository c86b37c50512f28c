// Plays one turn and writes its frames as frame-00.png .. in this folder: play_turn [ADDRESS [INSTRUCTION]]
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include <animegamer.hpp>

// A PNG without compression: "stored" blocks of deflate, one for each row.
void write_png(const std::string &path, const ag_frame &frame, const unsigned char *pixels) {
    std::ofstream file(path, std::ios::binary);
    const auto number = [](std::size_t value) {
        return std::string{char(value >> 24 & 255), char(value >> 16 & 255), char(value >> 8 & 255), char(value & 255)};
    };
    const auto chunk = [&](const std::string &name, const std::string &data) {
        std::size_t crc = 0xffffffff;
        for (const char byte : name + data) {
            crc ^= static_cast<unsigned char>(byte);
            for (int bit = 0; bit < 8; ++bit) {
                crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
            }
        }
        file << number(data.size()) << name << data << number(crc ^ 0xffffffff);
    };
    std::string data("\x78\x01", 2);
    std::size_t a = 1, b = 0;
    for (int y = 0; y < frame.height; ++y) {
        const std::string row = '\0' + std::string(reinterpret_cast<const char *>(pixels) + std::size_t(y) * std::size_t(frame.stride), 4 * std::size_t(frame.width));
        for (const char byte : row) {
            a = (a + static_cast<unsigned char>(byte)) % 65521;
            b = (b + a) % 65521;
        }
        const auto size = static_cast<unsigned>(row.size());
        data += std::string{char(y + 1 == frame.height), char(size & 255), char(size >> 8), char(~size & 255), char(~size >> 8 & 255)} + row;
    }
    file << std::string("\x89PNG\r\n\x1a\n", 8);
    chunk("IHDR", number(std::size_t(frame.width)) + number(std::size_t(frame.height)) + std::string("\x08\x06\0\0\0", 5));
    chunk("IDAT", data + number(b << 16 | a));
    chunk("IEND", "");
}

int main(int count, char **arguments) try {
    ag::Client client(count > 1 ? arguments[1] : "tcp://127.0.0.1:5570");
    const std::string instruction = count > 2 ? arguments[2] : "Character: Mirel; Motion: gently wave; Background: day city.";
    int result = -1;
    client.connect();
    while (result < 0) { // a game's loop: draw, poll, wait for the next tick
        client.poll([&](const ag_event &event) {
            if (event.type == AG_EVENT_CONNECTED && event.request != 0) {
                client.add_buffers(std::size_t(event.of.welcome.frames), event.of.welcome.buffer_bytes);
                client.open(3);
            } else if (event.type == AG_EVENT_OPENED) {
                client.turn(event.game, instruction);
            } else if (event.type == AG_EVENT_STATE) {
                std::printf("stamina %d, social %d, entertainment %d\n", event.of.state.shown.stamina, event.of.state.shown.social, event.of.state.shown.entertainment);
            } else if (event.type == AG_EVENT_FRAME) {
                const std::string index = std::to_string(event.of.frame.index);
                write_png("frame-" + std::string(index.size() < 2 ? "0" : "") + index + ".png", event.of.frame, static_cast<unsigned char *>(event.buffer));
            } else if (event.type == AG_EVENT_DONE) {
                std::printf("turn %lld took %.2f s; continue with %s\n", static_cast<long long>(event.turn), event.of.done.total_s, client.info(event.game).token);
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
