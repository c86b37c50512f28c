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

inline std::string joined(const ag_strings &words) { return joined(std::vector<std::string>(words.items, words.items + words.count)); }

/// The words that a bundle reads.
inline std::string words_of(const ag_welcome &welcome) {
    std::string text;
    for (const ag_strings &list : {welcome.people, welcome.motions, welcome.places, welcome.hours, welcome.clothes, welcome.manners}) {
        text += list.count == 0 ? "" : " " + joined(list);
    }
    return text;
}

/// How an instruction was read, and what was not.
inline std::string line_of(const ag_understood &read) {
    const std::string text = std::string(" ") + read.text;
    return read.notice[0] == '\0' ? text : text + " [" + joined(read.unknown) + "] " + read.notice;
}

/// What is told the player in codes: of ag_understood or ag_error.
template <typename Told> std::string answers_of(const Told &told) {
    std::string text;
    for (std::size_t n = 0; n < told.answer_count; ++n) {
        const ag_answer &one = told.answers[n];
        text += std::string(" ") + one.code + ":" + one.value + ":" + joined(one.people) + ":" + joined(one.words);
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

/// What `wish` wishes for.
inline std::vector<std::string> texts_of(std::istringstream &words) {
    std::vector<std::string> texts;
    std::istringstream all(rest_of(words));
    for (std::string text; std::getline(all, text, '|');) {
        texts.push_back(text);
    }
    return texts;
}

/// The answer to a request, of the event that ends it.
inline std::string answer_of(const ag_event &event) {
    switch (event.type) {
    case AG_EVENT_ERROR:
        return error_line(event.of.error);
    case AG_EVENT_CONNECTED:
        return std::string("ok ") + event.of.welcome.bundle + " " + event.of.welcome.state;
    case AG_EVENT_CANCELLING:
        return "ok " + std::to_string(event.of.cancelling);
    case AG_EVENT_WISHED:
        return "ok " + std::to_string(event.of.offer.count) + " " + (event.of.offer.count == 0 ? "" : event.of.offer.items[0]);
    case AG_EVENT_LISTED: {
        const ag_listed &listed = event.of.listed;
        return "ok " + std::to_string(listed.count) + " " + (listed.count == 0 ? "" : listed.turns[listed.count - 1].instruction);
    }
    default:
        return "ok";
    }
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
