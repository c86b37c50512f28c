// A server of a few lines that misbehaves on purpose: cuts, drips, drops and changes what it sends. POSIX only.
#pragma once

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "message.h"

/// Two adjacent ports; `serve(socket, connection)` runs for each connection to the first, on a thread of its own.
class Ports {
public:
    using Serve = std::function<void(int socket, int connection)>;

    explicit Ports(Serve serve) : serve_(std::move(serve)) {
        while (listeners_.size() < 2) {
            for (const int listener : listeners_) {
                ::close(listener);
            }
            listeners_.clear();
            port = 0;
            for (int n = 0; n < 2; ++n) {
                const int listener = socket(AF_INET, SOCK_STREAM, 0);
                sockaddr_in at{};
                at.sin_family = AF_INET;
                at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
                at.sin_port = htons(static_cast<std::uint16_t>(port == 0 ? 0 : port + 1));
                socklen_t size = sizeof at;
                if (bind(listener, reinterpret_cast<sockaddr *>(&at), sizeof at) != 0 || listen(listener, 16) != 0) {
                    ::close(listener);
                    break;
                }
                getsockname(listener, reinterpret_cast<sockaddr *>(&at), &size);
                port = port == 0 ? ntohs(at.sin_port) : port;
                listeners_.push_back(listener);
            }
        }
        acceptor_ = std::thread([this] { accept_all(); });
    }
    ~Ports() {
        stop = true;
        acceptor_.join();
        for (auto &thread : threads_) {
            thread.join();
        }
        for (const int listener : listeners_) {
            ::close(listener);
        }
    }
    Ports(const Ports &) = delete;
    Ports &operator=(const Ports &) = delete;

    std::string address() const { return "tcp://127.0.0.1:" + std::to_string(port); }

    int port = 0;
    std::atomic<bool> stop{false};
    std::atomic<int> connections{0};

private:
    void accept_all() {
        while (!stop) {
            pollfd waiting{listeners_[0], POLLIN, 0};
            if (poll(&waiting, 1, 5) == 1) {
                const int taken = accept(listeners_[0], nullptr, nullptr);
                const int connection = connections++;
                threads_.emplace_back([this, taken, connection] {
                    serve_(taken, connection);
                    ::close(taken);
                });
            }
        }
    }

    Serve serve_;
    std::vector<int> listeners_;
    std::thread acceptor_;
    std::vector<std::thread> threads_;
};

