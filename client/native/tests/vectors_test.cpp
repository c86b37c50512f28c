// The golden bytes of client/vectors: read and written to the byte, and broken ones refused with their code.
#include "check.h"
#include "json.h"
#include "message_reader.h"
#include "zmtp.h"

using namespace animegamer;

namespace {

std::string unhex(const std::string &hex) {
    std::string bytes;
    for (std::size_t n = 0; n + 1 < hex.size(); n += 2) {
        bytes += static_cast<char>(std::stoi(hex.substr(n, 2), nullptr, 16));
    }
    return bytes;
}

std::vector<std::string> frames_of(const Json &vector) {
    std::vector<std::string> frames;
    for (const Json &frame : vector["frames"].items) {
        std::string bytes;
        if (frame.kind == Json::text) {
            bytes = unhex(frame.string);
        } else {
            const std::string once = unhex(frame["hex"].string);
            const auto times = static_cast<std::size_t>(frame["times"].whole);
            bytes = once.size() == 1 ? std::string(times, once[0]) : ""; // one byte may come 64 Mi times
            while (bytes.size() < times * once.size()) {
                bytes += once;
            }
        }
        frames.push_back(bytes);
    }
    return frames;
}

void write(Writer &writer, const Json &value) {
    switch (value.kind) {
    case Json::null: writer.nil(); break;
    case Json::flag: writer.flag(value.truth); break;
    case Json::integer: writer.integer(value.whole); break;
    case Json::number: writer.number(value.real); break;
    case Json::text: writer.text(value.string); break;
    case Json::list:
        writer.list(value.items.size());
        for (const Json &item : value.items) {
            write(writer, item);
        }
        break;
    case Json::map:
        writer.map(value.entries.size());
        for (const auto &[key, item] : value.entries) {
            writer.text(key);
            write(writer, item);
        }
    }
}

bool same(const Json &value, const Tree &tree, std::uint32_t at) {
    const Node &node = tree.at(at);
    switch (value.kind) {
    case Json::null: return node.kind == Kind::nil;
    case Json::flag: return node.kind == Kind::flag && (node.integer != 0) == value.truth;
    case Json::integer: return node.kind == Kind::integer && node.integer == value.whole;
    case Json::number: return node.kind == Kind::number && !(node.number < value.real) && !(value.real < node.number);
    case Json::text: return node.kind == Kind::text && node.text == value.string;
    case Json::list: {
        std::uint32_t item = at + 1;
        for (const Json &expected : value.items) {
            if (item >= node.end || !same(expected, tree, item)) {
                return false;
            }
            item = tree.at(item).end;
        }
        return node.kind == Kind::list && item == node.end;
    }
    default:
        for (const auto &[key, expected] : value.entries) {
            const auto found = tree.find(at, key);
            if (found == Tree::none || !same(expected, tree, found)) {
                return false;
            }
        }
        return node.kind == Kind::map;
    }
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
        ++messages;
        type = header.type;
        matches = expected == nullptr || same(*expected, tree, 0) ||
                  (expected->find("fields") != nullptr && tree.find(0, "fields") == Tree::none); // "ping without fields"
        return {};
    }
    const Json *expected = nullptr;
    int messages = 0;
    bool matches = false;
    std::string type, buffer;
};

/// Frames as a server sends them, so many bytes at a time; returns the fault.
Fault arrive(Taker &taker, const std::vector<std::string> &frames, Limits limits, std::size_t at_a_time) {
    MessageReader reader(taker, limits);
    Zmtp zmtp(reader);
    zmtp.restart();
    std::string bytes = zmtp.outgoing;
    const std::string dealer("\x06"
                             "DEALER"),
        router("\x06ROUTER");
    bytes.replace(bytes.find(dealer), dealer.size(), router);
    zmtp.outgoing.clear();
    for (std::size_t n = 0; n < frames.size(); ++n) {
        zmtp.send(frames[n], n + 1 == frames.size());
    }
    bytes += zmtp.outgoing;
    for (std::size_t at = 0; at < bytes.size();) {
        std::size_t used = 0;
        const auto size = std::min(at_a_time, bytes.size() - at);
        if (zmtp.feed(reinterpret_cast<const std::uint8_t *>(bytes.data()) + at, size, used) == Zmtp::Step::fault) {
            return zmtp.fault();
        }
        SAME(used, size);
        at += used;
    }
    return {};
}

const Json &vectors() {
    static const Json read = JsonReader::file(VECTORS);
    return read;
}

} // namespace

TEST(golden_messages_are_read_from_any_pieces) {
    for (const Json &vector : vectors()["messages"].items) {
        for (const std::size_t at_a_time : {std::size_t{1}, std::size_t{7}, std::size_t{1} << 20}) {
            Taker taker;
            taker.expected = &vector["header"];
            const auto frames = frames_of(vector);
            const Fault fault = arrive(taker, frames, {}, at_a_time);
            SAME(vector["name"].string + ": " + fault.text, vector["name"].string + ": ");
            SAME(taker.messages, 1);
            CHECK(taker.matches);
            SAME(taker.type, vector["header"]["type"].string);
            SAME(taker.buffer, frames.size() > 2 ? frames[2] : "");
        }
    }
}

TEST(canonical_messages_are_written_to_the_byte) {
    for (const Json &vector : vectors()["messages"].items) {
        if (vector["canonical"].truth) {
            Writer writer;
            write(writer, vector["header"]);
            CHECK(writer.bytes == frames_of(vector)[1]);
        }
    }
}

TEST(requests_are_the_golden_ones) {
    const auto golden = [](const char *name) {
        for (const Json &vector : vectors()["messages"].items) {
            if (vector["name"].string == name) {
                return frames_of(vector)[1];
            }
        }
        throw std::runtime_error(std::string("no vector ") + name);
    };
    const std::string token = "N1vQ0hJ3tqkHk2bXgq3V0mZ9aYwXr5uE";
    Request hello("hello"), turn("turn"), replay("replay");
    hello.integers("versions", {1}).text("client", "example 1.0");
    CHECK(hello.header("7") == golden("hello, least"));
    turn.session("5f2c9a7be1d04c38").text("instruction", "Character: Mia; Motion: gently wave; Background: day town.");
    turn.text("turn_id", "a-1").text("token", token);
    CHECK(turn.header("7") == golden("turn"));
    replay.session("5f2c9a7be1d04c38").turn(3).text("token", token).integer("after_seq", 4);
    CHECK(replay.header("7") == golden("replay"));
    CHECK(Request("ping").header("7") == golden("ping"));
}

TEST(broken_frames_are_refused_with_their_code) {
    int refused = 0;
    for (const Json &vector : vectors()["refused"].items) {
        const auto frames = frames_of(vector);
        if (vector["layer"].string != "frames" || frames.empty()) { // ZMTP cannot carry a message of no frame
            continue;
        }
        Taker taker;
        const Limits from_client{65536, 0};
        const Fault fault = arrive(taker, frames, vector["sender"].string == "client" ? from_client : Limits{}, 1 << 16);
        SAME(vector["name"].string + ": " + fault.code, vector["name"].string + ": " + vector["code"].string);
        ++refused;
    }
    CHECK(refused > 25);
}

int main(int count, char **names) { return run_tests(count, names); }
