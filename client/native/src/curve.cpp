#include "curve.h"

#include <cstring>

#ifdef ANIMEGAMER_CURVE
#include <sodium.h>

#include <stdexcept>
#endif

namespace animegamer {

bool read_z85(std::string_view text, Key &key) {
    static constexpr std::string_view digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
    if (text.size() != 40) {
        return false;
    }
    for (std::size_t group = 0; group < 8; ++group) {
        std::uint64_t value = 0;
        for (const char character : text.substr(5 * group, 5)) {
            const auto digit = digits.find(character);
            if (digit == std::string_view::npos) {
                return false;
            }
            value = 85 * value + digit;
        }
        if (value > 0xffffffff) {
            return false;
        }
        for (std::size_t n = 0; n < 4; ++n) {
            key[4 * group + n] = static_cast<std::uint8_t>(value >> (24 - 8 * n));
        }
    }
    return true;
}

#ifdef ANIMEGAMER_CURVE

namespace {

static_assert(crypto_box_PUBLICKEYBYTES == 32 && crypto_box_SECRETKEYBYTES == 32 && crypto_box_MACBYTES == 16 && crypto_box_NONCEBYTES == 24);
constexpr std::size_t tag_bytes = 16, short_nonce_bytes = 8, long_nonce_bytes = 16, cookie_bytes = 96;
constexpr std::string_view message_name("\x07MESSAGE", 8), welcome_name("\x07WELCOME", 8), ready_name("\x05READY", 6);

const std::uint8_t *bytes_of(std::string_view text) { return reinterpret_cast<const std::uint8_t *>(text.data()); }

struct Nonce {
    Nonce(const char *prefix, std::string_view rest) {
        const std::size_t length = sizeof bytes - rest.size();
        std::memcpy(bytes, prefix, length);
        std::memcpy(bytes + length, rest.data(), rest.size());
    }
    std::uint8_t bytes[24];
};

std::string random_bytes(std::size_t count) {
    std::string bytes(count, '\0');
    randombytes_buf(bytes.data(), count);
    return bytes;
}

class Sodium final : public Curve {
public:
    explicit Sodium(const CurveKeys &keys) : server_(keys.server), secret_(keys.secret) {
        crypto_scalarmult_base(public_.data(), secret_.data());
    }
    ~Sodium() override {
        sodium_memzero(secret_.data(), secret_.size());
        sodium_memzero(own_secret_.data(), own_secret_.size());
        sodium_memzero(shared_.data(), shared_.size());
    }
    Sodium(const Sodium &) = delete;
    Sodium &operator=(const Sodium &) = delete;

    std::string hello() override {
        crypto_box_keypair(own_public_.data(), own_secret_.data());
        sent_ = received_ = 0;
        const auto nonce = next_nonce();
        std::string command("\x05HELLO\x01\0", 8);
        command.append(72, '\0'); // as long as WELCOME, so that nobody can use the server to send more than he did
        command.append(text_of(own_public_)).append(nonce);
        return command.append(box(std::string(64, '\0'), Nonce("CurveZMQHELLO---", nonce), server_, own_secret_));
    }

    std::string initiate(std::string_view welcome, std::string_view metadata) override {
        std::string plain;
        if (welcome.size() != welcome_name.size() + long_nonce_bytes + tag_bytes + 32 + cookie_bytes || welcome.substr(0, 8) != welcome_name ||
            !open_box(welcome.substr(24), Nonce("WELCOME-", welcome.substr(8, long_nonce_bytes)), server_, own_secret_, plain)) {
            return {};
        }
        Key server_own;
        std::memcpy(server_own.data(), plain.data(), server_own.size());
        if (crypto_box_beforenm(shared_.data(), server_own.data(), own_secret_.data()) != 0) {
            return {};
        }
        const std::string vouch_nonce = random_bytes(long_nonce_bytes), nonce = next_nonce();
        const std::string vouch = box(text_of(own_public_) + text_of(server_), Nonce("VOUCH---", vouch_nonce), server_own, secret_);
        std::string inner = text_of(public_) + vouch_nonce + vouch;
        inner.append(metadata);
        std::string command("\x08INITIATE", 9);
        command.append(plain, 32, cookie_bytes).append(nonce);
        return command.append(box(inner, Nonce("CurveZMQINITIATE", nonce), server_own, own_secret_));
    }

