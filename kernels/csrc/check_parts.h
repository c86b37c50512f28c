// Checks shared by all operators: the struct's size, an array's address, a dtype of activations.
#pragma once

#include <cstdint>

#include "check.h"

namespace agk {

template <typename Args>
int check_struct(const char* name, const Args* args) {
    if (args == nullptr) return fail(AGK_NULL_POINTER, "%s: args is NULL", name);
    if (args->struct_bytes == sizeof(Args)) return AGK_OK;
    return fail(AGK_BAD_STRUCT, "%s: struct_bytes %u: expected %u; use the header that came with the library", name,
                static_cast<unsigned>(args->struct_bytes), static_cast<unsigned>(sizeof(Args)));
}

inline int check_array(const char* name, const char* what, const void* array) {
    if (array == nullptr) return fail(AGK_NULL_POINTER, "%s: %s is missing", name, what);
    if (reinterpret_cast<std::uintptr_t>(array) % VECTOR_BYTES == 0) return AGK_OK;
    return fail(AGK_UNALIGNED_POINTER, "%s: %s at %p: expected a multiple of 16", name, what, array);
}

inline int check_activations(const char* name, int dtype) {
    if (dtype == AGK_F32 || dtype == AGK_F16 || dtype == AGK_BF16) return AGK_OK;
    return fail(AGK_BAD_DTYPE, "%s: dtype %d: expected AGK_F32, AGK_F16 or AGK_BF16", name, dtype);
}

}  // namespace agk
