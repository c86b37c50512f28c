// Decodes the messages on standard input, one a line: who sends it, then its frames in hex ("c0*3": these bytes three times).
// Answers `refused CODE`, or `read` and the header written again in hex; a client's as this library sends it.
#include <iostream>

#include "message_reader.h"
#include "unhex.h"
#include "zmtp.h"

using namespace animegamer;

namespace {

void write(Writer &to, const Tree &tree, std::uint32_t at) {
    const Node &node = tree.at(at);
    switch (node.kind) {
    case Kind::nil: to.nil(); return;
    case Kind::flag: to.flag(node.integer != 0); return;
    case Kind::integer: to.integer(node.integer); return;
    case Kind::number: to.number(node.number); return;
    case Kind::text: to.text(node.text); return;
    case Kind::binary: to.binary(node.text); return;
    case Kind::list: to.list(static_cast<std::size_t>(node.integer)); break;
    case Kind::map: to.map(static_cast<std::size_t>(node.integer)); break;
    }
    for (std::uint32_t item = at + 1; item < node.end; item = tree.at(item).end) {
        write(to, tree, item);
    }
}

/// A client's message through what this library sends its requests with.
std::string as_request(const Header &header, const Tree &tree) {
    Request request{std::string(header.type)};
    request.session(std::string(header.session)).turn(header.turn);
    const std::uint32_t end = tree.at(header.fields).end;
    for (std::uint32_t key = header.fields + 1; key < end; key = tree.at(key + 1).end) {
        const std::string name(tree.at(key).text);
        const Node &value = tree.at(key + 1);
        switch (value.kind) {
        case Kind::text: request.text(name.c_str(), value.text); break;
        case Kind::integer: request.integer(name.c_str(), value.integer); break;
        case Kind::number: request.number(name.c_str(), value.number); break;
        case Kind::flag: request.flag(name.c_str(), value.integer != 0); break;
        default:
            if (name == "versions" && value.integer == 1) {
                request.integers("versions", {tree.at(key + 2).integer});
            } else if (name == "versions") {
                request.integers("versions", {tree.at(key + 2).integer, tree.at(key + 3).integer});
            } else if (name == "instructions") {
                std::vector<std::string> texts;
                std::vector<const char *> pointers;
                for (std::uint32_t item = key + 2; item < tree.at(key + 1).end; item = tree.at(item).end) {
                    texts.emplace_back(tree.at(item).text);
                }
                for (const auto &text : texts) {
                    pointers.push_back(text.c_str());
                }
                request.texts("instructions", pointers.data(), pointers.size());
            }
        }
    }
    return request.header(header.id);
}

/// Takes one message as it comes out of ZMTP.
struct Taker : MessageOwner {
    PartReceiver::Place place_buffer(const Header &, std::size_t size) override {
        buffer.resize(size);
        PartReceiver::Place place;
        place.memory = reinterpret_cast<std::uint8_t *>(buffer.data());
        return place;
    }
    Fault message(const Header &header, const Tree &tree, std::size_t) override {
        Writer again;
        write(again, tree, 0);
        const bool is_request = from_client && header.fields != Tree::none && !header.id.empty();
        line = "read " + hex(is_request ? as_request(header, tree) : again.bytes);
        return {};
    }
    bool from_client = false;
    std::string line, buffer;
};

/// The frames as a peer sends them, so many bytes at a time.
std::string answer(const std::vector<std::string> &frames, bool from_client, std::size_t at_a_time) {
    Taker taker;
    taker.from_client = from_client;
    MessageReader reader(taker, from_client ? Limits{65536, 0} : Limits{});
    Zmtp zmtp(reader);
    zmtp.restart();
    std::string bytes = zmtp.outgoing;
    const std::string dealer = std::string("\x06") + "DEALER", router("\x06ROUTER");
    bytes.replace(bytes.find(dealer), dealer.size(), router);
    zmtp.outgoing.clear();
    for (std::size_t n = 0; n < frames.size(); ++n) {
        zmtp.send(frames[n], n + 1 == frames.size());
    }
    bytes += zmtp.outgoing;
    for (std::size_t at = 0, used = 0; at < bytes.size(); at += used) {
        const auto size = std::min(at_a_time, bytes.size() - at);
        if (zmtp.feed(reinterpret_cast<const std::uint8_t *>(bytes.data()) + at, size, used) == Zmtp::Step::fault) {
            return "refused " + zmtp.fault().code;
        }
    }
    return frames.size() > 2 && taker.buffer != frames[2] ? "another buffer" : taker.line;
}

} // namespace

int main() {
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string sender;
        std::getline(words, sender, ' ');
        const auto frames = frames_of(words);
        const std::string whole = answer(frames, sender == "client", std::size_t{1} << 20);
        const bool small = line.size() < 8192;
        const bool same = !small || (answer(frames, sender == "client", 1) == whole && answer(frames, sender == "client", 7) == whole);
        std::cout << (same ? whole : "another answer for smaller pieces") << "\n";
    }
}
