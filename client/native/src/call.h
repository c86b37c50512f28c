// The requests in progress: what to send for one, and what each answer does to it.
//
// Knows messages, not sockets or the clock: the channel sends what a call asks for.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "animegamer.h"
#include "event_queue.h"
#include "message.h"

namespace animegamer {

/// A game of this client. `id` and `token` stay; the rest is guarded by `mutex`.
struct Game {
    ag_game number = 0;
    std::string id, token;
    std::mutex mutex;
    ag_game_info info{};
};

/// The games, which the channel adds to when a session is opened.
class Games {
public:
    virtual ~Games() = default;
    /// The game of a session that was just opened; the same one if it is known.
    virtual std::shared_ptr<Game> opened(const std::string &session, const std::string &token) = 0;
    /// The game of a session; nullptr if it was never opened here.
    virtual std::shared_ptr<Game> known(std::string_view session) = 0;
};

enum class Verb { connect, open, turn, wish, replay, cancel, rewind, branch, list, close_game };

struct Call {
    Call(ag_request number_, Verb verb_, Request request_, std::shared_ptr<Game> game_ = nullptr)
        : number(number_), verb(verb_), request(std::move(request_)), game(std::move(game_)) {}

    bool is_turn() const { return verb == Verb::turn || verb == Verb::replay; }
    bool on_control() const { return verb == Verb::cancel; }
    /// As long as the server answers, it does not time out: it may wait in the server's queue for long.
    bool may_be_slow() const { return request.buffer() != nullptr || (is_turn() && turn != 0); }
    /// The type of the answer that ends it; empty for a turn.
    const char *answer() const;

    ag_request number; // 0: nobody asked, so no event tells of it
    Verb verb;
    Request request;
    std::shared_ptr<Game> game; // nullptr: about none
    bool ended = false;

    // A turn: its number, the last event's, and what was asked for again.
    std::int64_t turn = 0, seq = -1, gap_after = -2;
    std::string turn_id;     // empty: not known
    bool understood = false; // that was told: each replay sends it again
    bool begun = false;     // an event of it arrived
    bool cancelled = false; // a cancel was asked for
    bool starved = false;   // an event was dropped because nobody read: the rest is asked for when there is room
    bool has_state = false;
    ag_character character{};

    // Of the channel: when it was sent and heard of, in seconds of its clock.
    double heard_at = 0.0, sent_at = 0.0, retry_at = -1.0;
    bool sent = false;
    bool reconnected = false; // it was sent on an earlier connection
    Fault refused;            // the temporary error that it waits out
};

/// `replay` of what a turn lacks.
Request replay_of(const Call &call);
/// A request about a game: its session in the header, its token in the fields, after `fields` were added.
Request about(const Game &game, const char *type);

/// `list` of the turns up to this one: whose turn has its number now?
Request check_of(const Call &call);

/// Fill an event of a turn's message. Returns the fault of its fields, or none.
Fault fill_turn_event(const Header &header, const Tree &tree, std::size_t buffer_bytes, Slot &slot);
/// Fill the event of an answer to another request.
Fault fill_answer(const Header &header, const Tree &tree, Slot &slot);
/// Fill the event of an `offer`.
Fault fill_offer(const Header &header, const Tree &tree, Slot &slot);
/// Read `answer` of `understood` or an error; nullptr if it is missing.
std::shared_ptr<const Answers> read_answers(Fields &fields);
/// The event type of a turn's message; 0 for a type that this client does not know.
ag_event_type turn_event_type(std::string_view type);
/// Read `character` of a message's fields.
ag_character read_character(Fields &fields, const char *name);

} // namespace animegamer
