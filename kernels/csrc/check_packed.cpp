// Checks of the operators on packed weights.
#include <cinttypes>

#include "check.h"
#include "check_parts.h"

namespace agk {
namespace {

int check_packed(const char* name, const agk_packed& weight) {
    if (weight.bits != 4 && weight.bits != 8) {
        return fail(AGK_BAD_DTYPE, "%s: weight.bits %d: expected 4 or 8", name, weight.bits);
    }
    if (weight.outputs <= 0 || weight.inputs <= 0 || weight.block <= 0 || weight.inputs % weight.block != 0) {
        return fail(AGK_BAD_SHAPE, "%s: outputs %" PRId64 ", inputs %" PRId64 ", block %" PRId64
                    ": expected positive sizes and inputs a multiple of block", name, weight.outputs, weight.inputs, weight.block);
    }
    // Codes are read a word at a time, which must not span two blocks.
    if (weight.block % (32 / weight.bits) != 0) {
        return fail(AGK_UNALIGNED_WIDTH, "%s: block %" PRId64 " of %d bits: expected a multiple of %d", name, weight.block,
                    weight.bits, 32 / weight.bits);
    }
    if (weight.inputs > INT32_MAX || weight.outputs > INT32_MAX) {
        return fail(AGK_TOO_WIDE, "%s: outputs %" PRId64 ", inputs %" PRId64 ": expected fewer than 2^31", name, weight.outputs,
                    weight.inputs);
    }
    if (const int code = check_array(name, "weight.codes", weight.codes)) return code;
    return check_array(name, "weight.scales", weight.scales);
}

}  // namespace

int check(const agk_unpack_args* args) {
    const char* name = "unpack";
    if (const int code = check_struct(name, args)) return code;
    if (const int code = check_activations(name, args->dtype)) return code;
    if (const int code = check_packed(name, args->weight)) return code;
    return check_array(name, "out", args->out);
}

int check(const agk_packed_product_args* args) {
    const char* name = "packed_product";
    if (const int code = check_struct(name, args)) return code;
    if (const int code = check_activations(name, args->dtype)) return code;
    if (const int code = check_packed(name, args->weight)) return code;
    if (args->rows < 1 || args->rows > AGK_FEW_ROWS) {
        return fail(AGK_BAD_SHAPE, "%s: rows %" PRId64 ": expected 1 to %d", name, args->rows, AGK_FEW_ROWS);
    }
    if (const int code = check_array(name, "x", args->x)) return code;
    return check_array(name, "out", args->out);
}

}  // namespace agk
