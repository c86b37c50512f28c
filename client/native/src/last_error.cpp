#include "last_error.h"

#include <cstring>

namespace animegamer {

namespace {

/// This thread's last error. Arrays, so that it can be told when there is no memory.
struct LastError {
    char code[72], text[1024], what_to_do[512];
    ag_error error;
};
thread_local LastError kept;

void copy(char *to, std::size_t size, const char *text) {
    std::size_t length = std::strlen(text);
    if (length >= size) {
        length = size - 1;
        while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) {
            --length; // not within a character
        }
    }
    std::memcpy(to, text, length);
    to[length] = '\0';
}

} // namespace

ag_result refuse(ag_result kind, const char *code, const char *text, const char *what_to_do) {
    LastError &last = kept;
    copy(last.code, sizeof last.code, code);
    copy(last.text, sizeof last.text, text);
    copy(last.what_to_do, sizeof last.what_to_do, what_to_do);
    last.error = ag_error{kind, last.code, last.text, last.what_to_do, nullptr, 0};
    return kind;
}

ag_result refuse(const Fault &fault) { return refuse(fault.kind, fault.code.c_str(), fault.text.c_str(), fault.what_to_do.c_str()); }

ag_result invalid(const char *text, const char *what_to_do) { return refuse(AG_INVALID, "invalid", text, what_to_do); }

const ag_error *last_error() {
    if (kept.error.text == nullptr) {
        refuse(AG_OK, "", "no call of this thread has failed", "");
    }
    return &kept.error;
}

} // namespace animegamer
