#include "link.h"

namespace animegamer {

bool Link::open(const std::string &host, std::uint16_t port, std::string &trouble) {
    close();
    socket_ = net::connect(host, port, trouble);
    zmtp_.restart();
    connecting_ = true;
    was_ready_ = false;
    incoming_at_ = incoming_end_ = arrived_ = sent_ = pictures_ = 0;
    return is_open();
}

void Link::close() {
    net::close(socket_);
    socket_ = net::no_socket;
}

void Link::send(std::string_view header, const std::string *buffer) {
    zmtp_.send(std::string_view(reinterpret_cast<const char *>(magic), sizeof magic), false);
    zmtp_.send(header, buffer == nullptr);
    if (buffer != nullptr) {
        zmtp_.send(*buffer, true);
        pictures_ += buffer->size();
    }
}

void Link::sent_all() {
    if (zmtp_.outgoing.capacity() > outgoing_bytes) {
        zmtp_.outgoing = std::string(); // the memory of a picture
    }
    zmtp_.outgoing.clear();
    sent_ = pictures_ = 0;
}

net::Watched Link::watched() const {
    net::Watched watched;
    watched.socket = socket_;
    watched.want_read = !connecting_ && !zmtp_.waits();
    watched.want_write = connecting_ || sent_ < zmtp_.outgoing.size();
    return watched;
}

Link::Outcome Link::advance(bool can_read, bool can_write, std::string &trouble) {
    arrived_ = 0;
    uploads_ = false;
    if (!is_open()) {
        return Outcome::lost;
    }
    if (connecting_) {
        if (!can_write) {
            return Outcome::fine;
        }
        if (!net::connected(socket_, trouble)) {
            trouble = "nothing listens there: " + trouble;
            return Outcome::lost;
        }
        connecting_ = false;
    }
    if (can_read || zmtp_.waits() || incoming_at_ < incoming_end_) {
        const Outcome outcome = read(trouble);
        if (outcome != Outcome::fine) {
            return outcome;
        }
    }
    while (sent_ < zmtp_.outgoing.size()) {
        const auto sent = net::send(socket_, zmtp_.outgoing.data() + sent_, zmtp_.outgoing.size() - sent_);
        if (sent == net::would_block) {
            return Outcome::fine;
        }
        if (sent < 0) {
            trouble = "the connection was lost";
            return Outcome::lost;
        }
        sent_ += static_cast<std::size_t>(sent);
        uploads_ = pictures_ != 0;
    }
    sent_all();
    return Outcome::fine;
}

Link::Outcome Link::step(Zmtp::Step step) {
    if (step == Zmtp::Step::fault) {
        return Outcome::fault;
    }
    if (zmtp_.ready() && !was_ready_) {
        was_ready_ = true;
        owner_.link_ready();
    }
    return Outcome::fine;
}

Link::Outcome Link::read(std::string &trouble) {
    while (arrived_ < bytes_at_once || incoming_at_ < incoming_end_) {
        if (incoming_at_ < incoming_end_ || zmtp_.waits()) {
            std::size_t used = 0;
            const auto result = zmtp_.feed(incoming_.data() + incoming_at_, incoming_end_ - incoming_at_, used);
            incoming_at_ += used;
            const Outcome outcome = step(result);
            if (outcome != Outcome::fine || result == Zmtp::Step::wait) {
                return outcome;
            }
            continue;
        }
        const auto rest = zmtp_.rest();
        const bool direct = rest.size >= incoming_bytes / 4; // a large part goes to its place without a copy
        const auto got = direct ? net::receive(socket_, rest.data, rest.size) : net::receive(socket_, incoming_.data(), incoming_bytes);
        if (got == net::would_block) {
            return Outcome::fine;
        }
        if (got <= 0) {
            trouble = zmtp_.ready() ? "the connection was lost"
                                     : "a program there ends the connection before the ZeroMQ handshake; it may ask for keys, "
                                       "which this client lacks: use an SSH tunnel";
            return Outcome::lost;
        }
        arrived_ += static_cast<std::size_t>(got);
        if (direct) {
            const Outcome outcome = step(zmtp_.filled(static_cast<std::size_t>(got)));
            if (outcome != Outcome::fine) {
                return outcome;
            }
        } else {
            incoming_at_ = 0;
            incoming_end_ = static_cast<std::size_t>(got);
        }
    }
    return Outcome::fine;
}

} // namespace animegamer
