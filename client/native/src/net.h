// TCP sockets that never block, a wait for several of them, and a way to end that wait: POSIX or Winsock.
//
// The only file that knows the operating system. Nothing here knows ZeroMQ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace animegamer::net {

using Socket = std::intptr_t;
constexpr Socket no_socket = -1;

/// What a transfer came to, where no bytes moved.
constexpr std::ptrdiff_t would_block = -1, failed = -2;

/// Begin to connect; `trouble` says why there is no socket. A HOST that is no number asks the system's resolver, which may wait.
Socket connect(const std::string &host, std::uint16_t port, std::string &trouble);
/// Once writable: whether the connection stands; `trouble` says why not.
bool connected(Socket socket, std::string &trouble);
/// Bytes received, 0 at the end of the stream, `would_block` or `failed`.
std::ptrdiff_t receive(Socket socket, void *data, std::size_t size);
std::ptrdiff_t send(Socket socket, const void *data, std::size_t size);
void close(Socket socket);

struct Watched {
    Socket socket = no_socket;
    bool want_read = false, want_write = false;
    bool can_read = false, can_write = false; // set by `wait`; an error sets both
};

/// Ends a `wait` from another thread.
class Waker {
public:
    Waker(); // throws std::runtime_error
    ~Waker();
    Waker(const Waker &) = delete;
    Waker &operator=(const Waker &) = delete;

    void wake();
    void clear();
    Socket socket() const { return read_; }

private:
    Socket read_ = no_socket, write_ = no_socket;
};

/// Wait until one of the sockets can do what is wanted of it, or `timeout_ms` is over. Unused ones have `no_socket`.
void wait(Watched *watched, std::size_t count, int timeout_ms);

} // namespace animegamer::net
