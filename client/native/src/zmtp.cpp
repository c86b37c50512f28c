#include "zmtp.h"

#include <algorithm>
#include <cstring>

namespace animegamer {

namespace {

constexpr std::uint8_t more_flag = 0x01, long_flag = 0x02, command_flag = 0x04;

/// ZMTP 3.1, mechanism NULL, then zeros.
constexpr char greeting_bytes[64] = "\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01NULL";
constexpr std::string_view greeting(greeting_bytes, sizeof greeting_bytes);
/// Socket-Type DEALER, Identity of 0 bytes; its final zero is a part of it.
constexpr char ready_bytes[] = "\x05READY\x0bSocket-Type\0\0\0\x06"
                               "DEALER\x08Identity\0\0\0";
constexpr std::string_view ready_command(ready_bytes, sizeof ready_bytes);

std::string printable(const std::uint8_t *data, std::size_t size) {
    std::string text;
    for (std::size_t n = 0; n < size; ++n) {
        text += data[n] >= 0x20 && data[n] < 0x7f ? static_cast<char>(data[n]) : '.';
    }
    return text;
}

} // namespace

void Zmtp::restart() {
    state_ = State::greeting;
    ready_ = false;
    small_size_ = 0;
    index_ = 0;
    memory_ = nullptr;
    fault_ = Fault{};
    outgoing = greeting;
    send_frame(command_flag, ready_command); // without waiting for the server's
}

Zmtp::Step Zmtp::wrong(Fault fault) {
    fault_ = std::move(fault);
    return Step::fault;
}

bool Zmtp::check_greeting(std::size_t known) {
    if (known >= 1 && small_[0] != 0xff) {
        if (known < 8) {
            return true; // a few bytes more say what it is
        }
        fault_ = protocol_fault("protocol", "a program that is no game server answers; it begins with \"" + printable(small_, known) + "\"",
                                "check the port: animegamer-rt serve prints it");
        return false;
    }
    if (known == 64) {
        const std::string mechanism(reinterpret_cast<const char *>(small_ + 12), strnlen(reinterpret_cast<const char *>(small_ + 12), 20));
        if (small_[9] != 0x7f || small_[10] < 3) {
            fault_ = protocol_fault("protocol", "what answers speaks ZMTP " + std::to_string(small_[10]) + "; expected 3",
                                    "check the port: animegamer-rt serve prints it");
            return false;
        }
        if (mechanism != "NULL") {
            fault_ = protocol_fault("protocol", "the server asks for keys (" + printable(small_ + 12, mechanism.size()) + "), which this client lacks",
                                    "run the server without --keys on its machine's loopback address, and use an SSH tunnel");
            return false;
        }
    }
    return true;
}

bool Zmtp::header_byte(std::uint8_t byte) {
    switch (state_) {
    case State::greeting:
        small_[small_size_++] = byte;
        if (!check_greeting(small_size_)) {
            return false;
        }
        if (small_size_ == 64) {
            state_ = State::flags;
        }
        return true;
    case State::flags:
        flags_ = byte;
        length_ = 0;
        length_bytes_ = (byte & long_flag) != 0 ? 8 : 1;
        state_ = State::length;
        if ((byte & 0xf8) != 0 || ((byte & command_flag) != 0 && (byte & more_flag) != 0)) {
            fault_ = protocol_fault("protocol", "received a frame with flags " + std::to_string(byte) + ", which ZMTP does not have");
            return false;
        }
        if (!ready_ && (byte & command_flag) == 0) {
            fault_ = protocol_fault("protocol", "received a message before READY");
            return false;
        }
        return true;
    default:
        length_ = length_ << 8 | byte;
        return --length_bytes_ != 0 || begin_body();
    }
}

bool Zmtp::begin_body() {
    got_ = 0;
    const bool is_command = (flags_ & command_flag) != 0;
    if (length_ > (is_command ? max_command : max_part)) {
        fault_ = protocol_fault("too_large", "received a frame of " + std::to_string(length_) + " bytes");
        return false;
    }
    memory_ = command_;
    state_ = State::body;
    if (is_command) {
        return length_ != 0 || end_frame();
    }
    // Ask where the part goes; the state is `place` if that is to be asked again.
    auto place = receiver_.place(index_, static_cast<std::size_t>(length_), (flags_ & more_flag) == 0);
    if (place.fault) {
        fault_ = std::move(place.fault);
        return false;
    }
    state_ = place.wait ? State::place : State::body;
    memory_ = place.memory;
    return state_ == State::place || length_ != 0 || end_frame();
}

bool Zmtp::end_frame() {
    state_ = State::flags;
    if ((flags_ & command_flag) != 0) {
        return command();
    }
    const bool last = (flags_ & more_flag) == 0;
    const std::size_t index = index_;
    index_ = last ? 0 : index_ + 1;
    fault_ = receiver_.part(index, static_cast<std::size_t>(length_), last);
    return !fault_;
}

bool Zmtp::command() {
    const std::string_view body(reinterpret_cast<const char *>(command_), static_cast<std::size_t>(length_));
    const auto name_size = body.empty() ? 0 : static_cast<std::size_t>(command_[0]);
    if (body.empty() || body.size() < 1 + name_size) {
        fault_ = protocol_fault("protocol", "received a ZMTP command that is cut short");
        return false;
    }
    const auto name = body.substr(1, name_size), data = body.substr(1 + name_size);
    if (name == "READY") {
        return handshake(data);
    }
    if (name == "ERROR") {
        fault_ = protocol_fault("protocol", "the server ended the connection: " + printable(command_ + 1 + name_size, data.size()));
        return false;
    }
    if (name == "PING" && data.size() >= 2) {
        send_frame(command_flag, std::string("\x04PONG").append(data.substr(2, 16)));
    }
    return true; // other commands are for other sockets
}

bool Zmtp::handshake(std::string_view received) {
    for (std::size_t at = 0; at < received.size();) {
        const auto name_size = static_cast<std::size_t>(static_cast<std::uint8_t>(received[at]));
        if (received.size() - at < 1 + name_size + 4) {
            break;
        }
        const auto name = received.substr(at + 1, name_size);
        at += 1 + name_size;
        std::uint32_t size = 0;
        for (int n = 0; n < 4; ++n) {
            size = size << 8 | static_cast<std::uint8_t>(received[at++]);
        }
        if (received.size() - at < size) {
            break;
        }
        if (name == "Socket-Type") {
            const auto value = received.substr(at, size);
            if (value != "ROUTER") {
                fault_ = protocol_fault("protocol",
                                        "the socket there is a " + printable(reinterpret_cast<const std::uint8_t *>(value.data()), value.size()) +
                                            "; a game server's is a ROUTER",
                                        "check the port: animegamer-rt serve prints it");
                return false;
            }
            ready_ = true;
        }
        at += size;
    }
    if (!ready_) {
        fault_ = protocol_fault("protocol", "received READY without Socket-Type");
    }
    return ready_;
}

Zmtp::Step Zmtp::feed(const std::uint8_t *data, std::size_t size, std::size_t &used) {
    used = 0;
    if (state_ == State::place && !begin_body()) {
        return Step::fault;
    }
    while (used < size && state_ != State::place) {
        if (state_ != State::body) {
            if (!header_byte(data[used++])) {
                return Step::fault;
            }
            continue;
        }
        const auto taken = static_cast<std::size_t>(std::min<std::uint64_t>(size - used, length_ - got_));
        if (memory_ != nullptr) {
            std::memcpy(memory_ + got_, data + used, taken);
        }
        used += taken;
        if (filled(taken) == Step::fault) {
            return Step::fault;
        }
    }
    return state_ == State::place ? Step::wait : Step::more;
}

Zmtp::Span Zmtp::rest() const {
    if (state_ != State::body || memory_ == nullptr) {
        return {nullptr, 0};
    }
    return {memory_ + got_, static_cast<std::size_t>(length_ - got_)};
}

Zmtp::Step Zmtp::filled(std::size_t size) {
    got_ += size;
    return got_ < length_ || end_frame() ? Step::more : Step::fault;
}

void Zmtp::send(std::string_view part, bool last) { send_frame(last ? 0 : more_flag, part); }

void Zmtp::send_frame(std::uint8_t flags, std::string_view body) {
    if (body.size() <= 0xff) {
        outgoing += static_cast<char>(flags);
        outgoing += static_cast<char>(body.size());
    } else {
        outgoing += static_cast<char>(flags | long_flag);
        for (int shift = 56; shift >= 0; shift -= 8) {
            outgoing += static_cast<char>((static_cast<std::uint64_t>(body.size()) >> shift) & 0xff);
        }
    }
    outgoing += body;
}

} // namespace animegamer
