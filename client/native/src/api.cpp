// The C interface, but for displays: checks arguments, turns exceptions into errors, and nothing else.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "client.h"
#include "last_error.h"

using namespace animegamer;

struct ag_client {
    explicit ag_client(Settings settings) : client(std::move(settings)) {}
    Client client;
};

namespace {

ag_result check_open(ag_client *client) {
    if (client == nullptr) {
        return invalid("the client is NULL", "make one with ag_client_new, and look at ag_last_error if it gives none");
    }
    if (client->client.closed()) {
        return refuse(AG_CLOSED, "closed", "the client is closed", "make another one; the game goes on with ag_resume and its token");
    }
    return AG_OK;
}

ag_result no_game(ag_game game) {
    return invalid(("there is no game of number " + std::to_string(game)).c_str(), "use `game` of an AG_EVENT_OPENED of this client");
}

/// Start a request. fill(call): adds the fields of `call.request`, and checks them. game: what it is about; nullptr: about none.
template <typename F>
ag_result start(ag_client *client, const ag_game *game, Verb verb, const char *type, ag_request *number, F fill) {
    if (number != nullptr) {
        *number = 0;
    }
    return guarded([&] {
        auto result = check_open(client);
        if (result != AG_OK) {
            return result;
        }
        Call call(0, verb, Request(type));
        if (game != nullptr) {
            call.game = client->client.game(*game);
            if (!call.game) {
                return no_game(*game);
            }
            call.request.session(call.game->id).text("token", call.game->token);
        }
        result = fill(call);
        if (result != AG_OK) {
            return result;
        }
        ag_request given = 0;
        const Fault fault = client->client.start(std::move(call), given);
        if (number != nullptr) {
            *number = given;
        }
        return fault ? refuse(fault) : AG_OK;
    });
}

constexpr std::size_t most_wishes = 16;
/// The oldest struct of version 1 ends with `jpeg_quality`; the bound guards against a size that was never set.
constexpr std::size_t least_options_bytes = offsetof(ag_options, jpeg_quality) + sizeof(int), most_options_bytes = 4096;

/// Fill the caller's struct, which may be older and smaller, or newer and larger, than this library's.
template <typename Struct> void copy_to_caller(Struct *to, std::size_t size, const Struct &from) {
    std::memset(to, 0, size);
    std::memcpy(to, &from, std::min(size, sizeof from));
}

const auto no_fields = [](Call &) { return AG_OK; };

bool is_text(const char *text, std::size_t least, std::size_t most) {
    std::size_t characters = 0;
    return text != nullptr && is_utf8(text, &characters) && characters >= least && characters <= most;
}

std::string new_turn_id() {
    std::random_device device;
    std::string id;
    for (int n = 0; n < 32; ++n) {
        id += "0123456789abcdef"[device() & 15];
    }
    return id;
}

ag_result check_turn(std::int64_t turn, std::int64_t least) {
    return turn >= least ? AG_OK : invalid("the turn's number is too small", "give a number from AG_EVENT_LISTED or AG_EVENT_DONE");
}

/// Add the fields of a new game, after checking them.
ag_result fill_open(Request &open, std::int64_t seed, int history_turns) {
    if (seed < -1 || history_turns < -1 || history_turns > 16) {
        return invalid("seed or history_turns is not within its bounds", "give a seed of 0 or more and 0..16 turns; -1: the server chooses");
    }
    if (seed >= 0) {
        open.integer("seed", seed);
    }
    if (history_turns >= 0) {
        open.integer("history_turns", history_turns);
    }
    return AG_OK;
}

/// Take the caller's options, whose struct may be older and smaller, or newer and larger, than this library's.
ag_result copy_options(const ag_options &given, ag_options &own) {
    const auto *const bytes = reinterpret_cast<const std::uint8_t *>(&given);
    const std::size_t size = given.size;
    if (size < least_options_bytes || size > most_options_bytes) {
        return invalid("options.size is not the size of an ag_options", "call ag_options_init first");
    }
    for (std::size_t at = sizeof own; at < size; ++at) {
        if (bytes[at] != 0) {
            return invalid("an option is set that this library does not know", "leave it at its default, or use a newer library");
        }
    }
    std::memcpy(&own, bytes, std::min(size, sizeof own));
    return AG_OK;
}

} // namespace

