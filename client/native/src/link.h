// One TCP connection that carries messages: connecting, ZMTP, reading and writing. The channel decides what is sent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "message_reader.h"
#include "net.h"
#include "zmtp.h"

namespace animegamer {

/// Who is told what arrives on a link.
class LinkOwner : public MessageOwner {
public:
    /// The ZeroMQ handshake is done.
    virtual void link_ready() = 0;
};

class Link {
public:
    explicit Link(LinkOwner &owner) : owner_(owner), reader_(owner), zmtp_(reader_), incoming_(incoming_bytes) {}
    ~Link() { close(); }
    Link(const Link &) = delete;
    Link &operator=(const Link &) = delete;

    /// Begin to connect. Returns false if that failed at once; `trouble` says why.
    bool open(const std::string &host, std::uint16_t port, std::string &trouble);
    void close();
    bool is_open() const { return socket_ != net::no_socket; }
    /// Whether nothing at the address has taken the connection yet.
    bool connecting() const { return connecting_; }
    /// Whether messages may be sent.
    bool ready() const { return is_open() && zmtp_.ready(); }
    /// Whether it waits for memory to put a buffer into.
    bool waits() const { return is_open() && zmtp_.waits(); }

    /// Append a message to what is to be sent. buffer: its third frame, a picture; nullptr: none.
    void send(std::string_view header, const std::string *buffer);
    /// Bytes that wait to be sent, pictures not counted.
    std::size_t unsent() const { return zmtp_.outgoing.size() - pictures_; }
    /// Whether the server took a part of a picture in the last `advance`.
    bool uploads() const { return uploads_; }

    net::Watched watched() const;
    enum class Outcome { fine, lost, fault };
    /// Read and write what is possible. `fault`: see `fault()`; `trouble` says why it was lost.
    Outcome advance(bool can_read, bool can_write, std::string &trouble);
    const Fault &fault() const { return zmtp_.fault(); }
    /// Bytes that arrived in the last `advance`.
    std::size_t arrived() const { return arrived_; }

private:
    static constexpr std::size_t incoming_bytes = 65536;
    static constexpr std::size_t outgoing_bytes = 65536; // kept from one request to the next
    static constexpr std::size_t bytes_at_once = 8 << 20; // then the other connection has its turn

    Outcome read(std::string &trouble);
    Outcome step(Zmtp::Step step);
    void sent_all();

    LinkOwner &owner_;
    MessageReader reader_;
    Zmtp zmtp_;
    net::Socket socket_ = net::no_socket;
    bool connecting_ = false, was_ready_ = false, uploads_ = false;
    std::vector<std::uint8_t> incoming_;
    std::size_t incoming_at_ = 0, incoming_end_ = 0, arrived_ = 0, sent_ = 0, pictures_ = 0;
};

} // namespace animegamer
