// One TCP connection that carries messages: connecting, ZMTP, the memory of the parts. The channel decides what is sent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "event_queue.h"
#include "message.h"
#include "net.h"
#include "zmtp.h"

namespace animegamer {

/// Who is told what arrives on a link.
class LinkOwner {
public:
    virtual ~LinkOwner() = default;
    /// The ZeroMQ handshake is done.
    virtual void link_ready() = 0;
    /// The buffer of a message is about to arrive: where to put it. Without memory and without `wait` it is dropped.
    virtual PartReceiver::Place place_buffer(const Header &header, std::size_t size) = 0;
    /// A whole message; `buffer_bytes` is the size of its buffer, 0 without one.
    virtual Fault message(const Header &header, const Tree &tree, std::size_t buffer_bytes) = 0;
};

class Link : private PartReceiver {
public:
    explicit Link(LinkOwner &owner) : owner_(owner), zmtp_(*this), incoming_(incoming_bytes) {}
    ~Link() override { close(); }
    Link(const Link &) = delete;
    Link &operator=(const Link &) = delete;

    /// Begin to connect. Returns false if that failed at once; `trouble` says why.
    bool open(const std::string &host, std::uint16_t port, std::string &trouble);
    void close();
    bool is_open() const { return socket_ != net::no_socket; }
    /// Whether messages may be sent.
    bool ready() const { return is_open() && zmtp_.ready(); }
    /// Whether it waits for memory to put a buffer into.
    bool waits() const { return is_open() && zmtp_.waits(); }

    /// Append a message to what is to be sent.
    void send(std::string_view header);
    std::size_t unsent() const { return zmtp_.outgoing.size(); }

    net::Watched watched() const;
    enum class Outcome { fine, lost, fault };
    /// Read and write what is possible. `fault`: see `fault()`; `trouble` says why it was lost.
    Outcome advance(bool can_read, bool can_write, std::string &trouble);
    const Fault &fault() const { return zmtp_.fault(); }
    /// Bytes that arrived in the last `advance`.
    std::size_t arrived() const { return arrived_; }

private:
    static constexpr std::size_t incoming_bytes = 65536;
    static constexpr std::size_t bytes_at_once = 8 << 20; // then the other connection has its turn

    Place place(std::size_t index, std::size_t size, bool last) override;
    Fault part(std::size_t index, bool last) override;
    Outcome read(std::string &trouble);
    Outcome step(Zmtp::Step step);

    LinkOwner &owner_;
    Zmtp zmtp_;
    net::Socket socket_ = net::no_socket;
    bool connecting_ = false, was_ready_ = false;
    std::vector<std::uint8_t> incoming_, header_bytes_;
    std::size_t incoming_at_ = 0, incoming_end_ = 0, arrived_ = 0, sent_ = 0;
    std::uint8_t magic_[sizeof magic] = {};
    std::size_t buffer_bytes_ = 0;
    Header header_;
    Tree tree_;
};

} // namespace animegamer