extern "C" {

uint32_t ag_interface_version(void) { return AG_INTERFACE_VERSION; }

void ag_options_init_sized(ag_options *options, size_t size) {
    if (options != nullptr && size >= least_options_bytes) {
        ag_options defaults{};
        defaults.size = size;
        defaults.address = "tcp://127.0.0.1:5570";
        defaults.timeout_s = 30.0;
        defaults.jpeg_quality = 90;
        copy_to_caller(options, size, defaults);
    }
}

const ag_error *ag_last_error(void) { return last_error(); }

ag_client *ag_client_new(const ag_options *options) {
    ag_client *client = nullptr;
    guarded([&] {
        Settings settings;
        ag_options own;
        ag_options_init(&own);
        auto result = options == nullptr ? AG_OK : copy_options(*options, own);
        if (result == AG_OK) {
            result = read_options(own, settings);
        }
        if (result == AG_OK) {
            client = new ag_client(std::move(settings));
        }
        return result;
    });
    return client;
}

void ag_client_close(ag_client *client) {
    if (client != nullptr) {
        guarded([&] {
            client->client.close();
            return AG_OK;
        });
    }
}

void ag_client_free(ag_client *client) {
    delete client;
}

const ag_event *ag_poll(ag_client *client) {
    if (client == nullptr) {
        return nullptr;
    }
    const ag_event *event = nullptr;
    guarded([&] {
        event = client->client.poll();
        return AG_OK;
    });
    return event;
}

ag_result ag_give_buffer(ag_client *client, void *data, size_t bytes) {
    return guarded([&] {
        const auto result = check_open(client);
        if (result != AG_OK) {
            return result;
        }
        if (data == nullptr || bytes < 16) {
            return invalid("the buffer is NULL or has less than 16 bytes", "give welcome.buffer_bytes bytes");
        }
        client->client.give({static_cast<std::uint8_t *>(data), bytes});
        return AG_OK;
    });
}

ag_result ag_connect(ag_client *client, ag_request *request) {
    return start(client, nullptr, Verb::connect, "hello", request, [&](Call &call) {
        call.request = client->client.hello();
        return AG_OK;
    });
}

ag_result ag_open(ag_client *client, int64_t seed, int history_turns, ag_request *request) {
    return start(client, nullptr, Verb::open, "open", request, [&](Call &call) { return fill_open(call.request, seed, history_turns); });
}

ag_result ag_open_picture(ag_client *client, const void *picture, size_t bytes, const char *motion, int64_t seed, int history_turns,
                          ag_request *request) {
    return start(client, nullptr, Verb::open, "open", request, [&](Call &call) {
        if (picture == nullptr || bytes == 0 || bytes > max_picture_bytes) {
            return invalid(("the picture has " + std::to_string(picture == nullptr ? 0 : bytes) + " bytes; expected 1 to 8388608").c_str(),
                           "give the bytes of a PNG, JPEG or WebP file; make a larger picture smaller");
        }
        if (!is_text(motion, 1, std::numeric_limits<std::size_t>::max())) {
            return invalid("the motion is NULL, empty or not UTF-8", "say what happens in the picture, as in \"gently wave\"");
        }
        const auto result = fill_open(call.request, seed, history_turns);
        call.request.text("motion", motion).buffer(std::string(static_cast<const char *>(picture), bytes));
        return result;
    });
}

ag_result ag_resume(ag_client *client, const char *token, ag_request *request) {
    return start(client, nullptr, Verb::open, "open", request, [&](Call &call) {
        if (!is_text(token, 1, 128)) {
            return invalid("the token is not text of 1 to 128 characters", "give the token of ag_game_get, as it was stored");
        }
        call.request.text("token", token);
        return AG_OK;
    });
}

ag_result ag_turn(ag_client *client, ag_game game, const char *instruction, const char *turn_id, double deadline_s, ag_request *request) {
    return start(client, &game, Verb::turn, "turn", request, [&](Call &call) {
        if (!is_text(instruction, 1, std::numeric_limits<std::size_t>::max())) {
            return invalid("the instruction is NULL, empty or not UTF-8", "write a sentence");
        }
        if (turn_id != nullptr && !is_text(turn_id, 1, 64)) {
            return invalid("the turn_id is not text of 1 to 64 characters", "give a UUID, or NULL for a new one");
        }
        if (!(deadline_s == 0.0 || (deadline_s >= 0.001 && std::isfinite(deadline_s)))) {
            return invalid("deadline_s is not within its bounds", "give 0 for none, or 0.001 or more");
        }
        call.turn_id = turn_id == nullptr ? new_turn_id() : std::string(turn_id);
        call.request.text("instruction", instruction).text("turn_id", call.turn_id);
        if (deadline_s > 0.0) {
            call.request.number("deadline_s", deadline_s);
        }
        return AG_OK;
    });
}

ag_result ag_replay(ag_client *client, ag_game game, int64_t turn, int64_t after_seq, ag_request *request) {
    return start(client, &game, Verb::replay, "replay", request, [&](Call &call) {
        if (after_seq < -1) {
            return invalid("after_seq is less than -1", "give the last `seq` that you have, or -1 for all");
        }
        call.turn = turn;
        call.seq = after_seq;
        call.request.turn(turn).integer("after_seq", after_seq);
        return check_turn(turn, 1);
    });
}

ag_result ag_wish(ag_client *client, ag_game game, const char *const *instructions, size_t count, ag_request *request) {
    return start(client, &game, Verb::wish, "wish", request, [&](Call &call) {
        if (count > most_wishes || (instructions == nullptr && count > 0)) {
            return invalid("the instructions are NULL, or more than 16", "give the likeliest 16");
        }
        for (size_t n = 0; n < count; ++n) {
            if (!is_text(instructions[n], 1, std::numeric_limits<std::size_t>::max())) {
                return invalid("an instruction is NULL, empty or not UTF-8", "write a sentence");
            }
        }
        call.request.texts("instructions", instructions, count);
        return AG_OK;
    });
}

ag_result ag_cancel(ag_client *client, ag_game game, ag_request *request) {
    return start(client, &game, Verb::cancel, "cancel", request, no_fields);
}

ag_result ag_rewind(ag_client *client, ag_game game, int64_t turn, ag_request *request) {
    return start(client, &game, Verb::rewind, "rewind", request, [&](Call &call) {
        call.request.integer("turn", turn);
        return check_turn(turn, 0);
    });
}

ag_result ag_branch(ag_client *client, ag_game game, int64_t turn, int64_t seed, ag_request *request) {
    return start(client, &game, Verb::branch, "branch", request, [&](Call &call) {
        call.request.integer("turn", turn);
        if (seed >= 0) {
            call.request.integer("seed", seed);
        }
        return seed < -1 ? invalid("the seed is less than -1", "give 0 or more, or -1 for this game's") : check_turn(turn, 0);
    });
}

ag_result ag_list(ag_client *client, ag_game game, int64_t before, ag_request *request) {
    return start(client, &game, Verb::list, "list", request, [&](Call &call) {
        if (before > 0) {
            call.request.integer("before", before);
        }
        return check_turn(before, 0);
    });
}

ag_result ag_close_game(ag_client *client, ag_game game, ag_request *request) {
    return start(client, &game, Verb::close_game, "close", request, no_fields);
}

ag_result ag_game_get_sized(ag_client *client, ag_game game, ag_game_info *info, size_t size) {
    return guarded([&] {
        if (client == nullptr || info == nullptr) {
            return invalid("the client or info is NULL", "give both");
        }
        const auto found = client->client.game(game); // of a closed client as well: its token is needed then
        if (!found) {
            return no_game(game);
        }
        const std::lock_guard<std::mutex> lock(found->mutex);
        copy_to_caller(info, size, found->info);
        return AG_OK;
    });
}

} // extern "C"
