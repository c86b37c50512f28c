#include "message.h"

#include <algorithm>
#include <cstring>

namespace animegamer {

namespace {

Fault bad(std::string_view name, const char *expected) {
    return protocol_fault("bad_field", "received a message whose " + std::string(name) + " is not " + expected);
}

Fault read_name(const Tree &tree, const char *key, std::string_view &value, bool required) {
    const auto at = tree.find(0, key);
    if (at == Tree::none) {
        return required ? protocol_fault("missing_field", std::string("received a header without ") + key) : Fault{};
    }
    std::size_t characters = 0;
    if (tree.at(at).kind != Kind::text || !is_utf8(tree.at(at).text, &characters) || characters < 1 || characters > 64) {
        return bad(key, "text of 1 to 64 characters");
    }
    value = tree.at(at).text;
    return {};
}

Fault read_count(const Tree &tree, const char *key, std::int64_t least, std::int64_t &value) {
    const auto at = tree.find(0, key);
    if (at == Tree::none) {
        return {};
    }
    const Node &node = tree.at(at);
    if (node.kind != Kind::integer || node.too_large || node.integer < least) {
        return bad(key, least == 0 ? "a whole number, 0 or more" : "a whole number, 1 or more");
    }
    value = node.integer;
    return {};
}

} // namespace

Fault read_magic(const std::uint8_t *data, std::size_t size) {
    if (size != sizeof magic || std::memcmp(data, magic, 4) != 0) {
        return protocol_fault("protocol", "the reply is not a message of this protocol");
    }
    if (data[4] != magic[4]) {
        return protocol_fault("version", "the server speaks version " + std::to_string(data[4]) + ", this client speaks 1",
                              "update the older of both");
    }
    return {};
}

Fault read_header(const std::uint8_t *data, std::size_t size, Tree &tree, Header &header) {
    header = Header{};
    if (size > max_header_bytes) {
        return protocol_fault("too_large", "received a header of " + std::to_string(size) + " bytes; expected at most 262144");
    }
    if (!tree.read(data, size)) {
        return protocol_fault("protocol", std::string("received a header that cannot be read: ") + tree.fault());
    }
    if (tree.at(0).kind != Kind::map) {
        return protocol_fault("protocol", "received a header that is not a map");
    }
    const std::pair<const char *, std::string_view *> names[] = {
        {"type", &header.type}, {"id", &header.id}, {"parent", &header.parent}, {"session", &header.session}};
    for (const auto &[key, value] : names) {
        if (Fault fault = read_name(tree, key, *value, value == &header.type)) {
            return fault;
        }
    }
    if (Fault fault = read_count(tree, "turn", 1, header.turn)) {
        return fault;
    }
    if (Fault fault = read_count(tree, "seq", 0, header.seq)) {
        return fault;
    }
    header.fields = tree.find(0, "fields");
    if (header.fields != Tree::none && tree.at(header.fields).kind != Kind::map) {
        return bad("fields", "a map");
    }
    return {};
}

const Node *Fields::find(std::string_view name, Kind kind, const char *expected) {
    const auto at = tree_.find(map_, name);
    if (fault) {
        return nullptr;
    }
    if (at == Tree::none) {
        fault = protocol_fault("missing_field", "received a message without " + std::string(name));
        return nullptr;
    }
    const Node &node = tree_.at(at);
    const bool whole_number = kind == Kind::number && node.kind == Kind::integer; // a float may come as an integer
    if (node.kind != kind && !whole_number) {
        fault = bad(name, expected);
        return nullptr;
    }
    return &node;
}

std::string_view Fields::text(std::string_view name) {
    const Node *node = find(name, Kind::text, "text");
    return node == nullptr ? std::string_view{} : node->text;
}

std::string_view Fields::text_or_empty(std::string_view name) { return has(name) ? text(name) : std::string_view{}; }

std::int64_t Fields::integer(std::string_view name, std::int64_t least, std::int64_t most) {
    const Node *node = find(name, Kind::integer, "a whole number");
    if (node == nullptr) {
        return 0;
    }
    if (node->too_large || node->integer < least || node->integer > most) {
        fault = bad(name, "within its bounds");
        return 0;
    }
    return node->integer;
}

double Fields::number(std::string_view name) {
    const Node *node = find(name, Kind::number, "a number");
    if (node == nullptr) {
        return 0.0;
    }
    return node->kind == Kind::number ? node->number : static_cast<double>(node->integer);
}

bool Fields::flag(std::string_view name) {
    const Node *node = find(name, Kind::flag, "true or false");
    return node != nullptr && node->integer != 0;
}

Fields Fields::map(std::string_view name) {
    const Node *node = find(name, Kind::map, "a map");
    Fields inner(tree_, node == nullptr ? Tree::none : tree_.find(map_, name));
    inner.fault = fault;
    return inner;
}

std::uint32_t Fields::list(std::string_view name) {
    return find(name, Kind::list, "a list") == nullptr ? Tree::none : tree_.find(map_, name);
}

Request &Request::session(std::string id) {
    session_ = std::move(id);
    return *this;
}

Request &Request::turn(std::int64_t number) {
    turn_ = number;
    return *this;
}

Request &Request::text(const char *name, std::string_view value) {
    ++count_;
    fields_.text(name);
    fields_.text(value);
    return *this;
}

Request &Request::integer(const char *name, std::int64_t value) {
    ++count_;
    fields_.text(name);
    fields_.integer(value);
    return *this;
}

Request &Request::number(const char *name, double value) {
    ++count_;
    fields_.text(name);
    fields_.number(value);
    return *this;
}

Request &Request::flag(const char *name, bool value) {
    ++count_;
    fields_.text(name);
    fields_.flag(value);
    return *this;
}

Request &Request::integers(const char *name, std::initializer_list<std::int64_t> values) {
    ++count_;
    fields_.text(name);
    fields_.list(values.size());
    for (const auto value : values) {
        fields_.integer(value);
    }
    return *this;
}

Request &Request::texts(const char *name, const char *const *values, std::size_t count) {
    ++count_;
    fields_.text(name);
    fields_.list(count);
    for (std::size_t n = 0; n < count; ++n) {
        fields_.text(values[n]);
    }
    return *this;
}

Request &Request::buffer(std::string bytes) {
    buffer_ = std::make_shared<const std::string>(std::move(bytes));
    return *this;
}

std::string Request::header(std::string_view id) const {
    const std::size_t optional = std::size_t{!session_.empty()} + std::size_t{turn_ != 0};
    Writer writer;
    writer.map(3 + optional);
    writer.text("type");
    writer.text(type_);
    writer.text("id");
    writer.text(id);
    if (!session_.empty()) {
        writer.text("session");
        writer.text(session_);
    }
    if (turn_ != 0) {
        writer.text("turn");
        writer.integer(turn_);
    }
    writer.text("fields");
    writer.map(count_);
    writer.bytes += fields_.bytes;
    return writer.bytes;
}

} // namespace animegamer
