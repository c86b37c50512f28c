// Connections and time: when a channel connects, what it sends, and when a call has waited long enough.
#include "channel.h"

#include <algorithm>
#include <cstdio>

namespace animegamer {

namespace {

constexpr double retry_s = 0.5;                            // before a request that the server could not take yet is sent again
constexpr double min_backoff_s = 0.1, max_backoff_s = 2.0; // between two attempts to connect: it doubles
constexpr const char *no_game_server = "a program there accepts connections, but does not respond like a game server";
constexpr double max_tick_s = 1.0; // of a longer time between two ticks only this counts: the program was stopped, not the server
constexpr std::size_t most_unsent = 1 << 20;

std::string seconds_text(double seconds) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", seconds);
    return text;
}

} // namespace

Channel::Channel(Address address, double timeout_s, std::optional<Request> hello,
                 EventQueue &events, ChannelOwner &owner)
    : address_(std::move(address)), timeout_s_(timeout_s), hello_(std::move(hello)), events_(events), owner_(owner), link_(*this) {}

void Channel::start(std::shared_ptr<Call> call) {
    if (calls_.empty()) {
        heard_at_ = now_;
    }
    call->heard_at = call->sent_at = now_;
    calls_.push_back(call);
    if (phase_ == Phase::ready) {
        send_call(call);
    }
}

std::uint64_t Channel::send(const Request &request) {
    const auto id = ++last_request_;
    link_.send(request.header(std::to_string(id)), request.buffer());
    return id;
}

void Channel::send_call(const std::shared_ptr<Call> &call) {
    if (call->ended || (!call->sent && owner_.must_wait(*call))) {
        return; // sent by `send_waiting`
    }
    call->sent_at = now_;
    call->retry_at = -1.0;
    if (call->game && !call->on_control() && !is_attached(call->game->id)) {
        attached_.push_back(call->game->id);
        Request resume("open");
        resume.text("token", call->game->token);
        session_of_resume_[send(resume)] = call->game->id;
    }
    const bool knows_turn = call->is_turn() && call->turn != 0;
    call->sent = true;
    call->starved = false;
    if (call->reconnected && knows_turn && !call->turn_id.empty()) {
        // A `replay` of another client's turn would take that turn's events, or keep this game's next turn waiting.
        call_of_check_[send(check_of(*call))] = call;
    } else {
        call_of_request_[send(knows_turn ? replay_of(*call) : call->request)] = call;
    }
}

void Channel::send_waiting() {
    if (phase_ != Phase::ready) {
        return;
    }
    for (std::size_t n = 0; n < calls_.size(); ++n) {
        const auto call = calls_[n];
        if (!call->sent && !call->ended) {
            call->heard_at = now_; // its time runs from when it is sent
            send_call(call);
        }
    }
}

void Channel::forget_ended() {
    const auto ended = [](const std::shared_ptr<Call> &call) { return call->ended; };
    if (std::none_of(calls_.begin(), calls_.end(), ended)) {
        return;
    }
    calls_.erase(std::remove_if(calls_.begin(), calls_.end(), ended), calls_.end());
    for (auto at = call_of_request_.begin(); at != call_of_request_.end();) {
        at = at->second->ended ? call_of_request_.erase(at) : std::next(at);
    }
}

void Channel::open() {
    call_of_request_.clear();
    call_of_check_.clear();
    session_of_resume_.clear();
    attached_.clear();
    backoff_s_ = std::min(std::max(min_backoff_s, 2 * backoff_s_), max_backoff_s);
    connect_at_ = now_ + backoff_s_;
    heard_at_ = now_;
    waits_since_ = -1.0;
    for (const auto &call : calls_) {
        call->reconnected = call->reconnected || call->sent;
    }
    std::string trouble;
    phase_ = Phase::greeting;
    if (!link_.open(address_.host, address_.port, trouble)) {
        lost(trouble);
    }
}

void Channel::link_ready() {
    if (!answered_) {
        trouble_ = no_game_server;
    }
    if (hello_) {
        hello_id_ = send(*hello_);
    } else {
        make_ready();
    }
}

void Channel::make_ready() {
    phase_ = Phase::ready;
    const auto calls = calls_;
    for (const auto &call : calls) {
        send_call(call);
    }
}

void Channel::lost(const std::string &trouble) {
    if (!trouble.empty()) {
        trouble_ = trouble;
    }
    if (phase_ == Phase::ready && hello_) {
        Slot *slot = events_.take();
        slot->reset(AG_EVENT_DISCONNECTED, 0);
        slot->set_error({AG_CONNECTION_LOST, "connection_lost", address_.text + ": " + trouble_, "nothing: it connects again at need"});
        events_.push_connection(slot);
    }
    phase_ = Phase::down;
}

void Channel::close() {
    link_.close();
    phase_ = Phase::down;
    if (buffer_.data != nullptr) {
        events_.put_back(buffer_);
        buffer_ = {};
    }
}

void Channel::fail(Call &call, const Fault &fault) {
    if (!call.ended) {
        call.ended = true;
        push_error(call, fault);
    }
}

void Channel::fail_all(const Fault &fault) {
    Fault with_address = fault;
    with_address.text = address_.text + ": " + fault.text;
    for (const auto &call : calls_) {
        fail(*call, with_address);
    }
    lost(fault.text);
}

