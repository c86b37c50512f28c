// What arrives on a channel: which call a message belongs to, and the event that it becomes.
#include <algorithm>
#include <charconv>

#include "channel.h"

namespace animegamer {

namespace {

constexpr double longest_wait_s = 1.0; // for a buffer, with reading stopped; then what comes is dropped, and asked for again

/// The request's number in `parent`; 0 if it is none of ours.
std::uint64_t number_of(std::string_view parent) {
    std::uint64_t number = 0;
    const auto result = std::from_chars(parent.data(), parent.data() + parent.size(), number);
    return result.ec == std::errc() && result.ptr == parent.data() + parent.size() ? number : 0;
}

} // namespace

const char *Call::answer() const {
    switch (verb) {
    case Verb::open:
    case Verb::branch: return "opened";
    case Verb::wish: return "wished";
    case Verb::cancel: return "cancelling";
    case Verb::rewind: return "rewound";
    case Verb::list: return "listed";
    case Verb::close_game: return "closed";
    case Verb::connect: return "welcome";
    default: return "";
    }
}

Request about(const Game &game, const char *type) { return std::move(Request(type).session(game.id).text("token", game.token)); }

Request replay_of(const Call &call) {
    return std::move(about(*call.game, "replay").turn(call.turn).integer("after_seq", call.seq));
}

std::shared_ptr<Call> Channel::call_for(const Header &header) {
    const auto found = call_of_request_.find(number_of(header.parent));
    if (found != call_of_request_.end() && !found->second->ended) {
        return found->second;
    }
    if (header.turn != 0) {
        for (const auto &call : calls_) {
            if (!call->ended && call->is_turn() && call->turn == header.turn && call->game->id == header.session) {
                return call;
            }
        }
    }
    return nullptr;
}

PartReceiver::Place Channel::place_buffer(const Header &header, std::size_t size) {
    PartReceiver::Place place;
    const auto type = turn_event_type(header.type);
    const auto call = call_for(header);
    if (phase_ != Phase::ready || !call || !call->is_turn() || type != AG_EVENT_FRAME ||
        header.seq != call->seq + 1 || call->starved) {
        waits_since_ = -1.0;
        return place; // nobody asked for it, or it comes again
    }
    if (size > events_.largest_buffer()) {
        const auto largest = events_.largest_buffer();
        fail(*call, {AG_BUFFER, "buffer",
                     "a picture has " + std::to_string(size) + " bytes; " +
                         (largest == 0 ? "no buffer was given" : "the largest buffer given has " + std::to_string(largest)),
                     "call ag_give_buffer with buffers of welcome.buffer_bytes before the turn, then ag_replay"});
        return place;
    }
    buffer_ = events_.full() ? Buffer{} : events_.take_buffer(size);
    if (buffer_.data != nullptr) {
        waits_since_ = -1.0;
        place.memory = buffer_.data;
        return place;
    }
    events_.starved.store(true);
    waits_since_ = waits_since_ < 0.0 ? now_ : waits_since_;
    place.wait = now_ - waits_since_ < longest_wait_s;
    call->starved = !place.wait;
    return place;
}

Fault Channel::message(const Header &header, const Tree &tree, std::size_t buffer_bytes) {
    heard_at_ = now_;
    answered_ = true;
    Fault fault = process(header, tree, buffer_bytes);
    if (buffer_.data != nullptr) {
        events_.put_back(buffer_);
        buffer_ = {};
    }
    if (!fault && phase_ == Phase::down) {
        return {AG_CONNECTION_LOST, "", "", ""}; // stop reading: the connection was given up
    }
    return fault;
}

Fault Channel::process(const Header &header, const Tree &tree, std::size_t buffer_bytes) {
    if (hello_ && phase_ == Phase::greeting && header.type == "welcome") {
        return process_welcome(header, tree);
    }
    if (header.type == "offer") {
        return process_offer(header, tree);
    }
    const auto check = call_of_check_.find(number_of(header.parent));
    if (check != call_of_check_.end()) {
        const auto turn = check->second;
        call_of_check_.erase(check);
        process_check(*turn, header, tree); // a refusal says nothing: what comes of the turn itself will tell
        if (!turn->ended) {
            turn->heard_at = now_;
            call_of_request_[send(replay_of(*turn))] = turn;
        }
        return {};
    }
    const auto call = call_for(header);
    if (header.type == "error") {
        return process_error(call, header, tree);
    }
    answer_at_ = now_;
    backoff_s_ = 0.0;
    if (header.type == "opened" && !header.session.empty()) {
        process_session(header, tree);
    }
    if (!call) {
        return {};
    }
    call->heard_at = now_;
    call->refused = Fault{};
    return call->is_turn() ? process_turn(call, header, tree, buffer_bytes) : process_answer(*call, header, tree);
}

Fault Channel::process_welcome(const Header &header, const Tree &tree) {
    if (number_of(header.parent) != hello_id_) {
        return {};
    }
    Slot *slot = events_.take();
    Fault fault = fill_answer(header, tree, *slot);
    if (!fault && Fields(tree, header.fields).integer("version", 1, 1) != 1) {
        fault = protocol_fault("version", "the server chose a version that this client does not speak");
    }
    if (fault) {
        events_.drop(slot);
        return fault;
    }
    owner_.welcomed(slot->event.of.welcome);
    welcomed_ = true;
    trouble_ = "it stopped responding";
    for (const auto &call : calls_) { // one event, for the first that asked
        if (call->verb == Verb::connect && !call->ended) {
            call->ended = true;
            slot->event.request = slot->event.request == 0 ? call->number : slot->event.request;
        }
    }
    if (slot->event.request == 0) {
        events_.push_connection(slot);
    } else {
        events_.push(slot);
    }
    make_ready();
    return {};
}

Fault Channel::process_error(const std::shared_ptr<Call> &call, const Header &header, const Tree &tree) {
    Fields fields(tree, header.fields);
    Fault error{AG_REFUSED, std::string(fields.text("code")), std::string(fields.text("text")), std::string(fields.text_or_empty("do")),
                read_answers(fields)};
    if (fields.fault) {
        return fields.fault;
    }
    const auto parent = number_of(header.parent);
    const auto resumed = session_of_resume_.find(parent);
    if (error.code == "hello_first") {
        lost("the server was restarted");
    } else if (parent != 0 && parent == hello_id_) {
        const bool temporary = error.code == "starting" || (welcomed_ && (error.code == "draining" || error.code == "busy" ||
                                                                          error.code == "rate_limited" || error.code == "too_many_sessions"));
        if (temporary) {
            lost(error.text);
        } else {
            fail_all(error);
        }
    } else if (resumed != session_of_resume_.end()) {
        const std::string session = resumed->second;
        attached_.erase(std::remove(attached_.begin(), attached_.end(), session), attached_.end());
        const auto calls = calls_;
        for (const auto &other : calls) {
            if (!other->ended && other->game && other->game->id == session) {
                refuse(other, error);
            }
        }
    } else if (call) {
        refuse(call, error);
    } else if (header.parent.empty() && header.turn == 0 && header.session.empty()) {
        fail_all(error); // bytes that the server could not read
    }
    return {};
}

Fault Channel::process_turn(const std::shared_ptr<Call> &call, const Header &header, const Tree &tree, std::size_t buffer_bytes) {
    const bool understood = header.type == "understood", unnumbered = understood || header.type == "restarting";
    if (header.turn == 0 || (header.seq < 0 && !unnumbered) || (understood && call->understood)) {
        return {};
    }
    call->turn = header.turn;
    if (!call->begun) {
        call->begun = true;
        if (call->cancelled) {
            owner_.cancelled_turn_begun(*call);
        }
    }
    if (call->starved) {
        return {};
    }
    const bool done = header.type == "done";
    if (unnumbered || header.seq == call->seq + 1 || (done && header.seq <= call->seq)) {
        return add_turn_event(*call, header, tree, buffer_bytes);
    }
    if (header.seq > call->seq + 1 && (call->gap_after != call->seq || done)) {
        // A gap is asked for once, as the server may drop the same messages again; and once more after `done`.
        call->gap_after = call->seq;
        call_of_request_[send(replay_of(*call))] = call;
    }
    return {};
}

Fault Channel::add_turn_event(Call &call, const Header &header, const Tree &tree, std::size_t buffer_bytes) {
    const auto type = turn_event_type(header.type);
    const bool has_buffer = type == AG_EVENT_FRAME;
    if (type == 0) {
        call.seq = std::max(call.seq, header.seq); // of a newer server
        return {};
    }
    if (has_buffer && buffer_.data == nullptr) {
        return protocol_fault("bad_field", "received " + std::string(header.type) + " without a buffer");
    }
    if (!has_buffer && events_.full()) {
        call.starved = true;
        return {};
    }
    Slot *slot = events_.take();
    if (Fault fault = fill_turn_event(header, tree, buffer_bytes, *slot)) {
        events_.drop(slot);
        return fault;
    }
    ag_event &event = slot->event;
    event.game = call.game->number;
    event.request = call.number;
    event.turn = header.turn;
    event.seq = header.seq < 0 ? call.seq : header.seq;
    if (has_buffer) {
        event.buffer = buffer_.data;
        event.buffer_bytes = buffer_bytes;
        buffer_ = {};
    }
    call.seq = std::max(call.seq, header.seq);
    call.understood = call.understood || type == AG_EVENT_UNDERSTOOD;
    if (type == AG_EVENT_ACCEPTED) {
        call.turn_id = event.of.accepted.turn_id;
    } else if (type == AG_EVENT_STATE) {
        call.has_state = true;
        call.character = event.of.state.character;
    } else if (type == AG_EVENT_DONE) {
        call.ended = true;
        const std::lock_guard<std::mutex> lock(call.game->mutex);
        call.game->info.turns = event.of.done.turns;
        if (call.has_state && header.turn == event.of.done.turns) {
            call.game->info.character = call.character;
        }
    }
    events_.push(slot);
    return {};
}

Fault Channel::process_answer(Call &call, const Header &header, const Tree &tree) {
    if (header.type != call.answer()) {
        return {};
    }
    Slot *slot = events_.take();
    Fault fault = fill_answer(header, tree, *slot);
    if (!fault && header.type == "opened") {
        fault = read_opened(call, header, tree);
    }
    if (!fault && header.type == "rewound") {
        Fields fields(tree, header.fields);
        const auto turns = fields.integer("turns", 0);
        const auto character = read_character(fields, "character");
        fault = fields.fault;
        const std::lock_guard<std::mutex> lock(call.game->mutex);
        call.game->info.turns = fault ? call.game->info.turns : turns;
        call.game->info.character = fault ? call.game->info.character : character;
    }
    if (fault) {
        events_.drop(slot);
        return fault;
    }
    call.ended = true;
    slot->event.request = call.number;
    slot->event.game = call.game ? call.game->number : 0;
    slot->event.turn = call.verb == Verb::wish ? header.turn : 0;
    if (call.number == 0) {
        events_.drop(slot);
    } else {
        events_.push(slot);
    }
    return {};
}

} // namespace animegamer
