// The subset of msgpack that the protocol uses: a writer, and a reader that allocates nothing once it is warm.
//
// Knows no message. Extension types are refused, every other kind is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace animegamer {

/// Appends values to a byte string: the shortest integers and text headers, 64-bit floats.
class Writer {
public:
    void map(std::size_t entries);
    void list(std::size_t items);
    void text(std::string_view value);
    void integer(std::int64_t value);
    void number(double value);
    void flag(bool value);
    void nil();
    void binary(std::string_view value);

    std::string bytes;

private:
    void head(std::uint8_t kind, std::uint64_t value, int width);
};

enum class Kind : std::uint8_t { nil, flag, integer, number, text, binary, list, map };

/// One value. `end` is the index after it and all that it holds; text and binary point into the bytes that were read.
struct Node {
    Kind kind;
    bool too_large; // an integer beyond 63 bits
    std::uint32_t end;
    std::int64_t integer; // a flag is 0 or 1; of a list or map, the number of items or entries
    double number;
    std::string_view text;
};

/// The values of one header, in the order of its bytes.
class Tree {
public:
    static constexpr std::uint32_t none = 0xffffffff;
    static constexpr std::size_t max_items = 1024; // of a list or map, PROTOCOL.md "Limits"
    static constexpr int max_depth = 32;

    /// Read one value, which must be all of the bytes. Returns false if they are not that; `fault` then says why.
    bool read(const std::uint8_t *data, std::size_t size);
    const char *fault() const { return fault_; }

    const Node &at(std::uint32_t index) const { return nodes_[index]; }
    /// The value of a key of the map at `map`; `none` if it has none.
    std::uint32_t find(std::uint32_t map, std::string_view key) const;

private:
    bool value(int depth);
    bool items(std::uint32_t index, std::uint64_t count, bool is_map, int depth);
    bool take(std::size_t width, std::uint64_t &value);
    bool bytes_of(Kind kind, std::uint64_t length);
    bool wrong(const char *fault);

    std::vector<Node> nodes_;
    const std::uint8_t *at_ = nullptr, *end_ = nullptr;
    const char *fault_ = "";
};

/// Whether text is UTF-8 without surrogates; `characters`, if given, is set to the number of its code points.
bool is_utf8(std::string_view text, std::size_t *characters = nullptr);

} // namespace animegamer
