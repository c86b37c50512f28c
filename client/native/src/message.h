// Messages: the header of one that arrived, and the bytes of one to send. Sizes and header keys are checked here.
//
// Knows no sockets; what the fields of a message mean is in events.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fault.h"
#include "msgpack.h"

namespace animegamer {

constexpr std::int64_t protocol_minor = 3; // PROTOCOL.md is 1.3
constexpr std::size_t max_header_bytes = 262144;    // from the server, PROTOCOL.md "Limits"
constexpr std::size_t max_buffer_bytes = 67108864;  // from the server
constexpr std::size_t max_request_bytes = 65536;    // from the client, unless welcome says less
constexpr std::size_t max_picture_bytes = 8388608;  // from the client
constexpr std::uint8_t magic[5] = {'A', 'G', 'R', 'T', 1};

/// A header that arrived; the views point into its bytes. 0, -1 or empty: the key is absent.
struct Header {
    std::string_view type, id, parent, session;
    std::int64_t turn = 0, seq = -1;
    std::uint32_t fields = Tree::none;
};

/// Check frame 0. Returns the fault, or none.
Fault read_magic(const std::uint8_t *data, std::size_t size);
/// Decode frame 1 with `tree`, which then holds its fields. Returns the fault, or none.
Fault read_header(const std::uint8_t *data, std::size_t size, Tree &tree, Header &header);

/// Reads fields; the first one that is missing or of the wrong kind makes `fault`, and each later read gives zero or "".
class Fields {
public:
    Fields(const Tree &tree, std::uint32_t map) : tree_(tree), map_(map) {}

    std::string_view text(std::string_view name);
    std::string_view text_or_empty(std::string_view name);
    std::int64_t integer(std::string_view name, std::int64_t least = INT64_MIN, std::int64_t most = INT64_MAX);
    int small(std::string_view name, int least, int most) { return static_cast<int>(integer(name, least, most)); }
    double number(std::string_view name);
    bool flag(std::string_view name);
    Fields map(std::string_view name);
    /// The index of a list in the tree; `none` if it is missing.
    std::uint32_t list(std::string_view name);
    bool has(std::string_view name) const { return tree_.find(map_, name) != Tree::none; }

    const Tree &tree() const { return tree_; }
    Fault fault;

private:
    const Node *find(std::string_view name, Kind kind, const char *expected);

    const Tree &tree_;
    std::uint32_t map_;
};

/// A request. Its fields keep their order, which makes its bytes those of the golden vectors.
class Request {
public:
    explicit Request(std::string type) : type_(std::move(type)) {}

    Request &session(std::string id);
    Request &turn(std::int64_t number);
    Request &text(const char *name, std::string_view value);
    Request &integer(const char *name, std::int64_t value);
    Request &number(const char *name, double value);
    Request &flag(const char *name, bool value);
    Request &integers(const char *name, std::initializer_list<std::int64_t> values);
    Request &texts(const char *name, const char *const *values, std::size_t count);
    Request &buffer(std::string bytes);

    /// Frame 1, with this id.
    std::string header(std::string_view id) const;
    const std::string &type() const { return type_; }
    /// Frame 2; nullptr if it has none.
    const std::string *buffer() const { return buffer_.get(); }

private:
    std::string type_, session_;
    std::int64_t turn_ = 0;
    std::size_t count_ = 0;
    Writer fields_;
    std::shared_ptr<const std::string> buffer_; // shared: requests are copied, pictures are large
};

} // namespace animegamer
