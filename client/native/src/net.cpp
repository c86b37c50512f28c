#include "net.h"

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

#ifdef _WIN32
#include <winsock2.h>
#include <ws2tcpip.h>
#else
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#endif

namespace animegamer::net {

namespace {

#ifdef _WIN32
using Native = SOCKET;
using Length = int;
constexpr int send_flags = 0;
int last_error() { return WSAGetLastError(); }
bool is_would_block(int error) { return error == WSAEWOULDBLOCK; }
bool in_progress(int error) { return error == WSAEWOULDBLOCK || error == WSAEINPROGRESS; }
Native native(Socket socket) { return static_cast<Native>(socket); }
void no_waiting(Native socket) {
    u_long on = 1;
    ioctlsocket(socket, FIONBIO, &on);
}

struct Winsock { // ended by the system with the process: other parts of a game may use it still
    Winsock() {
        WSADATA data;
        WSAStartup(MAKEWORD(2, 2), &data);
    }
};
void start() { static const Winsock winsock; }
#else
using Native = int;
using Length = std::size_t;
#ifdef MSG_NOSIGNAL
constexpr int send_flags = MSG_NOSIGNAL;
#else
constexpr int send_flags = 0;
#endif
int last_error() { return errno; }
bool is_would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }
bool in_progress(int error) { return error == EINPROGRESS || error == EINTR; }
Native native(Socket socket) { return static_cast<Native>(socket); }
void no_waiting(Native socket) {
    fcntl(socket, F_SETFL, fcntl(socket, F_GETFL, 0) | O_NONBLOCK);
    fcntl(socket, F_SETFD, FD_CLOEXEC);
}
void start() {}
#endif

std::string text_of(int error) { return std::system_category().message(error); }

void set(Native socket, int level, int option, int value) {
    setsockopt(socket, level, option, reinterpret_cast<const char *>(&value), sizeof value);
}

} // namespace

Socket connect(const std::string &host, std::uint16_t port, std::string &trouble) {
    start();
    addrinfo hints{};
    hints.ai_family = host.find(':') == std::string::npos ? AF_INET : AF_INET6;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo *found = nullptr;
    const std::string name = host == "localhost" ? "127.0.0.1" : host;
    if (getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found) != 0 || found == nullptr) {
        trouble = "the name " + host + " is not known";
        return no_socket;
    }
    const Native made = ::socket(found->ai_family, found->ai_socktype, found->ai_protocol);
    const auto socket = static_cast<Socket>(made);
    if (socket == no_socket) {
        trouble = text_of(last_error());
        freeaddrinfo(found);
        return no_socket;
    }
    no_waiting(made);
    set(made, IPPROTO_TCP, TCP_NODELAY, 1);
    set(made, SOL_SOCKET, SO_KEEPALIVE, 1);
#ifdef SO_NOSIGPIPE
    set(made, SOL_SOCKET, SO_NOSIGPIPE, 1);
#endif
    const int result = ::connect(made, found->ai_addr, static_cast<socklen_t>(found->ai_addrlen));
    const int error = result == 0 ? 0 : last_error();
    freeaddrinfo(found);
    if (result != 0 && !in_progress(error)) {
        trouble = text_of(error);
        close(socket);
        return no_socket;
    }
    return socket;
}

bool connected(Socket socket, std::string &trouble) {
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(native(socket), SOL_SOCKET, SO_ERROR, reinterpret_cast<char *>(&error), &size) != 0) {
        error = last_error();
    }
    if (error != 0) {
        trouble = text_of(error);
    }
    return error == 0;
}

std::ptrdiff_t receive(Socket socket, void *data, std::size_t size) {
    const auto got = ::recv(native(socket), static_cast<char *>(data), static_cast<Length>(size), 0);
    if (got >= 0) {
        return static_cast<std::ptrdiff_t>(got);
    }
    return is_would_block(last_error()) ? would_block : failed;
}

std::ptrdiff_t send(Socket socket, const void *data, std::size_t size) {
    const auto sent = ::send(native(socket), static_cast<const char *>(data), static_cast<Length>(size), send_flags);
    if (sent >= 0) {
        return static_cast<std::ptrdiff_t>(sent);
    }
    return is_would_block(last_error()) ? would_block : failed;
}

