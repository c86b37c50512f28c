#include "message_reader.h"

namespace animegamer {

PartReceiver::Place MessageReader::place(std::size_t index, std::size_t size, bool last) {
    Place place;
    if (index == 0) {
        place.memory = magic_;
        if (size != sizeof magic_ || last) {
            place.fault = protocol_fault("protocol", "the reply is not a message of this protocol");
        }
    } else if (index == 1) {
        if (size > limits_.header_bytes) {
            place.fault = protocol_fault("too_large", "received a header of " + std::to_string(size) + " bytes; expected at most " + std::to_string(limits_.header_bytes));
            return place;
        }
        // No more than has arrived is ever claimed: 256 KiB at most, kept for the next header.
        header_bytes_.resize(size + 1); // one more: data() is memory even of an empty header
        place.memory = header_bytes_.data();
    } else if (index == 2 && last && limits_.buffers != 0) {
        place = owner_.place_buffer(header_, size);
    } else {
        place.fault = protocol_fault("too_large", "received a message with more buffers than its limit");
    }
    return place;
}

Fault MessageReader::part(std::size_t index, std::size_t size, bool last) {
    if (index == 0) {
        return read_magic(magic_, sizeof magic_);
    }
    if (index == 1) {
        Fault fault = read_header(header_bytes_.data(), size, tree_, header_);
        return fault || !last ? fault : owner_.message(header_, tree_, 0);
    }
    return owner_.message(header_, tree_, size);
}

} // namespace animegamer
