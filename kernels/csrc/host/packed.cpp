// Plain references of unpack and packed_product: one weight at a time, sums in float64.
#include "../check.h"
#include "number.h"

namespace agk::host {
namespace {

// Weight (output, input) in float32: an 8-bit or 4-bit code times its block's scale.
float weight_at(const agk_packed& weight, int64_t output, int64_t input) {
    const int64_t block = input / weight.block, within = input % weight.block, half = weight.block / 2;
    const float scale = weight.scales[output * (weight.inputs / weight.block) + block];
    const auto* codes = static_cast<const int8_t*>(weight.codes);
    if (weight.bits == 8) return static_cast<float>(codes[output * weight.inputs + input]) * scale;
    const int8_t both = codes[(output * weight.inputs + block * weight.block) / 2 + within % half];
    const int code = within < half ? both & 15 : both >> 4 & 15;
    return static_cast<float>(code < 8 ? code : code - 16) * scale;
}

}  // namespace
}  // namespace agk::host

using namespace agk::host;

extern "C" int agk_unpack_host(const agk_unpack_args* args) {
    if (const int code = agk::check(args)) return code;
    const agk_packed& weight = args->weight;
    for (int64_t output = 0; output < weight.outputs; ++output) {
        for (int64_t input = 0; input < weight.inputs; ++input) {
            put(args->out, args->dtype, output * weight.inputs + input, weight_at(weight, output, input));
        }
    }
    return AGK_OK;
}

extern "C" int agk_packed_product_host(const agk_packed_product_args* args) {
    if (const int code = agk::check(args)) return code;
    const agk_packed& weight = args->weight;
    for (int64_t output = 0; output < weight.outputs; ++output) {
        double sums[AGK_FEW_ROWS] = {};
        for (int64_t input = 0; input < weight.inputs; ++input) {
            const double value = weight_at(weight, output, input);
            for (int64_t row = 0; row < args->rows; ++row) sums[row] += get(args->x, args->dtype, row * weight.inputs + input) * value;
        }
        for (int64_t row = 0; row < args->rows; ++row) {
            put(args->out, args->dtype, row * weight.outputs + output, static_cast<float>(sums[row]));
        }
    }
    return AGK_OK;
}
