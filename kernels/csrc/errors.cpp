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
        case AGK_BAD_STRUCT: return "argument struct of another version of the library";
        case AGK_NULL_POINTER: return "an array that is needed is missing";
        case AGK_UNALIGNED_POINTER: return "an array does not begin at a multiple of 16 bytes";
        case AGK_BAD_DTYPE: return "a dtype that the operator does not take";
        case AGK_BAD_SHAPE: return "sizes that are not positive or do not fit each other";
        case AGK_UNALIGNED_WIDTH: return "a row is no multiple of 16 bytes";
        case AGK_TOO_WIDE: return "a row is wider than 16 KiB";
        case AGK_NO_CUDA: return "the library was built without a CUDA compiler";
        case AGK_SMALL_WORKSPACE: return "less working memory than the operator needs";
        case AGK_BAD_OPTION: return "a choice that the operator does not have";
        default: return code >= AGK_CUDA_ERROR ? "an error of the CUDA runtime" : "an unknown code";
    }
}