    bool ready(std::string_view command, std::string &metadata) override {
        if (command.size() < ready_name.size() + short_nonce_bytes + tag_bytes || command.substr(0, 6) != ready_name) {
            return false;
        }
        const auto nonce = command.substr(6, short_nonce_bytes), sealed = command.substr(14);
        metadata.assign(sealed.size() - tag_bytes, '\0');
        return newer(nonce) && crypto_box_open_easy_afternm(reinterpret_cast<std::uint8_t *>(metadata.data()), bytes_of(sealed), sealed.size(),
                                                            Nonce("CurveZMQREADY---", nonce).bytes, shared_.data()) == 0;
    }

    void seal(std::uint8_t flags, std::string_view data, std::string &to) override {
        const auto nonce = next_nonce();
        to.append(message_name).append(nonce);
        const std::size_t tag = to.size();
        to.append(tag_bytes, '\0');
        to.push_back(static_cast<char>(flags));
        to.append(data);
        auto *const at = reinterpret_cast<std::uint8_t *>(to.data()) + tag;
        crypto_box_detached_afternm(at + tag_bytes, at, at + tag_bytes, data.size() + 1, Nonce("CurveZMQMESSAGEC", nonce).bytes,
                                    shared_.data());
    }

    bool open(std::uint8_t *message, std::size_t size, std::uint8_t &flags) override {
        const std::string_view text(reinterpret_cast<const char *>(message), size);
        if (size < overhead || text.substr(0, 8) != message_name) {
            return false;
        }
        const auto nonce = text.substr(8, short_nonce_bytes);
        std::uint8_t *const tag = message + 16, *const data = tag + tag_bytes;
        if (!newer(nonce) || crypto_box_open_detached_afternm(data, data, tag, size - 32, Nonce("CurveZMQMESSAGES", nonce).bytes,
                                                              shared_.data()) != 0) {
            return false;
        }
        flags = *data;
        return true;
    }

private:
    static std::string text_of(const Key &key) { return {reinterpret_cast<const char *>(key.data()), key.size()}; }

    static std::string box(const std::string &data, const Nonce &nonce, const Key &to, const Key &from) {
        std::string sealed(data.size() + tag_bytes, '\0');
        if (crypto_box_easy(reinterpret_cast<std::uint8_t *>(sealed.data()), bytes_of(data), data.size(), nonce.bytes, to.data(),
                            from.data()) != 0) {
            sealed.clear(); // a key that is none: the server will refuse it
        }
        return sealed;
    }

    static bool open_box(std::string_view sealed, const Nonce &nonce, const Key &from, const Key &to, std::string &data) {
        data.assign(sealed.size() - tag_bytes, '\0');
        return crypto_box_open_easy(reinterpret_cast<std::uint8_t *>(data.data()), bytes_of(sealed), sealed.size(), nonce.bytes, from.data(),
                                    to.data()) == 0;
    }

    std::string next_nonce() {
        ++sent_;
        std::string nonce;
        for (int shift = 56; shift >= 0; shift -= 8) {
            nonce.push_back(static_cast<char>(sent_ >> shift));
        }
        return nonce;
    }

    /// Whether the server's short nonce is above the one before, as each must be.
    bool newer(std::string_view nonce) {
        std::uint64_t value = 0;
        for (const char byte : nonce) {
            value = value << 8 | static_cast<std::uint8_t>(byte);
        }
        const bool good = value > received_;
        received_ = value;
        return good;
    }

    Key server_, secret_, public_{};                    // that last
    Key own_public_{}, own_secret_{}, shared_{};        // of the connection
    std::uint64_t sent_ = 0, received_ = 0;             // the last nonces
};

} // namespace

bool Curve::available() { return true; }

std::unique_ptr<Curve> Curve::make(const CurveKeys &keys) {
    if (sodium_init() < 0) {
        throw std::runtime_error("libsodium does not start: the system has no source of random numbers");
    }
    return std::make_unique<Sodium>(keys);
}

#else

bool Curve::available() { return false; }

std::unique_ptr<Curve> Curve::make(const CurveKeys &) { return nullptr; }

#endif

} // namespace animegamer
