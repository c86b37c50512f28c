// Texts of the status codes, and the last error of each thread.
#include <cstdarg>
#include <cstdio>

#include "check.h"

namespace agk {
namespace {
thread_local char last_error[256] = "";
}

int fail(int code, const char* format, ...) {
    std::va_list values;
    va_start(values, format);
    std::vsnprintf(last_error, sizeof last_error, format, values);
    va_end(values);
    return code;
}

}  // namespace agk

extern "C" const char* agk_last_error(void) { return agk::last_error; }

extern "C" const char* agk_error_text(int code) {
    switch (code) {
        case AGK_OK: return "no error";
        case AGK_BAD_STRUCT: return "the argument struct is from another version of the library";
        case AGK_NULL_POINTER: return "a required array is missing";
        case AGK_UNALIGNED_POINTER: return "an array is not aligned to 16 bytes";
        case AGK_BAD_DTYPE: return "unsupported dtype";
        case AGK_BAD_SHAPE: return "sizes are not positive or do not match";
        case AGK_UNALIGNED_WIDTH: return "the row size is not a multiple of 16 bytes";
        case AGK_TOO_WIDE: return "a row is larger than 16 KiB";
        case AGK_NO_CUDA: return "the library was built without a CUDA compiler";
        case AGK_SMALL_WORKSPACE: return "the workspace is too small";
        default: return code >= AGK_CUDA_ERROR ? "CUDA runtime error" : "unknown code";
    }
}
