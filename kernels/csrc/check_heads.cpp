// Checks of the operators on heads.
#include <cinttypes>
#include <initializer_list>

#include "check.h"
#include "check_parts.h"

namespace agk {
namespace {

// Shape: agk_heads or an attention's arguments. The limits are those of a CUDA grid.
template <typename Shape>
int check_sizes(const char* name, const Shape& shape) {
    if (shape.batch <= 0 || shape.tokens <= 0 || shape.heads <= 0 || shape.head_width <= 0) {
        return fail(AGK_BAD_SHAPE, "%s: batch %" PRId64 ", tokens %" PRId64 ", heads %" PRId64 ", head_width %" PRId64
                    ": expected positive sizes", name, shape.batch, shape.tokens, shape.heads, shape.head_width);
    }
    if (shape.batch * shape.tokens < INT32_MAX && shape.heads <= 65535 && shape.batch <= 32767) return AGK_OK;
    return fail(AGK_BAD_SHAPE, "%s: batch %" PRId64 ", tokens %" PRId64 ", heads %" PRId64
                ": expected at most 32767 batch entries, 65535 heads, and fewer than 2^31 tokens in all", name, shape.batch,
                shape.tokens, shape.heads);
}

int check_stride(const char* name, int64_t stride, int dtype) {
    if (stride > 0 && stride * dtype_bytes(dtype) % VECTOR_BYTES == 0) return AGK_OK;
    return fail(AGK_BAD_SHAPE, "%s: stride of %" PRId64 " elements: expected a positive multiple of 16 bytes", name, stride);
}

int check_group(const char* name, int64_t group) {
    if (group > 0) return AGK_OK;
    return fail(AGK_BAD_SHAPE, "%s: one scale for %" PRId64 " tokens: expected 1 or more", name, group);
}

int check_shape(const char* name, const agk_heads& shape) {
    if (const int code = check_activations(name, shape.dtype)) return code;
    if (const int code = check_sizes(name, shape)) return code;
    // 1, 2, 4 .. 32 threads of a warp hold a head and reduce it by shuffles.
    const int64_t bytes = shape.head_width * dtype_bytes(shape.dtype), lanes = bytes / VECTOR_BYTES;
    if (bytes % VECTOR_BYTES != 0 || (lanes & (lanes - 1)) != 0) {
        return fail(AGK_UNALIGNED_WIDTH, "%s: head_width %" PRId64 " is %" PRId64
                    " bytes: expected 16 times a power of two", name, shape.head_width, bytes);
    }
    if (lanes > 32) {
        return fail(AGK_TOO_WIDE, "%s: head_width %" PRId64 " is %" PRId64 " bytes: expected at most 512", name,
                    shape.head_width, bytes);
    }
    const struct { const char* what; const void* array; } arrays[] = {
        {"qkv", shape.qkv},
        {"query_weight", shape.query_weight}, {"query_bias", shape.query_bias},
        {"key_weight", shape.key_weight},     {"key_bias", shape.key_bias},
    };
    for (const auto& each : arrays) {
        if (const int code = check_array(name, each.what, each.array)) return code;
    }
    if (shape.epsilon > 0.0f) return AGK_OK;
    return fail(AGK_BAD_SHAPE, "%s: epsilon %g: expected above 0", name, shape.epsilon);
}

template <typename Args>
int check_attention(const char* name, const Args* args) {
    if (const int code = check_struct(name, args)) return code;
    if (args->dtype != AGK_F16 && args->dtype != AGK_BF16) {
        return fail(AGK_BAD_DTYPE, "%s: dtype %d: expected AGK_F16 or AGK_BF16", name, args->dtype);
    }
    if (const int code = check_sizes(name, *args)) return code;
    if (args->head_width != ATTENTION_WIDTH) {
        return fail(AGK_BAD_SHAPE, "%s: head_width %" PRId64 ": expected %d", name, args->head_width, ATTENTION_WIDTH);
    }
    const struct { const char* what; const void* array; } arrays[] = {
        {"query", args->query}, {"key", args->key}, {"value", args->value}, {"out", args->out},
    };
    for (const auto& each : arrays) {
        if (const int code = check_array(name, each.what, each.array)) return code;
    }
    for (const int64_t stride : {args->batch_stride, args->token_stride, args->head_stride}) {
        if (const int code = check_stride(name, stride, args->dtype)) return code;
    }
    return AGK_OK;
}

}  // namespace

int check(const agk_head_norm_args* args) {
    const char* name = "head_norm";
    if (const int code = check_struct(name, args)) return code;
    if (const int code = check_shape(name, args->shape)) return code;
    if (const int code = check_array(name, "query", args->query)) return code;
    if (const int code = check_array(name, "key", args->key)) return code;
    if (args->value != nullptr) {
        if (const int code = check_array(name, "value", args->value)) return code;
    }
    for (const int64_t stride : {args->batch_stride, args->token_stride, args->head_stride}) {
        if (const int code = check_stride(name, stride, args->shape.dtype)) return code;
    }
    return AGK_OK;
}

int check(const agk_head_norm_int8_args* args) {
    const char* name = "head_norm_int8";
    if (const int code = check_struct(name, args)) return code;
    if (const int code = check_shape(name, args->shape)) return code;
    const struct { const char* what; const void* array; } arrays[] = {
        {"query", args->query},         {"key", args->key},           {"query_scales", args->query_scales},
        {"key_scales", args->key_scales}, {"key_mean", args->key_mean}, {"workspace", args->workspace},
    };
    for (const auto& each : arrays) {
        if (const int code = check_array(name, each.what, each.array)) return code;
    }
    for (const int64_t group : {args->query_group, args->key_group}) {
        if (const int code = check_group(name, group)) return code;
    }
    const int64_t needed = agk_head_norm_int8_workspace(&args->shape);
    if (args->workspace_bytes >= needed) return AGK_OK;
    return fail(AGK_SMALL_WORKSPACE, "%s: workspace_bytes %" PRId64 ": expected %" PRId64, name, args->workspace_bytes, needed);
}

int check(const agk_attention_int8_args* args) {
    const char* name = "attention_int8";
    if (const int code = check_attention(name, args)) return code;
    const struct { const char* what; const void* array; } arrays[] = {
        {"query_scales", args->query_scales}, {"key_scales", args->key_scales},
    };
    for (const auto& each : arrays) {
        if (const int code = check_array(name, each.what, each.array)) return code;
    }
    if (const int code = check_group(name, args->query_group)) return code;
    if (args->key_group <= 0 || args->key_group % ATTENTION_KEYS != 0) {
        return fail(AGK_BAD_SHAPE, "%s: one scale for %" PRId64 " keys: expected a positive multiple of %d", name, args->key_group,
                    ATTENTION_KEYS);
    }
    if (AGK_WARPS <= args->products && args->products <= AGK_WARPGROUPS) return AGK_OK;
    return fail(AGK_BAD_OPTION, "%s: products %d: expected one of agk_products", name, args->products);
}

int check(const agk_attention_args* args) { return check_attention("attention", args); }

}  // namespace agk

// Holds the sum of the keys of every chunk of tokens.
extern "C" int64_t agk_head_norm_int8_workspace(const agk_heads* shape) {
    const int64_t chunks = (shape->tokens + agk::KEY_CHUNK - 1) / agk::KEY_CHUNK;
    return shape->batch * shape->heads * chunks * shape->head_width * static_cast<int64_t>(sizeof(float));
}
