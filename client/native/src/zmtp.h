// ZMTP 3.1 of a DEALER: the greeting, frames in and out, PING answered. No sockets, no messages' meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fault.h"

namespace animegamer {

/// Where the parts of messages go.
class PartReceiver {
public:
    virtual ~PartReceiver() = default;
    struct Place {
        std::uint8_t *memory = nullptr; // for all bytes of the part; nullptr: they are dropped
        bool wait = false;              // ask again later, and read nothing meanwhile
        Fault fault;
    };
    /// Part `index` of a message is about to arrive, with so many bytes. Not more than `Zmtp::max_part`.
    virtual Place place(std::size_t index, std::size_t size, bool last) = 0;
    /// All bytes of the part are at its place.
    virtual Fault part(std::size_t index, std::size_t size, bool last) = 0;
};

class Zmtp {
public:
    static constexpr std::size_t max_part = 67108864; // PROTOCOL.md "Limits"
    static constexpr std::size_t max_command = 4096;

    explicit Zmtp(PartReceiver &receiver) : receiver_(receiver) {}

    /// Forget the connection; `outgoing` then holds the greeting of the next.
    void restart();
    /// Whether the handshake is done: only then may messages be sent.
    bool ready() const { return ready_; }

    enum class Step { more, wait, fault };
    /// Read bytes that arrived; `used` of them were taken (all, unless the step is `wait` or `fault`).
    Step feed(const std::uint8_t *data, std::size_t size, std::size_t &used);
    /// Whether the last step was `wait`.
    bool waits() const { return state_ == State::place; }
    /// The rest of the part that is arriving, to be filled without a copy; size 0: use `feed`.
    struct Span {
        std::uint8_t *data;
        std::size_t size;
    };
    Span rest() const;
    /// So many bytes were written to `rest()`.
    Step filled(std::size_t size);
    const Fault &fault() const { return fault_; }

    /// Append one part of a message to `outgoing`.
    void send(std::string_view part, bool last);
    /// Bytes to send, from the front.
    std::string outgoing;

private:
    enum class State { greeting, flags, length, place, body };

    Step wrong(Fault fault);
    bool header_byte(std::uint8_t byte);
    bool check_greeting(std::size_t known);
    bool begin_body();
    bool end_frame();
    bool command();
    bool handshake(std::string_view received);
    void send_frame(std::uint8_t flags, std::string_view body);

    PartReceiver &receiver_;
    State state_ = State::greeting;
    bool ready_ = false;
    std::uint8_t small_[64] = {};
    std::uint8_t command_[max_command] = {};
    std::size_t small_size_ = 0;
    std::uint8_t flags_ = 0;
    std::uint64_t length_ = 0, got_ = 0;
    std::size_t length_bytes_ = 0, index_ = 0;
    std::uint8_t *memory_ = nullptr;
    Fault fault_;
};

} // namespace animegamer