inline bool send_all(int socket, const std::string &bytes) {
    return ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

inline std::string router_greeting() {
    std::string bytes("\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01NULL", 16);
    bytes.append(48, '\0');
    bytes += std::string("\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06ROUTER", 30);
    return bytes;
}

inline std::string part(const std::string &data, bool last) {
    std::string bytes;
    if (data.size() < 256) {
        bytes = {static_cast<char>(last ? 0 : 1), static_cast<char>(data.size())};
    } else {
        bytes = static_cast<char>(last ? 2 : 3);
        for (int shift = 56; shift >= 0; shift -= 8) {
            bytes += static_cast<char>(static_cast<std::uint64_t>(data.size()) >> shift & 255);
        }
    }
    return bytes + data;
}

/// How a GameServer misbehaves. `change` is given all that is sent on a connection, a piece at a time, and its offset.
struct Faults {
    long cut_after = -1;            // bytes of the first connection; then it is closed
    std::set<std::int64_t> dropped; // events of these numbers are not sent by `turn`, but by `replay`
    std::size_t drip = 0;           // bytes at a time, 1 ms apart; 0: all at once
    std::function<void(std::string &bytes, long offset)> change;
    std::size_t picture_bytes = 16;
    bool ping = false; // a ZMTP PING before each answer
};

/// Speaks the protocol well enough for a turn of 17 pictures, with faults. One connection at a time.
class GameServer {
public:
    static constexpr std::int64_t events = 22; // accepted, state, two of progress, 17 frames, done

    explicit GameServer(Faults faults) : faults_(std::move(faults)), ports_([this](int socket, int connection) { serve(socket, connection); }) {}
    std::string address() const { return ports_.address(); }

    std::atomic<int> pongs{0};

private:
    struct Wire {
        int socket, connection;
        long sent = 0;
    };

    bool put(Wire &wire, std::string bytes) {
        if (faults_.change) {
            faults_.change(bytes, wire.sent);
        }
        if (wire.connection == 0 && faults_.cut_after >= 0 && wire.sent + static_cast<long>(bytes.size()) > faults_.cut_after) {
            send_all(wire.socket, bytes.substr(0, static_cast<std::size_t>(faults_.cut_after - wire.sent)));
            return false;
        }
        wire.sent += static_cast<long>(bytes.size());
        for (std::size_t at = 0; faults_.drip != 0 && at < bytes.size(); at += faults_.drip) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            if (!send_all(wire.socket, bytes.substr(at, faults_.drip))) {
                return false;
            }
        }
        return faults_.drip != 0 || send_all(wire.socket, bytes);
    }

    bool get(int socket, std::string &bytes, std::size_t size) {
        bytes.assign(size, '\0');
        std::size_t got = 0;
        while (got < size) {
            pollfd waiting{socket, POLLIN, 0};
            if (ports_.stop || (poll(&waiting, 1, 20) == 1 && waiting.revents == 0)) {
                return false;
            }
            if ((waiting.revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
                const auto now = ::recv(socket, bytes.data() + got, size - got, 0);
                if (now <= 0) {
                    return false;
                }
                got += static_cast<std::size_t>(now);
            }
        }
        return true;
    }

    void serve(int socket, int connection) {
        Wire wire{socket, connection};
        std::string bytes;
        if (!put(wire, router_greeting()) || !get(socket, bytes, 107)) {
            return;
        }
        animegamer::Tree tree;
        animegamer::Header header;
        while (get(socket, bytes, 2)) {
            const int flags = bytes[0];
            std::size_t size = static_cast<std::uint8_t>(bytes[1]);
            if ((flags & 2) != 0) {
                const std::string first = bytes.substr(1);
                if (!get(socket, bytes, 7)) {
                    return;
                }
                size = 0;
                for (const char byte : first + bytes) {
                    size = size << 8 | static_cast<std::uint8_t>(byte);
                }
            }
            if (!get(socket, bytes, size)) {
                return;
            }
            if ((flags & 4) != 0) {
                pongs += bytes == "\x04PONGabc";
                continue;
            }
            if ((flags & 1) == 0) {
                const auto fault = animegamer::read_header(reinterpret_cast<const std::uint8_t *>(bytes.data()), bytes.size(), tree, header);
                if (fault || !answer(wire, tree, header)) {
                    return;
                }
            }
        }
    }

    bool answer(Wire &wire, const animegamer::Tree &tree, const animegamer::Header &header) {
        if (faults_.ping && !put(wire, std::string("\x04\x0a\x04PING\0\0abc", 12))) {
            return false;
        }
        const std::string parent(header.parent.empty() ? header.id : header.parent);
        if (header.type == "hello") {
            return put(wire, message("welcome", parent, -1, welcome(), ""));
        }
        if (header.type == "open") {
            return put(wire, message("opened", parent, -1, opened(), ""));
        }
        if (header.type == "ping") {
            return put(wire, message("pong", parent, -1, {}, ""));
        }
        if (header.type == "list") {
            return put(wire, message("listed", parent, -1, listed(), ""));
        }
        if (header.type == "turn" || header.type == "replay") {
            const auto at = tree.find(header.fields, "after_seq");
            const std::int64_t after = at == animegamer::Tree::none ? -1 : tree.at(at).integer;
            for (std::int64_t seq = std::min(after + 1, events - 1); seq < events; ++seq) {
                const bool dropped = header.type == "turn" && faults_.dropped.count(seq) != 0;
                if (!dropped && !put(wire, event(parent, seq))) {
                    return false;
                }
            }
        }
        return true;
    }

    using Write = std::function<void(animegamer::Writer &)>;

    static std::string message(const char *type, const std::string &parent, std::int64_t seq, const Write &fields, const std::string &buffer) {
        animegamer::Writer header;
        header.map(static_cast<std::size_t>(3 + (seq >= 0 ? 2 : 0) + (fields ? 1 : 0)));
        for (const auto &[key, value] : {std::pair<std::string, std::string>{"type", type}, {"parent", parent}, {"session", "s1"}}) {
            header.text(key);
            header.text(value);
        }
        if (seq >= 0) {
            header.text("turn");
            header.integer(1);
            header.text("seq");
            header.integer(seq);
        }
        if (fields) {
            header.text("fields");
            fields(header);
        }
        const bool last = buffer.empty();
        return part(std::string("AGRT\x01"), false) + part(header.bytes, last) + (last ? "" : part(buffer, true));
    }

    static void whole(animegamer::Writer &to, std::initializer_list<std::pair<const char *, std::int64_t>> values) {
        for (const auto &[key, value] : values) {
            to.text(key);
            to.integer(value);
        }
    }

    static void words(animegamer::Writer &to, std::initializer_list<std::pair<const char *, const char *>> values) {
        for (const auto &[key, value] : values) {
            to.text(key);
            to.text(value);
        }
    }

    static void character(animegamer::Writer &to, const char *name) {
        to.text(name);
        to.map(3);
        whole(to, {{"stamina", 50}, {"social", 55}, {"entertainment", 45}});
    }

    static Write listed() {
        return [](animegamer::Writer &to) {
            to.map(2);
            to.text("turns");
            to.list(0);
            to.text("more");
            to.flag(false);
        };
    }

    static Write welcome() {
        return [](animegamer::Writer &to) {
            to.map(7);
            whole(to, {{"version", 1}});
            words(to, {{"server", "scripted 1"}, {"protocol", "1.0"}, {"state", "ready"}});
            to.text("bundle");
            to.map(8);
            words(to, {{"name", "none"}, {"fingerprint", "f"}, {"plan", "p"}});
            whole(to, {{"height", 2}, {"width", 2}, {"frames", 17}, {"fps", 8}});
            to.text("random_weights");
            to.flag(true);
            to.text("capabilities");
            to.list(0);
            to.text("limits");
            to.map(5);
            whole(to, {{"text_characters", 100}, {"header_bytes", 1000}, {"turns_a_minute", 0}, {"sessions", 0}, {"queue", 4}});
        };
    }

    static Write opened() {
        return [](animegamer::Writer &to) {
            to.map(5);
            words(to, {{"token", "t1"}});
            whole(to, {{"seed", 3}, {"history_turns", 4}, {"turns", 0}});
            character(to, "character");
        };
    }

    std::string event(const std::string &parent, std::int64_t seq) const {
        if (seq == 0) {
            return message("accepted", parent, seq, [](animegamer::Writer &to) {
                to.map(5);
                words(to, {{"turn_id", "x"}, {"instruction", "y"}});
                whole(to, {{"place", 0}, {"estimate_s", 1}});
                to.text("replayed");
                to.flag(false);
            }, "");
        }
        if (seq == 1) {
            return message("state", parent, seq, [](animegamer::Writer &to) {
                to.map(7);
                whole(to, {{"motion_level", 1}, {"social", 1}, {"entertainment", -1}, {"stamina", 0}, {"motion_scope", 2}});
                character(to, "character");
                character(to, "shown");
            }, "");
        }
        if (seq < 4) {
            return message("progress", parent, seq, [](animegamer::Writer &to) {
                to.map(3);
                whole(to, {{"step", 1}, {"steps", 2}, {"seconds_left", 1}});
            }, "");
        }
        if (seq < events - 1) {
            const auto height = static_cast<std::int64_t>(faults_.picture_bytes / 8);
            return message("frame", parent, seq, [&](animegamer::Writer &to) {
                to.map(8);
                whole(to, {{"index", seq - 4}, {"count", 17}, {"width", 2}, {"height", height}, {"stride", 8}});
                words(to, {{"dtype", "uint8"}, {"pixel_format", "rgba32"}, {"codec", "raw"}});
            }, std::string(faults_.picture_bytes, static_cast<char>(seq)));
        }
        return message("done", parent, seq, [](animegamer::Writer &to) {
            to.map(2);
            to.text("seconds");
            to.map(5);
            whole(to, {{"queue", 0}, {"predictor", 0}, {"denoiser", 0}, {"vae", 0}, {"total", 0}});
            whole(to, {{"turns", 1}});
        }, "");
    }

    const Faults faults_;
    Ports ports_; // last: its threads use the rest
};
