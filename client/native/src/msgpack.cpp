#include "msgpack.h"

#include <cmath>
#include <cstring>

namespace animegamer {

void Writer::head(std::uint8_t kind, std::uint64_t value, int width) {
    bytes.push_back(static_cast<char>(kind));
    for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) {
        bytes.push_back(static_cast<char>((value >> shift) & 0xff));
    }
}

void Writer::map(std::size_t entries) {
    if (entries < 16) {
        head(static_cast<std::uint8_t>(0x80 | entries), 0, 0);
    } else {
        head(0xde, entries, 2);
    }
}

void Writer::list(std::size_t items) {
    if (items < 16) {
        head(static_cast<std::uint8_t>(0x90 | items), 0, 0);
    } else {
        head(0xdc, items, 2);
    }
}

void Writer::text(std::string_view value) {
    if (value.size() < 32) {
        head(static_cast<std::uint8_t>(0xa0 | value.size()), 0, 0);
    } else if (value.size() <= 0xff) {
        head(0xd9, value.size(), 1);
    } else if (value.size() <= 0xffff) {
        head(0xda, value.size(), 2);
    } else {
        head(0xdb, value.size(), 4);
    }
    bytes.append(value);
}

void Writer::binary(std::string_view value) {
    if (value.size() <= 0xff) {
        head(0xc4, value.size(), 1);
    } else {
        head(0xc6, value.size(), 4);
    }
    bytes.append(value);
}

void Writer::integer(std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    if (value >= 0) {
        if (value < 128) {
            head(static_cast<std::uint8_t>(value), 0, 0);
        } else if (value <= 0xff) {
            head(0xcc, bits, 1);
        } else if (value <= 0xffff) {
            head(0xcd, bits, 2);
        } else if (value <= 0xffffffff) {
            head(0xce, bits, 4);
        } else {
            head(0xcf, bits, 8);
        }
    } else if (value >= -32) {
        head(static_cast<std::uint8_t>(bits & 0xff), 0, 0);
    } else if (value >= -128) {
        head(0xd0, bits, 1);
    } else if (value >= -32768) {
        head(0xd1, bits, 2);
    } else if (value >= -2147483647 - 1) {
        head(0xd2, bits, 4);
    } else {
        head(0xd3, bits, 8);
    }
}

void Writer::number(double value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    head(0xcb, bits, 8);
}

void Writer::flag(bool value) { head(value ? 0xc3 : 0xc2, 0, 0); }

void Writer::nil() { head(0xc0, 0, 0); }

bool Tree::wrong(const char *fault) {
    fault_ = fault;
    return false;
}

bool Tree::read(const std::uint8_t *data, std::size_t size) {
    nodes_.clear();
    at_ = data;
    end_ = data + size;
    fault_ = "";
    if (!value(0)) {
        return false;
    }
    return at_ == end_ || wrong("bytes follow it");
}

bool Tree::take(std::size_t width, std::uint64_t &value) {
    if (static_cast<std::size_t>(end_ - at_) < width) {
        return wrong("it is cut short");
    }
    value = 0;
    for (std::size_t n = 0; n < width; ++n) {
        value = value << 8 | *at_++;
    }
    return true;
}

bool Tree::bytes_of(Kind kind, std::uint64_t length) {
    if (static_cast<std::uint64_t>(end_ - at_) < length) {
        return wrong("it is cut short");
    }
    const std::string_view text(reinterpret_cast<const char *>(at_), static_cast<std::size_t>(length));
    at_ += length;
    if (kind == Kind::text && !is_utf8(text)) {
        return wrong("it holds text that is not UTF-8");
    }
    nodes_.back().kind = kind;
    nodes_.back().text = text;
    return true;
}

bool Tree::items(std::uint32_t index, std::uint64_t count, bool is_map, int depth) {
    const std::uint64_t bytes = count * (is_map ? 2 : 1);
    if (count > max_items || bytes > static_cast<std::uint64_t>(end_ - at_)) {
        return wrong("a list or map in it is longer than its limit or its bytes");
    }
    if (depth >= max_depth) {
        return wrong("it is nested too deep");
    }
    nodes_[index].kind = is_map ? Kind::map : Kind::list;
    nodes_[index].integer = static_cast<std::int64_t>(count);
    for (std::uint64_t n = 0; n < count; ++n) {
        if (is_map) {
            const auto key = nodes_.size();
            if (!value(depth + 1)) {
                return false;
            }
            if (nodes_[key].kind != Kind::text) {
                return wrong("a key in it is not text");
            }
        }
        if (!value(depth + 1)) {
            return false;
        }
    }
    nodes_[index].end = static_cast<std::uint32_t>(nodes_.size());
    return true;
}

