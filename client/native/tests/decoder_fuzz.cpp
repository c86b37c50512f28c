// Fuzzing the decoder: any bytes after a connection is open, as a server could send them, must end in messages or a fault.
//
// It changes good conversations, whose messages it reads as `vectors` does, at the same places in each run: decoder_fuzz [INPUTS].
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "call.h"
#include "message_reader.h"
#include "unhex.h"
#include "zmtp.h"

using namespace animegamer;

namespace {

/// Reads every message as every kind of answer.
struct Everything : MessageOwner {
    PartReceiver::Place place_buffer(const Header &header, std::size_t size) override {
        PartReceiver::Place place;
        if (size <= sizeof memory) {
            place.memory = memory;
        }
        place.wait = header.seq == 7 && ++waits % 2 == 1;
        return place;
    }
    Fault message(const Header &header, const Tree &tree, std::size_t bytes) override {
        ++messages;
        if (header.type == "error") {
            Fields fields(tree, header.fields);
            slot.answers = read_answers(fields);
            return fields.fault;
        }
        return turn_event_type(header.type) != 0 ? fill_turn_event(header, tree, bytes, slot)
               : header.type == "offer"          ? fill_offer(header, tree, slot)
                                                 : fill_answer(header, tree, slot);
    }
    std::uint8_t memory[65536];
    Slot slot;
    int waits = 0;
    long messages = 0;
};

long arrive(const std::uint8_t *data, std::size_t size) {
    static Everything owner;
    MessageReader reader(owner);
    Zmtp zmtp(reader);
    zmtp.restart();
    owner.messages = 0;
    // The first byte says in which pieces the rest arrives.
    const std::size_t piece = size == 0 || data[0] == 0 ? 1U << 20 : data[0];
    for (std::size_t at = size == 0 ? 0 : 1; at < size;) {
        const auto rest = zmtp.rest();
        std::size_t used = std::min(piece, size - at);
        Zmtp::Step step = Zmtp::Step::more;
        if (rest.size != 0 && rest.size < used) {
            used = rest.size;
            std::memcpy(rest.data, data + at, used);
            step = zmtp.filled(used);
        } else {
            step = zmtp.feed(data + at, used, used);
        }
        if (step == Zmtp::Step::fault) {
            break;
        }
        at += used;
    }
    return owner.messages;
}

/// The messages on standard input, each after a greeting; and all of them in one conversation.
std::vector<std::string> conversations() {
    std::string greeting("\0\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01NULL", 17);
    greeting.append(48, '\0');
    greeting += std::string("\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06ROUTER", 30);
    std::vector<std::string> all{greeting + std::string("\x04\x0a\x04PING\0\0abc", 12)};
    std::string together = greeting;
    struct Nobody : Everything {
    } nobody;
    MessageReader reader(nobody);
    Zmtp writer(reader);
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line.substr(line.find(' ') + 1));
        const auto frames = frames_of(words);
        writer.outgoing.clear();
        for (std::size_t n = 0; n < frames.size(); ++n) {
            writer.send(frames[n], n + 1 == frames.size());
        }
        all.push_back(greeting + writer.outgoing);
        together += writer.outgoing;
    }
    all.push_back(together);
    return all;
}

} // namespace

int main(int count, char **arguments) {
    const long inputs = count > 1 ? std::atol(arguments[1]) : 20000;
    const auto seeds = conversations();
    std::uint64_t random = 88172645463325252U;
    const auto next = [&random](std::size_t below) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return static_cast<std::size_t>(random % below);
    };
    long messages = 0;
    for (long n = 0; n < inputs; ++n) {
        std::string bytes = seeds[next(seeds.size())];
        bytes[0] = static_cast<char>(next(3) == 0 ? next(40) : 0);
        for (std::size_t changes = 1 + next(4); changes > 0; --changes) {
            const std::size_t at = 65 + next(bytes.size() - 65); // a broken greeting ends at once
            switch (next(6)) {
            case 0: bytes[at] = static_cast<char>(next(256)); break;
            case 1: bytes[at] = static_cast<char>(bytes[at] ^ 1 << next(8)); break;
            case 2: bytes.erase(at, 1 + next(8)); break;
            case 3: bytes.insert(at, 1 + next(8), static_cast<char>(next(256))); break;
            case 4: bytes[at] = "\xff\xc1\xdb\xdd\xdf\xc6\xc9\xcf\x7f\0"[next(10)]; break;
            default: bytes.resize(at); break;
            }
            if (bytes.size() < 66) {
                break;
            }
        }
        messages += arrive(reinterpret_cast<const std::uint8_t *>(bytes.data()), bytes.size());
    }
    std::printf("%ld inputs, %ld messages read\n", inputs, messages);
    return messages > inputs / 10 ? 0 : 1;
}
