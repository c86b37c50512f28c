// The error of a thread's last call, and the guard that no exception crosses.
#pragma once

#include <exception>
#include <new>

#include "fault.h"

namespace animegamer {

/// Keep an error as this thread's last one; returns its kind. Works without memory.
ag_result refuse(ag_result kind, const char *code, const char *text, const char *what_to_do);
ag_result refuse(const Fault &fault);
ag_result invalid(const char *text, const char *what_to_do);
const ag_error *last_error();

/// Run a function that may throw.
template <typename F> ag_result guarded(F function) noexcept {
    try {
        return function();
    } catch (const std::bad_alloc &) {
        return refuse(AG_MEMORY, "memory", "there is no memory for this", "free some, and call it again");
    } catch (const std::exception &error) {
        return refuse(AG_INTERNAL, "internal", error.what(), "report it");
    } catch (...) {
        return refuse(AG_INTERNAL, "internal", "an unknown fault", "report it");
    }
}

} // namespace animegamer
