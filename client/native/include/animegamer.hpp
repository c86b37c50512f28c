// A thin C++17 layer over animegamer.h, in headers only: a client that closes itself, errors as exceptions, buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "animegamer.h"

namespace ag {

#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
/// A call that was refused at once. What ends a request later is an event, AG_EVENT_ERROR.
class Error : public std::runtime_error {
public:
    explicit Error(const ag_error &error)
        : std::runtime_error(std::string(error.text) + (*error.what_to_do == '\0' ? "" : "; ") + error.what_to_do), kind(error.kind),
          code(error.code), text(error.text), what_to_do(error.what_to_do) {}

    ag_result kind;
    std::string code, text, what_to_do;
};
#endif

/// True, or throws Error. Compiled without exceptions it returns false, and ag_last_error says why.
inline bool check(bool good) {
#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
    if (!good) {
        throw Error(*ag_last_error());
    }
#endif
    return good;
}

/// ag_options with their defaults.
struct Options : ag_options {
    Options() { ag_options_init(static_cast<ag_options *>(this)); }
    explicit Options(const char *address_) : Options() { address = address_; }
};

/// A connection to a server, and the games on it. Its functions throw Error; animegamer.h says what each does. Compiled without
/// exceptions, a request that is refused is 0, and a client that could not be made is false; ag_last_error says why.
class Client {
public:
    explicit Client(const ag_options &options) : client_(ag_client_new(&options)) { check(client_ != nullptr); }
    explicit Client(const char *address) : Client(Options(address)) {}
    explicit operator bool() const { return client_ != nullptr; }

    /// Memory for pictures: `count` buffers of `bytes` (welcome.frames and welcome.buffer_bytes), freed with the client.
    void add_buffers(std::size_t count, std::size_t bytes) {
        for (std::size_t n = 0; n < count; ++n) {
            buffers_.emplace_back(bytes);
            check(ag_give_buffer(client_.get(), buffers_.back().data(), bytes) == AG_OK);
        }
    }

    /// Call `handler(const ag_event &)` for each event there is, on this thread. An event's buffer is given back when the
    /// handler returns. The handler may call `close`, but not destroy the client.
    template <typename Handler> void poll(Handler &&handler) {
        while (const ag_event *event = ag_poll(client_.get())) {
            void *const buffer = event->buffer;
            handler(*event);
            if (buffer != nullptr) {
                give_back(buffer);
            }
        }
    }

    void close() { ag_client_close(client_.get()); }
    ag_client *get() const { return client_.get(); }

    ag_request connect() { return asked(&ag_connect); }
    ag_request open(std::int64_t seed = -1, int history_turns = -1) { return asked(&ag_open, seed, history_turns); }
    ag_request open_picture(const std::vector<std::uint8_t> &picture, const std::string &motion, std::int64_t seed = -1,
                            int history_turns = -1) {
        return asked(&ag_open_picture, picture.data(), picture.size(), motion.c_str(), seed, history_turns);
    }
    ag_request resume(const std::string &token) { return asked(&ag_resume, token.c_str()); }
    ag_request turn(ag_game game, const std::string &instruction, const char *turn_id = nullptr, double deadline_s = 0.0) {
        return asked(&ag_turn, game, instruction.c_str(), turn_id, deadline_s);
    }
    ag_request replay(ag_game game, std::int64_t turn, std::int64_t after_seq = -1) { return asked(&ag_replay, game, turn, after_seq); }
    ag_request wish(ag_game game, const std::vector<std::string> &instructions) {
        std::vector<const char *> texts;
        for (const auto &text : instructions) {
            texts.push_back(text.c_str());
        }
        return asked(&ag_wish, game, texts.data(), texts.size());
    }
    ag_request cancel(ag_game game) { return asked(&ag_cancel, game); }
    ag_request rewind(ag_game game, std::int64_t turn) { return asked(&ag_rewind, game, turn); }
    ag_request branch(ag_game game, std::int64_t turn, std::int64_t seed = -1) { return asked(&ag_branch, game, turn, seed); }
    ag_request list(ag_game game, std::int64_t before = 0) { return asked(&ag_list, game, before); }
    ag_request close_game(ag_game game) { return asked(&ag_close_game, game); }

    ag_game_info info(ag_game game) const {
        ag_game_info info{};
        check(ag_game_get(client_.get(), game, &info) == AG_OK);
        return info;
    }

private:
    struct Free {
        void operator()(ag_client *client) const { ag_client_free(client); }
    };

    template <typename Function, typename... Arguments> ag_request asked(Function function, Arguments... arguments) {
        ag_request request = 0;
        check(function(client_.get(), arguments..., &request) == AG_OK);
        return request;
    }

    void give_back(void *buffer) {
        for (const auto &own : buffers_) {
            if (own.data() == buffer) {
                ag_give_buffer(client_.get(), buffer, own.size()); // refused once it is closed
            }
        }
    }

    std::vector<std::vector<std::uint8_t>> buffers_; // moving one keeps its memory where it is
    std::unique_ptr<ag_client, Free> client_; // after the buffers: its thread ends before they go
};

} // namespace ag
