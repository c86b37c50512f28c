// An error as it travels inside the library: what kind, a code for programs, a text and what to do.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "animegamer.h"

namespace animegamer {

struct Answers;

struct Fault {
    ag_result kind = AG_OK;
    std::string code, text, what_to_do;
    std::shared_ptr<const Answers> answers = nullptr; // of a refused instruction

    explicit operator bool() const { return kind != AG_OK; }
};

inline Fault protocol_fault(const char *code, std::string text,
                            std::string what_to_do = "check that the address is a game server's, and update the older of both") {
    return {AG_PROTOCOL, code, std::move(text), std::move(what_to_do)};
}

} // namespace animegamer
