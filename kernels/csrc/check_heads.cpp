// Checks of the operators on heads.
#include <cinttypes>

#include "check.h"
#include "check_parts.h"

namespace agk {
namespace {

// The limits are those of a CUDA grid.
template <typename Args>
int check_sizes(const char* name, const Args& args) {
    if (args.batch <= 0 || args.tokens <= 0 || args.heads <= 0 || args.head_width <= 0) {
        return fail(AGK_BAD_SHAPE, "%s: batch %" PRId64 ", tokens %" PRId64 ", heads %" PRId64 ", head_width %" PRId64
                    ": expected positive sizes", name, args.batch, args.tokens, args.heads, args.head_width);
    }
    if (args.batch * args.tokens < INT32_MAX && args.heads <= 65535 && args.batch <= 32767) return AGK_OK;
    return fail(AGK_BAD_SHAPE, "%s: batch %" PRId64 ", tokens %" PRId64 ", heads %" PRId64
                ": expected at most 32767 batch entries, 65535 heads, and fewer than 2^31 tokens in all", name, args.batch,
                args.tokens, args.heads);
}

}  // namespace

int check(const agk_head_norm_args* args) {
    const char* name = "head_norm";
    if (const int code = check_struct(name, args)) return code;
    if (const int code = check_activations(name, args->dtype)) return code;
    if (const int code = check_sizes(name, *args)) return code;
    // 1, 2, 4 .. 32 threads of a warp hold a head and reduce it by shuffles.
    const int64_t bytes = args->head_width * dtype_bytes(args->dtype), lanes = bytes / VECTOR_BYTES;
    if (bytes % VECTOR_BYTES != 0 || (lanes & (lanes - 1)) != 0) {
        return fail(AGK_UNALIGNED_WIDTH, "%s: head_width %" PRId64 " is %" PRId64
                    " bytes: expected 16 times a power of two", name, args->head_width, bytes);
    }
    if (lanes > 32) {
        return fail(AGK_TOO_WIDE, "%s: head_width %" PRId64 " is %" PRId64 " bytes: expected at most 512", name,
                    args->head_width, bytes);
    }
    const struct { const char* what; const void* array; } arrays[] = {
        {"qkv", args->qkv},
        {"query_weight", args->query_weight}, {"query_bias", args->query_bias},
        {"key_weight", args->key_weight},     {"key_bias", args->key_bias},
    };
    for (const auto& each : arrays) {
        if (const int code = check_array(name, each.what, each.array)) return code;
    }
    if (args->epsilon > 0.0f) return AGK_OK;
    return fail(AGK_BAD_SHAPE, "%s: epsilon %g: expected above 0", name, args->epsilon);
}

int check(const agk_attention_args* args) {
    const char* name = "attention";
    if (const int code = check_struct(name, args)) return code;
    if (args->dtype != AGK_F16 && args->dtype != AGK_BF16) {
        return fail(AGK_BAD_DTYPE, "%s: dtype %d: expected AGK_F16 or AGK_BF16", name, args->dtype);
    }
    if (const int code = check_sizes(name, *args)) return code;
    if (args->head_width != ATTENTION_WIDTH) {
        return fail(AGK_BAD_SHAPE, "%s: head_width %" PRId64 ": expected %d", name, args->head_width, ATTENTION_WIDTH);
    }
    if (const int code = check_array(name, "qkv", args->qkv)) return code;
    return check_array(name, "out", args->out);
}

}  // namespace agk
