// One client: the I/O thread with both channels, the games, and the requests on their way from the game's thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "channel.h"
#include "event_queue.h"
#include "net.h"

namespace animegamer {

/// The options of a client, checked.
struct Settings {
    Address turns, control;
    double timeout_s = 30.0;
    Request hello{"hello"};
};

/// Read and check the options. What is wrong is this thread's last error.
ag_result read_options(const ag_options &given, Settings &settings);

class Client final : private ChannelOwner {
public:
    /// Throws std::exception if there is no memory, socket or thread.
    explicit Client(Settings settings);
    ~Client() override;

    /// End the thread. Afterwards nothing of the caller's is used.
    void close();
    bool closed() const { return stop_.load(); }
    /// The next event; nullptr if there is none.
    const ag_event *poll();

    void give(Buffer buffer);
    /// Start a request; `number` is set to its number. Returns a fault if it is too large.
    Fault start(Call call, ag_request &number);
    /// The game of a number; nullptr if there is none.
    std::shared_ptr<Game> game(ag_game number);
    const Request &hello() const { return settings_.hello; }

private:
    void run();
    void work();
    void take_requests();
    void mark_cancelled(const Call &cancel);

    std::shared_ptr<Game> opened(const std::string &session, const std::string &token) override;
    std::shared_ptr<Game> known(std::string_view session) override;
    void cancelled_turn_begun(const Call &call) override;
    bool must_wait(const Call &call) override;
    void welcomed(const ag_welcome &welcome) override;

    const Settings settings_;
    EventQueue events_;
    net::Waker waker_;
    Channel turns_, control_;
    std::atomic<bool> stop_{false};
    std::atomic<std::int64_t> header_bytes_{static_cast<std::int64_t>(max_request_bytes)};
    std::mutex mutex_; // of the next three
    std::vector<std::shared_ptr<Game>> games_;
    std::vector<std::shared_ptr<Call>> requests_;
    ag_request last_number_ = 0;
    std::vector<std::shared_ptr<Call>> taken_, cancels_; // of the I/O thread
    Slot *held_ = nullptr;                               // of the game's thread: the event that it reads
    std::mutex closing_;
    std::thread thread_;
};

} // namespace animegamer
