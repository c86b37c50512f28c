// CurveZMQ (RFC 26), the client's side: commands of the handshake, and messages sealed and opened. Needs libsodium.
//
// Knows no frames and no sockets. Without ANIMEGAMER_CURVE there is none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace animegamer {

using Key = std::array<std::uint8_t, 32>;

struct CurveKeys {
    Key server{}, secret{}; // the server's public key, the client's secret one
};

/// Read a key from 40 characters of Z85. Returns false if it is none.
bool read_z85(std::string_view text, Key &key);

class Curve {
public:
    static constexpr std::size_t overhead = 33; // bytes of a sealed message before its data

    virtual ~Curve() = default;
    /// Whether this library was built with keys.
    static bool available();
    /// Throws std::runtime_error if there is no source of random numbers.
    static std::unique_ptr<Curve> make(const CurveKeys &keys);

    /// HELLO of a new connection, with new keys of its own.
    virtual std::string hello() = 0;
    /// INITIATE, the answer to WELCOME; empty if that is not from the server of this key.
    virtual std::string initiate(std::string_view welcome, std::string_view metadata) = 0;
    /// Read READY; `metadata` is then the server's. Returns false if it is not from the server of this key.
    virtual bool ready(std::string_view command, std::string &metadata) = 0;
    /// Append a sealed message: `overhead` and the data. flags: 1, more to follow; 2, a command.
    virtual void seal(std::uint8_t flags, std::string_view data, std::string &to) = 0;
    /// Open a sealed message in place: its data is then after `overhead` bytes. Returns false if it was changed on its way.
    virtual bool open(std::uint8_t *message, std::size_t size, std::uint8_t &flags) = 0;
};

} // namespace animegamer
