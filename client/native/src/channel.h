// The client's side of the protocol on one address: greeting, requests, pings, time limits, repeats after a lost connection.
//
// It outlives connections. Used by the I/O thread only; what it finds out goes into the event queue.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "call.h"
#include "event_queue.h"
#include "link.h"

namespace animegamer {

/// What a channel asks of the client.
class ChannelOwner : public Games {
public:
    /// A turn that was cancelled before it had begun has begun: cancel it again.
    virtual void cancelled_turn_begun(const Call &call) = 0;
    /// Whether a call must wait for the end of what was cancelled before it.
    virtual bool must_wait(const Call &call) = 0;
    /// The server said what it allows.
    virtual void welcomed(const ag_welcome &welcome) = 0;
};

struct Address {
    std::string host, text; // text: as in errors
    std::uint16_t port = 0;
};

class Channel : private LinkOwner {
public:
    /// hello: the first message on each connection; none on control.
    Channel(Address address, double timeout_s, std::optional<Request> hello, EventQueue &events,
            ChannelOwner &owner);

    void start(std::shared_ptr<Call> call);
    /// Read, write, and look at the clock (seconds).
    void advance(double clock, bool can_read, bool can_write);
    /// Send the calls that waited for others, where they need not any more.
    void send_waiting();
    net::Watched watched() const { return link_.watched(); }
    /// Seconds until `advance` is needed though nothing arrives.
    double wait_s() const;
    void close();

    const std::vector<std::shared_ptr<Call>> &calls() const { return calls_; }
    /// End a call with an error.
    void fail(Call &call, const Fault &fault);

private:
    enum class Phase { down, greeting, ready };

    // channel.cpp: connections and time
    void link_ready() override;
    void open();
    void make_ready();
    void lost(const std::string &trouble);
    void fail_all(const Fault &fault);
    void tick();
    void ping_and_retry(double silent_s);
    void retry_starved();
    void send_call(const std::shared_ptr<Call> &call);
    std::uint64_t send(const Request &request);
    void forget_ended();
    Fault timed_out() const;

    // incoming.cpp: what arrives
    PartReceiver::Place place_buffer(const Header &header, std::size_t size) override;
    Fault message(const Header &header, const Tree &tree, std::size_t buffer_bytes) override;
    Fault process(const Header &header, const Tree &tree, std::size_t buffer_bytes);
    Fault process_welcome(const Header &header, const Tree &tree);
    Fault process_error(const std::shared_ptr<Call> &call, const Header &header, const Tree &tree);
    Fault process_turn(const std::shared_ptr<Call> &call, const Header &header, const Tree &tree, std::size_t buffer_bytes);
    Fault process_answer(Call &call, const Header &header, const Tree &tree);
    Fault add_turn_event(Call &call, const Header &header, const Tree &tree, std::size_t buffer_bytes);
    void refuse(const std::shared_ptr<Call> &call, const Fault &fault);
    std::shared_ptr<Call> call_for(const Header &header);
    void push_error(const Call &call, const Fault &fault);
    bool is_attached(std::string_view session) const;

    // session.cpp: what arrives about a session
    Fault process_offer(const Header &header, const Tree &tree);
    void process_session(const Header &header, const Tree &tree);
    void process_check(Call &call, const Header &header, const Tree &tree);
    void check_turn_id(Call &call, const Tree &tree, std::uint32_t entry);
    Fault read_opened(Call &call, const Header &header, const Tree &tree);

    const Address address_;
    const double timeout_s_;
    const std::optional<Request> hello_;
    EventQueue &events_;
    ChannelOwner &owner_;
    Link link_;
    Phase phase_ = Phase::down;
    std::vector<std::shared_ptr<Call>> calls_;
    std::unordered_map<std::uint64_t, std::shared_ptr<Call>> call_of_request_;
    std::unordered_map<std::uint64_t, std::shared_ptr<Call>> call_of_check_; // requests that ask whose turn has its number
    std::unordered_map<std::uint64_t, std::string> session_of_resume_;
    std::vector<std::string> attached_; // sessions that belong to this connection
    std::uint64_t last_request_ = 0, hello_id_ = 0;
    bool welcomed_ = false, answered_ = false;
    std::string trouble_ = "nothing answered";
    double clock_at_ = -1.0, now_ = 0.0; // now: of longer times between two ticks only a second counts
    double connect_at_ = 0.0, backoff_s_ = 0.0;
    double heard_at_ = 0.0, answer_at_ = 0.0, pinged_at_ = 0.0, waits_since_ = -1.0;
    Buffer buffer_; // of the message that is arriving
};

} // namespace animegamer
