// What a driver says of a turn, the files that it reads, and its loop. Unreal's driver has it, too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <animegamer.hpp>

template <typename T> std::string joined(const std::vector<T> &values) {
    std::ostringstream text;
    for (std::size_t n = 0; n < values.size(); ++n) {
        text << (n == 0 ? "" : ",") << values[n];
    }
    return text.str();
}

inline std::string error_line(const std::string &code, const std::string &text, const std::string &what_to_do) {
    return "error " + code + " " + text + (what_to_do.empty() ? "" : "; " + what_to_do);
}
inline std::string error_line(const ag_error &error) { return error_line(error.code, error.text, error.what_to_do); }

/// What was seen of one turn.
struct Turn {
    std::vector<std::int64_t> seqs;
    std::vector<std::string> pictures; // TURN.INDEX
    std::uint32_t hash = 2166136261U;
    bool replayed = false, ended = false;
    std::int64_t turns = 0;
    std::string error, understood;

    void add_picture(std::int64_t turn, std::int64_t index, const std::uint8_t *pixels, int width, int height, int stride) {
        pictures.push_back(std::to_string(turn) + "." + std::to_string(index));
        for (int y = 0; y < height; ++y) {
            for (int x = 0; x < 4 * width; ++x) {
                hash = (hash ^ pixels[std::ptrdiff_t(y) * stride + x]) * 16777619U;
            }
        }
    }

    std::string line() const {
        if (!error.empty()) {
            return error;
        }
        bool whole = true;
        for (std::size_t n = 1; n < seqs.size(); ++n) {
            whole = whole && seqs[n] == seqs[n - 1] + 1;
        }
        std::ostringstream text;
        text << "done turns=" << turns << " seq=";
        if (whole && !seqs.empty()) {
            text << seqs.front() << "-" << seqs.back();
        } else {
            text << joined(seqs);
        }
        text << " pictures=" << joined(pictures) << " hash=";
        text.width(8);
        text.fill('0');
        text << std::hex << hash << std::dec << " replayed=" << replayed;
        return text.str();
    }
};

/// The words that a bundle reads.
inline std::string words_of(const ag_welcome &welcome) {
    std::string text;
    for (const ag_strings &list : {welcome.people, welcome.motions, welcome.places, welcome.hours, welcome.clothes, welcome.manners}) {
        for (std::size_t n = 0; n < list.count; ++n) {
            text += std::string(n == 0 ? " " : ",") + list.items[n];
        }
    }
    return text;
}

inline std::vector<std::uint8_t> bytes_of(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

inline std::int64_t number(std::istringstream &words) {
    std::int64_t value = 0;
    words >> value;
    return value;
}

inline std::string rest_of(std::istringstream &words) {
    std::string text;
    words.get();
    std::getline(words, text);
    return text;
}

/// Answer each line of the standard input.
template <typename Driver> int run_driver() {
    Driver driver;
    for (std::string line; std::getline(std::cin, line);) {
        std::string answer = driver.answer(line);
        std::replace(answer.begin(), answer.end(), '\n', ' ');
        std::cout << answer << std::endl;
    }
    return 0;
}

/// Of a key file as `animegamer-rt keys new` writes it.
inline std::string secret_key_of(const std::string &path) {
    const auto bytes = bytes_of(path);
    const std::string text(bytes.begin(), bytes.end()), name = "secret-key = \"";
    const auto at = text.find(name);
    return at == std::string::npos ? "" : text.substr(at + name.size(), 40);
}