bool Tree::value(int depth) {
    std::uint64_t first = 0;
    if (!take(1, first)) {
        return false;
    }
    const auto index = static_cast<std::uint32_t>(nodes_.size());
    nodes_.push_back(Node{Kind::nil, false, index + 1, 0, 0.0, {}});
    const auto integer = [&](std::int64_t value) {
        nodes_[index].kind = Kind::integer;
        nodes_[index].integer = value;
        return true;
    };
    const auto number = [&](double value) {
        nodes_[index].kind = Kind::number;
        nodes_[index].number = value;
        return std::isfinite(value) || wrong("a number in it is not finite");
    };
    std::uint64_t bits = 0;
    if (first < 0x80) {
        return integer(static_cast<std::int64_t>(first));
    }
    if (first >= 0xe0) {
        return integer(static_cast<std::int64_t>(first) - 256);
    }
    if (first < 0xa0) {
        return items(index, first & 0x0f, first < 0x90, depth);
    }
    if (first < 0xc0) {
        return bytes_of(Kind::text, first & 0x1f);
    }
    switch (first) {
    case 0xc0: return true;
    case 0xc2:
    case 0xc3:
        integer(first == 0xc3);
        nodes_[index].kind = Kind::flag;
        return true;
    case 0xc4:
    case 0xc5:
    case 0xc6: return take(std::size_t{1} << (first - 0xc4), bits) && bytes_of(Kind::binary, bits);
    case 0xca: {
        float value = 0;
        if (!take(4, bits)) {
            return false;
        }
        const auto half = static_cast<std::uint32_t>(bits);
        std::memcpy(&value, &half, sizeof value);
        return number(static_cast<double>(value));
    }
    case 0xcb: {
        double value = 0;
        if (!take(8, bits)) {
            return false;
        }
        std::memcpy(&value, &bits, sizeof value);
        return number(value);
    }
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
        if (!take(std::size_t{1} << (first - 0xcc), bits)) {
            return false;
        }
        nodes_[index].too_large = bits > 0x7fffffffffffffff;
        return integer(static_cast<std::int64_t>(bits & 0x7fffffffffffffff));
    case 0xd0: return take(1, bits) && integer(static_cast<std::int8_t>(bits));
    case 0xd1: return take(2, bits) && integer(static_cast<std::int16_t>(bits));
    case 0xd2: return take(4, bits) && integer(static_cast<std::int32_t>(bits));
    case 0xd3: return take(8, bits) && integer(static_cast<std::int64_t>(bits));
    case 0xd9:
    case 0xda:
    case 0xdb: return take(std::size_t{1} << (first - 0xd9), bits) && bytes_of(Kind::text, bits);
    case 0xdc:
    case 0xdd: return take(first == 0xdc ? 2 : 4, bits) && items(index, bits, false, depth);
    case 0xde:
    case 0xdf: return take(first == 0xde ? 2 : 4, bits) && items(index, bits, true, depth);
    default: return wrong("it holds a kind of value that the protocol does not use");
    }
}

std::uint32_t Tree::find(std::uint32_t map, std::string_view key) const {
    if (map >= nodes_.size() || nodes_[map].kind != Kind::map) {
        return none;
    }
    for (std::uint32_t at = map + 1; at < nodes_[map].end; at = nodes_[at + 1].end) {
        if (nodes_[at].text == key) {
            return at + 1;
        }
    }
    return none;
}

bool is_utf8(std::string_view text, std::size_t *characters) {
    std::size_t count = 0;
    for (std::size_t at = 0; at < text.size(); ++count) {
        const auto byte = [&](std::size_t n) -> std::uint32_t { return static_cast<std::uint8_t>(text[n]); };
        const std::uint32_t first = byte(at);
        const std::size_t length = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
        if (length == 0 || at + length > text.size()) {
            return false;
        }
        std::uint32_t point = length == 1 ? first : first & (0x7fU >> length);
        for (std::size_t n = 1; n < length; ++n) {
            if ((byte(at + n) & 0xc0) != 0x80) {
                return false;
            }
            point = point << 6 | (byte(at + n) & 0x3f);
        }
        static constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
        if (point < least[length] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) {
            return false;
        }
        at += length;
    }
    if (characters != nullptr) {
        *characters = count;
    }
    return true;
}

} // namespace animegamer