void Channel::push_error(const Call &call, const Fault &fault) {
    if (call.number == 0) {
        return;
    }
    Slot *slot = events_.take();
    slot->reset(AG_EVENT_ERROR, 0);
    slot->set_error(fault);
    slot->event.request = call.number;
    slot->event.game = call.game ? call.game->number : 0;
    slot->event.turn = call.turn;
    events_.push(slot);
}

double Channel::wait_s() const {
    if (calls_.empty()) {
        return 60.0;
    }
    const double longest = std::min(0.25, timeout_s_ / 16);
    return phase_ == Phase::down ? std::clamp(connect_at_ - now_, 0.001, longest) : longest;
}

void Channel::advance(double clock, bool can_read, bool can_write) {
    now_ += clock_at_ < 0.0 ? 0.0 : std::min(clock - clock_at_, max_tick_s);
    clock_at_ = clock;
    if (link_.is_open()) {
        std::string trouble;
        const auto outcome = link_.advance(can_read, can_write, trouble);
        if (link_.arrived() > 0 || link_.waits() || link_.uploads()) {
            heard_at_ = now_;
        }
        if (outcome == Link::Outcome::fault && phase_ != Phase::down) {
            fail_all(link_.fault());
        } else if (outcome == Link::Outcome::lost && phase_ != Phase::down) {
            lost(trouble);
        }
    }
    tick();
    forget_ended();
    if (phase_ == Phase::down) {
        close();
        if (now_ >= connect_at_ && !calls_.empty()) {
            open();
        }
    }
}

void Channel::tick() {
    for (const auto &call : calls_) {
        const double heard_at = call->may_be_slow() ? std::max(call->heard_at, answer_at_) : call->heard_at;
        const bool waits = !call->sent && phase_ == Phase::ready; // for the end of a cancelled turn, which has its own limit
        if (!waits && now_ - heard_at >= timeout_s_) {
            // A turn that has begun may count already: who takes a refusal of its replay for the turn's would play it twice.
            const bool told = call->refused && !(call->is_turn() && call->begun);
            fail(*call, told ? call->refused : timed_out());
        }
    }
    forget_ended();
    const double silent_s = now_ - heard_at_;
    if (phase_ == Phase::down || calls_.empty()) {
        return;
    }
    if (silent_s >= timeout_s_ / 2) {
        lost(answered_ || link_.connecting() ? "no message for " + std::to_string(static_cast<int>(silent_s)) + " s" : no_game_server);
    } else if (link_.unsent() > most_unsent) {
        lost("the server accepts no more messages");
    } else if (phase_ == Phase::ready) {
        ping_and_retry(silent_s);
        retry_starved();
    }
}

void Channel::ping_and_retry(double silent_s) {
    if (std::min(silent_s, now_ - pinged_at_) >= timeout_s_ / 4) {
        pinged_at_ = now_;
        send(Request("ping"));
    }
    for (std::size_t n = 0; n < calls_.size(); ++n) {
        const auto call = calls_[n];
        const bool overdue = call->is_turn() && call->sent && !call->starved && now_ - std::max(call->heard_at, call->sent_at) >= timeout_s_;
        if (overdue || (call->retry_at >= 0.0 && now_ >= call->retry_at)) {
            send_call(call);
        }
    }
}

void Channel::retry_starved() {
    bool any = false;
    for (std::size_t n = 0; n < calls_.size(); ++n) {
        const auto call = calls_[n];
        if (!call->starved) {
            continue;
        }
        call->heard_at = now_; // the game does not read: the server is not late
        if (events_.has_room()) {
            send_call(call);
        } else {
            any = true;
        }
    }
    if (!any && !link_.waits()) {
        events_.starved.store(false);
    }
}

Fault Channel::timed_out() const {
    const std::string control = hello_ ? "" : " (control, the port above the one given)";
    return {AG_TIMED_OUT, "timed_out",
            address_.text + control + ": no answer within " + seconds_text(timeout_s_) + " s (" + trouble_ + ")",
            welcomed_ ? "check the server; its games are kept: go on with ag_resume and the game's token"
                      : "check that animegamer-rt serve runs there, and that this is the address it printed"};
}

bool Channel::is_attached(std::string_view session) const {
    return std::find(attached_.begin(), attached_.end(), session) != attached_.end();
}

void Channel::refuse(const std::shared_ptr<Call> &call, const Fault &fault) {
    static constexpr const char *temporary[] = {"starting", "draining",          "busy",         "rate_limited",
                                                "too_many_sessions", "degraded", "turn_running"};
    // After a reconnect the server may still be the one that is stopping, or still count the connection that was lost. The rest
    // of a turn that has begun is asked for until it comes.
    const auto last = std::begin(temporary) + (call->is_turn() && call->begun ? 7 : call->reconnected ? 5 : 1);
    if (std::find(std::begin(temporary), last, fault.code) != last) {
        trouble_ = fault.text;
        call->refused = fault;
        call->retry_at = now_ + retry_s;
    } else if (fault.code == "no_such_turn" && call->verb == Verb::turn && call->turn != 0) {
        call->turn = 0; // the server has lost the turn: send it again with the same turn_id
        call_of_request_[send(call->request)] = call;
    } else if (fault.code == "session_closed" && call->verb == Verb::close_game) {
        call->ended = true;
        Slot *slot = events_.take();
        slot->reset(AG_EVENT_GAME_CLOSED, 0);
        slot->event.request = call->number;
        slot->event.game = call->game->number;
        events_.push(slot);
    } else {
        fail(*call, fault);
    }
}

} // namespace animegamer
