// A game's loop for tests: polls a client, keeps what it saw, and checks that a turn's events come once and in order.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "animegamer.h"
#include "check.h"

/// What a test keeps of an event.
struct Seen {
    ag_event_type type{};
    ag_request request = 0;
    ag_game game = 0;
    std::int64_t seq = -1, number = 0; // number: index of a frame
    std::string code, text;            // of an error; text: how a file begins, too
    std::uint64_t hash = 0;            // of a picture
};

inline std::uint64_t hash_of(const void *data, std::size_t size) {
    std::uint64_t hash = 1469598103934665603U;
    for (std::size_t n = 0; n < size; ++n) {
        hash = (hash ^ static_cast<const std::uint8_t *>(data)[n]) * 1099511628211U;
    }
    return hash;
}

class Player {
public:
    explicit Player(const std::string &address, double timeout_s = 120.0, std::size_t buffers = 17, std::size_t buffer_bytes = 1 << 20,
                    const std::function<void(ag_options &)> &change = {}) {
        ag_options options;
        ag_options_init(&options);
        options.address = address.c_str();
        options.timeout_s = timeout_s;
        if (change) {
            change(options);
        }
        client = ag_client_new(&options);
        CHECK(client != nullptr);
        buffer_bytes_ = buffer_bytes;
        for (std::size_t n = 0; n < buffers; ++n) {
            memory_.emplace_back(buffer_bytes);
            SAME(int(ag_give_buffer(client, memory_.back().data(), buffer_bytes)), int(AG_OK));
        }
    }
    ~Player() { ag_client_free(client); }
    Player(const Player &) = delete;
    Player &operator=(const Player &) = delete;

    /// The next event; fails the test if none comes for long.
    Seen next() {
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(100);
        while (std::chrono::steady_clock::now() < until) {
            if (const ag_event *event = ag_poll(client)) {
                return keep(*event);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        throw std::runtime_error("no event came");
    }

    /// The first event of this type, or the error that ended this request.
    Seen until(ag_event_type type, ag_request request = 0) {
        for (;;) {
            const Seen seen = next();
            if ((seen.type == type && (request == 0 || seen.request == request)) ||
                (seen.type == AG_EVENT_ERROR && (request == 0 || seen.request == request))) {
                return seen;
            }
        }
    }

    /// Wait for what ends a request; it must be of this type.
    Seen answer(ag_event_type type, ag_request request) {
        CHECK(request != 0);
        const Seen seen = until(type, request);
        SAME(seen.type == AG_EVENT_ERROR ? seen.code + ": " + seen.text : "", std::string());
        return seen;
    }

    ag_game open(std::int64_t seed = 3) {
        ag_request request = 0;
        SAME(int(ag_open(client, seed, -1, &request)), int(AG_OK));
        return answer(AG_EVENT_OPENED, request).game;
    }

    ag_request begin(ag_game game, const std::string &text, const char *turn_id = nullptr) {
        ag_request request = 0;
        SAME(int(ag_turn(client, game, text.c_str(), turn_id, 0.0, &request)), int(AG_OK));
        return request;
    }

    /// The hashes of a turn's pictures, from its first event to `done`.
    std::vector<std::uint64_t> rest(ag_request request) {
        std::vector<std::uint64_t> pictures;
        std::int64_t seq = -1;
        for (;;) {
            const Seen seen = next();
            if (seen.type == AG_EVENT_ERROR) {
                throw std::runtime_error("error " + seen.code + ": " + seen.text);
            }
            if (seen.request != request || seen.type == AG_EVENT_RESTARTING || seen.type == AG_EVENT_UNDERSTOOD) {
                continue;
            }
            SAME(seen.seq, ++seq);
            if (seen.type == AG_EVENT_FRAME) {
                SAME(seen.number, std::int64_t(pictures.size()));
                pictures.push_back(seen.hash);
            }
            if (during) {
                during(seen);
            }
            if (seen.type == AG_EVENT_DONE) {
                SAME(pictures.size(), std::size_t{17});
                return pictures;
            }
        }
    }

    std::vector<std::uint64_t> play(ag_game game, const std::string &text) { return rest(begin(game, text)); }

    /// How a request ends that must fail: the error's code.
    std::string refusal(ag_request request) {
        for (;;) {
            const Seen seen = next();
            if (seen.request == request && (seen.type == AG_EVENT_ERROR || seen.type == AG_EVENT_DONE)) {
                return seen.type == AG_EVENT_ERROR ? seen.code : "done";
            }
        }
    }

    ag_game_info info(ag_game game) {
        ag_game_info info;
        SAME(int(ag_game_get(client, game, &info)), int(AG_OK));
        return info;
    }

    ag_client *client = nullptr;
    std::function<void(const Seen &)> during;            // called for each event of a turn

private:
    Seen keep(const ag_event &event) {
        Seen seen{event.type, event.request, event.game, event.seq, 0, "", "", 0};
        if (event.type == AG_EVENT_ERROR) {
            seen.code = event.of.error.code;
            seen.text = std::string(event.of.error.text) + "; " + event.of.error.what_to_do;
        } else if (event.type == AG_EVENT_FRAME) {
            seen.number = event.type == AG_EVENT_FRAME ? event.of.frame.index : 0;
            seen.hash = hash_of(event.buffer, event.buffer_bytes);
            seen.text.assign(static_cast<const char *>(event.buffer), 12); // how the file begins
            ag_give_buffer(client, event.buffer, buffer_bytes_);
        }
        return seen;
    }

    std::vector<std::vector<std::uint8_t>> memory_;
    std::size_t buffer_bytes_ = 0;
};