void close(Socket socket) {
    if (socket == no_socket) {
        return;
    }
#ifdef _WIN32
    closesocket(native(socket));
#else
    ::close(native(socket));
#endif
}

#ifdef _WIN32

// Winsock has no pipes that can be waited for: a datagram to itself ends the wait.
Waker::Waker() {
    start();
    const Native made = ::socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in self{};
    self.sin_family = AF_INET;
    self.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof self;
    if (made == INVALID_SOCKET || ::bind(made, reinterpret_cast<sockaddr *>(&self), sizeof self) != 0 ||
        getsockname(made, reinterpret_cast<sockaddr *>(&self), &size) != 0 ||
        ::connect(made, reinterpret_cast<sockaddr *>(&self), sizeof self) != 0) {
        throw std::runtime_error("no loopback socket: " + text_of(last_error()));
    }
    no_waiting(made);
    read_ = write_ = static_cast<Socket>(made);
}

Waker::~Waker() { close(read_); }

void Waker::wake() { send(write_, "w", 1); }

void Waker::clear() {
    char bytes[64];
    while (receive(read_, bytes, sizeof bytes) > 0) {
    }
}

// WSAPoll does not report a refused connection before Windows 10 2004, `select` does.
void wait(Watched *watched, std::size_t count, int timeout_ms) {
    fd_set read, write, fault;
    FD_ZERO(&read);
    FD_ZERO(&write);
    FD_ZERO(&fault);
    for (std::size_t n = 0; n < count; ++n) {
        watched[n].can_read = watched[n].can_write = false;
        if (watched[n].socket == no_socket) {
            continue;
        }
        if (watched[n].want_read) {
            FD_SET(native(watched[n].socket), &read);
        }
        if (watched[n].want_write) {
            FD_SET(native(watched[n].socket), &write);
        }
        FD_SET(native(watched[n].socket), &fault);
    }
    timeval time{timeout_ms / 1000, 1000 * (timeout_ms % 1000)};
    if (::select(0, &read, &write, &fault, &time) <= 0) {
        return;
    }
    for (std::size_t n = 0; n < count; ++n) {
        if (watched[n].socket != no_socket) {
            const bool wrong = FD_ISSET(native(watched[n].socket), &fault) != 0;
            watched[n].can_read = wrong || FD_ISSET(native(watched[n].socket), &read) != 0;
            watched[n].can_write = wrong || FD_ISSET(native(watched[n].socket), &write) != 0;
        }
    }
}

#else

Waker::Waker() {
    int ends[2] = {-1, -1};
    if (pipe(ends) != 0) {
        throw std::runtime_error("no pipe: " + text_of(last_error()));
    }
    no_waiting(ends[0]);
    no_waiting(ends[1]);
    read_ = ends[0];
    write_ = ends[1];
}

Waker::~Waker() {
    close(read_);
    close(write_);
}

void Waker::wake() {
    // A full pipe wakes as well.
    [[maybe_unused]] const auto written = ::write(native(write_), "w", 1);
}

void Waker::clear() {
    char bytes[64];
    while (::read(native(read_), bytes, sizeof bytes) > 0) {
    }
}

void wait(Watched *watched, std::size_t count, int timeout_ms) {
    constexpr std::size_t most = 4;
    pollfd polled[most] = {};
    const std::size_t used = count < most ? count : most;
    for (std::size_t n = 0; n < used; ++n) {
        watched[n].can_read = watched[n].can_write = false;
        const int events = (watched[n].want_read ? POLLIN : 0) | (watched[n].want_write ? POLLOUT : 0);
        // A socket that nothing is wanted of is left out: poll would report its end again and again.
        polled[n].fd = events == 0 ? -1 : native(watched[n].socket);
        polled[n].events = static_cast<short>(events);
    }
    if (::poll(polled, static_cast<nfds_t>(used), timeout_ms) <= 0) {
        return;
    }
    for (std::size_t n = 0; n < used; ++n) {
        const bool wrong = (polled[n].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
        watched[n].can_read = wrong || (polled[n].revents & POLLIN) != 0;
        watched[n].can_write = wrong || (polled[n].revents & POLLOUT) != 0;
    }
}

#endif

} // namespace animegamer::net
