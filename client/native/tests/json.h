// JSON, as far as client/vectors/vectors.json uses it.
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

struct Json {
    enum Kind { null, flag, integer, number, text, list, map } kind = null;
    bool truth = false;
    std::int64_t whole = 0;
    double real = 0.0;
    std::string string;
    std::vector<Json> items;                           // of a list
    std::vector<std::pair<std::string, Json>> entries; // of a map, in the file's order

    const Json *find(const std::string &key) const {
        for (const auto &[name, value] : entries) {
            if (name == key) {
                return &value;
            }
        }
        return nullptr;
    }
    const Json &operator[](const std::string &key) const {
        const Json *found = find(key);
        if (found == nullptr) {
            throw std::runtime_error("no " + key);
        }
        return *found;
    }
};

class JsonReader {
public:
    static Json file(const std::string &path) {
        std::ifstream stream(path, std::ios::binary);
        std::stringstream bytes;
        bytes << stream.rdbuf();
        JsonReader reader(bytes.str());
        return reader.value();
    }

private:
    explicit JsonReader(std::string bytes) : bytes_(std::move(bytes)) {}

    char next() {
        while (at_ < bytes_.size() && std::string(" \n\r\t").find(bytes_[at_]) != std::string::npos) {
            ++at_;
        }
        return bytes_.at(at_);
    }

    bool skip(const std::string &word) {
        next();
        const bool found = bytes_.compare(at_, word.size(), word) == 0;
        at_ += found ? word.size() : 0;
        return found;
    }

    void need(const std::string &word) {
        if (!skip(word)) {
            throw std::runtime_error("expected " + word + " at byte " + std::to_string(at_));
        }
    }

    Json value() {
        Json json;
        if (skip("{")) {
            json.kind = Json::map;
            while (!skip("}")) {
                std::string key = text();
                need(":");
                json.entries.emplace_back(std::move(key), value());
                skip(",");
            }
        } else if (skip("[")) {
            json.kind = Json::list;
            while (!skip("]")) {
                json.items.push_back(value());
                skip(",");
            }
        } else if (next() == '"') {
            json.kind = Json::text;
            json.string = text();
        } else if (skip("true") || skip("false")) {
            json.kind = Json::flag;
            json.truth = bytes_[at_ - 2] == 'u';
        } else if (!skip("null")) {
            const auto end = bytes_.find_first_not_of("+-.0123456789eE", at_);
            const std::string digits = bytes_.substr(at_, end - at_);
            at_ = end;
            const bool whole = digits.find_first_of(".eE") == std::string::npos;
            json.kind = whole ? Json::integer : Json::number;
            json.whole = whole ? std::stoll(digits) : 0;
            json.real = std::stod(digits);
        }
        return json;
    }

    std::string text() {
        need("\"");
        std::string result;
        while (bytes_.at(at_) != '"') {
            if (bytes_[at_] != '\\') {
                result += bytes_[at_++];
                continue;
            }
            const char kind = bytes_.at(at_ + 1);
            at_ += 2;
            if (kind == 'u') {
                point(result);
            } else {
                result += kind == 'n' ? '\n' : kind == 't' ? '\t' : kind == 'r' ? '\r' : kind;
            }
        }
        ++at_;
        return result;
    }

    void point(std::string &result) {
        auto code = static_cast<std::uint32_t>(std::stoul(bytes_.substr(at_, 4), nullptr, 16));
        at_ += 4;
        if (code >= 0xd800 && code < 0xdc00) {
            code = 0x10000 + ((code - 0xd800) << 10) + static_cast<std::uint32_t>(std::stoul(bytes_.substr(at_ + 2, 4), nullptr, 16)) - 0xdc00;
            at_ += 6;
        }
        const auto add = [&](std::uint32_t byte) { result += static_cast<char>(byte); };
        if (code < 0x80) {
            add(code);
        } else if (code < 0x800) {
            add(0xc0 | code >> 6), add(0x80 | (code & 63));
        } else if (code < 0x10000) {
            add(0xe0 | code >> 12), add(0x80 | (code >> 6 & 63)), add(0x80 | (code & 63));
        } else {
            add(0xf0 | code >> 18), add(0x80 | (code >> 12 & 63)), add(0x80 | (code >> 6 & 63)), add(0x80 | (code & 63));
        }
    }

    std::string bytes_;
    std::size_t at_ = 0;
};
