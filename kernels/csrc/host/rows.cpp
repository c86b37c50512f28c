// Plain references of norm_modulate, gate_residual and epilogue: one row at a time, statistics and GELU in float64.
#include <cmath>
#include <limits>
#include <vector>

#include "../check.h"
#include "number.h"

namespace agk::host {
namespace {

// The image's or the shot's vectors for a row; NULL if there are none.
const float* of_row(const agk_rows& shape, int64_t row, const float* image, const float* shot) {
    return row % shape.tokens < shape.shot_tokens ? shot : image;
}

// Writes a row in `dtype`. A quantised row is scaled so that its largest magnitude is the format's largest value.
void put_row(void* out, float* scales, int dtype, int64_t row, const std::vector<float>& values) {
    float factor = 1.0f;
    if (dtype == AGK_E4M3 || dtype == AGK_I8) {
        const float most = dtype == AGK_E4M3 ? E4M3_MAX : I8_MAX;
        // A row of zeros needs a scale above 0.
        float magnitude = 1e-30f;
        bool number = true;
        for (const float value : values) {
            magnitude = std::fmax(magnitude, std::fabs(value));
            number = number && !std::isnan(value);
        }
        scales[row] = number ? magnitude / most : std::numeric_limits<float>::quiet_NaN();
        factor = most / magnitude;
    }
    const auto width = static_cast<int64_t>(values.size());
    for (int64_t i = 0; i < width; ++i) put(out, dtype, row * width + i, values[i] * factor);
}

void normalise(const agk_rows& shape, const agk_norm& norm, int64_t row, const std::vector<float>& x) {
    double mean = 0.0, variance = 0.0;
    for (const float value : x) mean += value;
    mean /= static_cast<double>(shape.width);
    for (const float value : x) variance += (value - mean) * (value - mean);
    variance /= static_cast<double>(shape.width);
    const double inverse = 1.0 / std::sqrt(variance + norm.epsilon);
    const float* modulation = of_row(shape, row, norm.image, norm.shot);
    std::vector<float> out(x.size());
    for (int64_t i = 0; i < shape.width; ++i) {
        double value = (x[i] - mean) * inverse * norm.weight[i] + norm.bias[i];
        if (modulation != nullptr) value = value * (1.0 + modulation[shape.width + i]) + modulation[i];
        out[i] = static_cast<float>(value);
    }
    put_row(norm.out, norm.out_scales, norm.out_dtype, row, out);
}

}  // namespace
}  // namespace agk::host

using namespace agk::host;

extern "C" int agk_norm_modulate_host(const agk_norm_modulate_args* args) {
    if (const int code = agk::check(args)) return code;
    const agk_rows& shape = args->shape;
    std::vector<float> x(static_cast<size_t>(shape.width));
    for (int64_t row = 0; row < shape.rows; ++row) {
        for (int64_t i = 0; i < shape.width; ++i) x[i] = get(args->x, shape.dtype, row * shape.width + i);
        normalise(shape, args->norm, row, x);
    }
    return AGK_OK;
}

extern "C" int agk_gate_residual_host(const agk_gate_residual_args* args) {
    if (const int code = agk::check(args)) return code;
    const agk_rows& shape = args->shape;
    std::vector<float> x(static_cast<size_t>(shape.width));
    for (int64_t row = 0; row < shape.rows; ++row) {
        const float* gate = of_row(shape, row, args->image_gate, args->shot_gate);
        for (int64_t i = 0; i < shape.width; ++i) {
            const int64_t at = row * shape.width + i;
            put(args->x, shape.dtype, at, get(args->x, shape.dtype, at) + gate[i] * get(args->branch, shape.dtype, at));
            // The norm uses the sum as rounded to dtype.
            x[i] = get(args->x, shape.dtype, at);
        }
        normalise(shape, args->norm, row, x);
    }
    return AGK_OK;
}

extern "C" int agk_epilogue_host(const agk_epilogue_args* args) {
    if (const int code = agk::check(args)) return code;
    std::vector<float> row(static_cast<size_t>(args->width));
    for (int64_t number = 0; number < args->rows; ++number) {
        for (int64_t i = 0; i < args->width; ++i) {
            const int64_t at = number * args->width + i;
            double value;
            if (args->row_scales == nullptr) {
                value = get(args->x, args->dtype, at);
            } else {
                const double scale = static_cast<double>(args->row_scales[number]) * args->column_scales[i];
                value = static_cast<const int32_t*>(args->x)[at] * scale + args->bias[i];
            }
            // The tanh approximation of GELU, as in the network (MODEL.md section 4).
            if (args->gelu) value *= 0.5 * (1.0 + std::tanh(std::sqrt(2.0 / 3.14159265358979323846) * (value + 0.044715 * value * value * value)));
            row[i] = static_cast<float>(value);
        }
        put_row(args->out, args->out_scales, args->out_dtype, number, row);
    }
    return AGK_OK;
}
