// The keys for a server on another machine. It knows nothing of Unreal.
#pragma once

#include <string>

namespace animegamer_unreal {

/// The server's public key and the client's secret one, each 40 characters of Z85; both empty for a server without keys.
struct Keys {
    std::string server, secret;
    bool given() const { return !server.empty() || !secret.empty(); }
};

/// The secret key in the text of a file NAME.key_secret, as `animegamer-rt keys new NAME` writes it; empty if there is none.
inline std::string secret_key_of(const std::string &text) {
    const std::string name = "secret-key = \"";
    const auto at = text.find(name);
    return at == std::string::npos ? std::string() : text.substr(at + name.size(), 40);
}

} // namespace animegamer_unreal
