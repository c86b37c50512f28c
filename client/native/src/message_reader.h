// The parts of ZMTP messages to messages: sizes are checked before memory is used, buffers go to their place without a copy.
#pragma once

#include <cstdint>
#include <vector>

#include "message.h"
#include "zmtp.h"

namespace animegamer {

/// Who is told of the messages that arrive.
class MessageOwner {
public:
    virtual ~MessageOwner() = default;
    /// The buffer of a message is about to arrive: where to put it. Without memory and without `wait` it is dropped.
    virtual PartReceiver::Place place_buffer(const Header &header, std::size_t size) = 0;
    /// A whole message; `buffer_bytes` is the size of its buffer, 0 without one.
    virtual Fault message(const Header &header, const Tree &tree, std::size_t buffer_bytes) = 0;
};

/// The largest message that is accepted.
struct Limits {
    std::size_t header_bytes = max_header_bytes, buffers = 1;
};

class MessageReader final : public PartReceiver {
public:
    explicit MessageReader(MessageOwner &owner, Limits limits = {}) : owner_(owner), limits_(limits) {}

    Place place(std::size_t index, std::size_t size, bool last) override;
    Fault part(std::size_t index, std::size_t size, bool last) override;

private:
    MessageOwner &owner_;
    const Limits limits_;
    std::uint8_t magic_[sizeof magic] = {};
    std::vector<std::uint8_t> header_bytes_;
    Header header_;
    Tree tree_;
};

} // namespace animegamer
