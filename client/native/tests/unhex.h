// Bytes in hex, as tests are given client/vectors: a message a line, its sender and its frames.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

/// "c0*3" are those bytes three times.
inline std::string unhex(const std::string &hex) {
    const auto star = hex.find('*');
    std::string once, bytes;
    for (std::size_t n = 0; n + 1 < std::min(star, hex.size()); n += 2) {
        once += static_cast<char>(std::stoi(hex.substr(n, 2), nullptr, 16));
    }
    const auto times = star == std::string::npos ? 1 : std::stoul(hex.substr(star + 1));
    if (once.size() == 1) {
        return std::string(times, once[0]); // one byte may come 64 Mi times
    }
    for (std::size_t n = 0; n < times; ++n) {
        bytes += once;
    }
    return bytes;
}

/// The frames in the rest of a line; one may be empty, also the last.
inline std::vector<std::string> frames_of(std::istringstream &line) {
    std::vector<std::string> frames;
    while (!line.eof()) {
        std::string frame;
        std::getline(line, frame, ' ');
        frames.push_back(unhex(frame));
    }
    return frames;
}

inline std::string hex(const std::string &bytes) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (const char byte : bytes) {
        text += digits[static_cast<unsigned char>(byte) >> 4];
        text += digits[static_cast<unsigned char>(byte) & 15];
    }
    return text;
}
