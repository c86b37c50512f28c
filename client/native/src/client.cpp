#include "client.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>

namespace animegamer {

namespace {

double clock_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

} // namespace

Client::Client(Settings settings)
    : settings_(std::move(settings)), turns_(settings_.turns, settings_.timeout_s, settings_.hello, events_, *this),
      control_(settings_.control, settings_.timeout_s, std::nullopt, events_, *this) {
    thread_ = std::thread([this] { run(); });
}

Client::~Client() {
    close();
    if (held_ != nullptr) {
        events_.drop(held_);
    }
}

void Client::close() {
    const std::lock_guard<std::mutex> lock(closing_);
    stop_.store(true);
    waker_.wake();
    if (thread_.joinable()) {
        thread_.join();
    }
}

const ag_event *Client::poll() {
    const Slot *slot = closed() ? nullptr : events_.poll(held_);
    return slot == nullptr ? nullptr : &slot->event;
}

void Client::give(Buffer buffer) {
    if (events_.give(buffer)) {
        waker_.wake();
    }
}

Fault Client::start(Call call, ag_request &number) {
    const auto most = std::min(header_bytes_.load(), static_cast<std::int64_t>(max_request_bytes));
    const auto bytes = static_cast<std::int64_t>(call.request.header("18446744073709551615").size());
    if (bytes > most) {
        return {AG_REFUSED, "too_large",
                "`" + call.request.type() + "` would have a header of " + std::to_string(bytes) + " bytes; the server takes " +
                    std::to_string(most),
                "send a shorter text; welcome.text_characters is the longest instruction"};
    }
    auto shared = std::make_shared<Call>(std::move(call));
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        number = shared->number = ++last_number_;
        requests_.push_back(std::move(shared));
    }
    waker_.wake();
    return {};
}

std::shared_ptr<Game> Client::game(ag_game number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return number == 0 || number > games_.size() ? nullptr : games_[number - 1];
}

// -- the I/O thread

void Client::run() {
    while (!stop_.load()) {
        try {
            work();
        } catch (const std::exception &) {
            // Without memory: the connections are given up, and the requests end by their time limit once there is some.
            turns_.close();
            control_.close();
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
    }
    turns_.close();
    control_.close();
}

void Client::work() {
    net::Watched watched[3] = {turns_.watched(), control_.watched(), {}};
    watched[2].socket = waker_.socket();
    watched[2].want_read = true;
    const double wait_s = std::min(turns_.wait_s(), control_.wait_s());
    net::wait(watched, 3, static_cast<int>(std::ceil(1000 * wait_s)));
    if (watched[2].can_read) {
        waker_.clear();
    }
    const double now = clock_s();
    turns_.advance(now, watched[0].can_read, watched[0].can_write);
    control_.advance(now, watched[1].can_read, watched[1].can_write);
    take_requests();
    cancels_.erase(std::remove_if(cancels_.begin(), cancels_.end(), [](const auto &call) { return call->ended; }), cancels_.end());
    turns_.send_waiting();
    // What was just asked for is sent now, not at the next event.
    turns_.advance(now, false, false);
    control_.advance(now, false, false);
}

void Client::take_requests() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        taken_.swap(requests_);
    }
    for (const auto &call : taken_) {
        if (call->verb == Verb::cancel) {
            mark_cancelled(*call);
            cancels_.push_back(call);
        }
        (call->on_control() ? control_ : turns_).start(call);
    }
    taken_.clear();
}

void Client::mark_cancelled(const Call &cancel) {
    for (const auto &call : turns_.calls()) {
        if (call->game == cancel.game && call->is_turn() && !call->ended) {
            call->cancelled = true;
            if (!call->sent) {
                turns_.fail(*call, {AG_REFUSED, "cancelled", "the turn was cancelled before it was sent", ""});
            }
        }
    }
}

void Client::cancelled_turn_begun(const Call &call) {
    auto again = std::make_shared<Call>(0, Verb::cancel, about(*call.game, "cancel"), call.game);
    cancels_.push_back(again);
    control_.start(again);
}

bool Client::must_wait(const Call &call) {
    if (!call.game || call.on_control()) {
        return false;
    }
    const auto of_this_game = [&](const std::shared_ptr<Call> &other) { return !other->ended && other->game == call.game && other.get() != &call; };
    return std::any_of(cancels_.begin(), cancels_.end(), of_this_game) ||
           std::any_of(turns_.calls().begin(), turns_.calls().end(), [&](const auto &other) { return of_this_game(other) && other->cancelled; });
}

std::shared_ptr<Game> Client::opened(const std::string &session, const std::string &token) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto &game : games_) {
        if (game->id == session && game->token == token) {
            return game;
        }
    }
    auto game = std::make_shared<Game>();
    game->number = static_cast<ag_game>(games_.size() + 1);
    game->id = session;
    game->token = token;
    games_.push_back(game);
    return game;
}

std::shared_ptr<Game> Client::known(std::string_view session) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto &game : games_) {
        if (game->id == session) {
            return game;
        }
    }
    return nullptr;
}

void Client::welcomed(const ag_welcome &welcome) { header_bytes_.store(welcome.header_bytes); }

} // namespace animegamer
