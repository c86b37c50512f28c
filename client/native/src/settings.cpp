// The options of a client: checked before a thread is started.
#include <string>

#include "client.h"
#include "last_error.h"

namespace animegamer {

namespace {

bool parse_address(const char *text, Settings &settings) {
    std::string address = text;
    if (address.rfind("tcp://", 0) == 0) {
        address.erase(0, 6);
    }
    const auto colon = address.rfind(':');
    if (colon == std::string::npos || colon == 0 || address.size() - colon > 6 || address.size() - colon < 2) {
        return false;
    }
    std::uint32_t port = 0;
    for (std::size_t n = colon + 1; n < address.size(); ++n) {
        if (address[n] < '0' || address[n] > '9') {
            return false;
        }
        port = 10 * port + static_cast<std::uint32_t>(address[n] - '0');
    }
    std::string host = address.substr(0, colon);
    const std::string shown = host;
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
        host = host.substr(1, host.size() - 2);
    }
    if (port < 1 || port > 65534 || host.find_first_of("/[] ") != std::string::npos) {
        return false;
    }
    settings.turns = {host, "tcp://" + shown + ":" + std::to_string(port), static_cast<std::uint16_t>(port)};
    settings.control = {host, "tcp://" + shown + ":" + std::to_string(port + 1), static_cast<std::uint16_t>(port + 1)};
    return true;
}

} // namespace

ag_result read_options(const ag_options &given, Settings &settings) {
    static constexpr const char *formats[] = {"rgba32", "bgra32", "rgb24"};
    static constexpr const char *codecs[] = {"raw", "jpeg"};
    if (given.address == nullptr || !parse_address(given.address, settings)) {
        return invalid((std::string(given.address == nullptr ? "NULL" : given.address) + " is not the address of a server").c_str(),
                       "give tcp://HOST:PORT, as in tcp://127.0.0.1:5570");
    }
    if (!(given.timeout_s > 0.0) || !(given.timeout_s <= 86400.0)) {
        return invalid("timeout_s is not within its bounds", "give seconds, more than 0 and at most 86400");
    }
    const int format = static_cast<int>(given.pixel_format), codec = static_cast<int>(given.codec);
    if (format < 0 || format > 2 || codec < 0 || codec > 1) {
        return invalid("pixel_format or codec has no such value", "use AG_RGBA32, AG_BGRA32 or AG_RGB24; and AG_RAW or AG_JPEG");
    }
    if (given.jpeg_quality < 1 || given.jpeg_quality > 100) {
        return invalid("jpeg_quality is not within 1..100", "give 1..100");
    }
    settings.timeout_s = given.timeout_s;
    settings.hello.integers("versions", {1})
        .text("client", "animegamer-client (native)")
        .text("pixel_format", formats[format])
        .flag("flip", given.flip != 0)
        .text("codec", codecs[codec])
        .integer("jpeg_quality", given.jpeg_quality)
        .flag("clip", false)
        .integer("minor", protocol_minor);
    return AG_OK;
}

} // namespace animegamer
