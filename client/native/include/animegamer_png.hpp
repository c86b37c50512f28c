// Writes a picture as a PNG file, without a library and without compression: for a look at what came, not for an archive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

#include "animegamer.h"

namespace ag {

/// pixels: those of a frame with AG_RAW, AG_RGBA32 and its first row on top. Returns whether the file was written;
/// a picture may be up to 16383 pixels wide.
inline bool write_png(const std::string &path, const ag_frame &frame, const void *pixels) {
    if (frame.width > 16383) {
        return false; // a row is one block of at most 65535 bytes
    }
    std::ofstream file(path, std::ios::binary);
    const auto number = [](std::uint32_t value) {
        return std::string{char(value >> 24), char(value >> 16), char(value >> 8), char(value)};
    };
    const auto chunk = [&](const std::string &name, const std::string &data) {
        std::uint32_t crc = 0xffffffff;
        for (const char byte : name + data) {
            crc ^= static_cast<unsigned char>(byte);
            for (int bit = 0; bit < 8; ++bit) {
                crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
            }
        }
        file << number(static_cast<std::uint32_t>(data.size())) << name << data << number(~crc);
    };
    const auto width = static_cast<std::uint32_t>(frame.width), height = static_cast<std::uint32_t>(frame.height);
    std::string data("\x78\x01", 2); // zlib's header, then each row as a "stored" block of deflate, and their Adler-32
    std::uint32_t a = 1, b = 0;
    for (std::uint32_t y = 0; y < height; ++y) {
        const char *const row = static_cast<const char *>(pixels) + std::size_t(y) * static_cast<std::size_t>(frame.stride);
        const std::string line = '\0' + std::string(row, 4 * std::size_t(width)); // '\0': the row is not filtered
        for (const char byte : line) {
            a = (a + static_cast<unsigned char>(byte)) % 65521;
            b = (b + a) % 65521;
        }
        const std::size_t size = line.size();
        data += std::string{char(y + 1 == height), char(size), char(size >> 8), char(~size), char(~size >> 8)} + line;
    }
    file << std::string("\x89PNG\r\n\x1a\n", 8);
    chunk("IHDR", number(width) + number(height) + std::string("\x08\x06\0\0\0", 5)); // 8 bits, RGBA
    chunk("IDAT", data + number(b << 16 | a));
    chunk("IEND", "");
    return bool(file.flush());
}

} // namespace ag
