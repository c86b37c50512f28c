// Plain references of head_norm and head_norm_int8: one head of a token at a time, statistics in float64.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "../check.h"
#include "number.h"

namespace agk::host {
namespace {

enum Part { QUERY = 0, KEY = 1, VALUE = 2 };

int64_t index(const agk_heads& shape, int64_t entry, int64_t token, int64_t part, int64_t head) {
    return (((entry * shape.tokens + token) * 3 + part) * shape.heads + head) * shape.head_width;
}

std::vector<double> normalised(const agk_heads& shape, int64_t entry, int64_t token, Part part, int64_t head) {
    const int64_t begin = index(shape, entry, token, part, head);
    std::vector<double> x(static_cast<size_t>(shape.head_width));
    double mean = 0.0, variance = 0.0;
    for (int64_t i = 0; i < shape.head_width; ++i) mean += x[i] = get(shape.qkv, shape.dtype, begin + i);
    mean /= static_cast<double>(shape.head_width);
    for (const double value : x) variance += (value - mean) * (value - mean);
    variance /= static_cast<double>(shape.head_width);
    const float* weight = part == QUERY ? shape.query_weight : shape.key_weight;
    const float* bias = part == QUERY ? shape.query_bias : shape.key_bias;
    for (int64_t i = 0; i < shape.head_width; ++i) {
        x[i] = (x[i] - mean) / std::sqrt(variance + shape.epsilon) * weight[i] + bias[i];
    }
    return x;
}

// Quantises one head of one batch entry, minus `mean`, to INT8.
void quantise(const agk_heads& shape, int64_t entry, Part part, int64_t head, const std::vector<double>& mean,
              int64_t group, int8_t* out, float* scales) {
    for (int64_t first = 0; first < shape.tokens; first += group) {
        const int64_t last = std::min(first + group, shape.tokens);
        std::vector<float> values;
        float magnitude = 1e-30f;
        bool number = true;
        for (int64_t token = first; token < last; ++token) {
            const std::vector<double> x = normalised(shape, entry, token, part, head);
            for (int64_t i = 0; i < shape.head_width; ++i) {
                values.push_back(static_cast<float>(x[i] - mean[i]));
                magnitude = std::fmax(magnitude, std::fabs(values.back()));
                number = number && !std::isnan(values.back());
            }
        }
        scales[first / group] = number ? magnitude / I8_MAX : std::numeric_limits<float>::quiet_NaN();
        for (size_t i = 0; i < values.size(); ++i) {
            put(out, AGK_I8, first * shape.head_width + static_cast<int64_t>(i), values[i] * (I8_MAX / magnitude));
        }
    }
}

}  // namespace
}  // namespace agk::host

using namespace agk::host;

extern "C" int agk_head_norm_host(const agk_head_norm_args* args) {
    if (const int code = agk::check(args)) return code;
    const agk_heads& shape = args->shape;
    void* const outputs[] = {args->query, args->key, args->value};
    for (int64_t entry = 0; entry < shape.batch; ++entry) {
        for (int64_t token = 0; token < shape.tokens; ++token) {
            for (int64_t head = 0; head < shape.heads; ++head) {
                const int64_t to = entry * args->batch_stride + token * args->token_stride + head * args->head_stride;
                for (const Part part : {QUERY, KEY}) {
                    const std::vector<double> x = normalised(shape, entry, token, part, head);
                    for (int64_t i = 0; i < shape.head_width; ++i) {
                        put(outputs[part], shape.dtype, to + i, static_cast<float>(x[i]));
                    }
                }
                const int64_t from = index(shape, entry, token, VALUE, head);
                for (int64_t i = 0; args->value != nullptr && i < shape.head_width; ++i) {
                    put(args->value, shape.dtype, to + i, get(shape.qkv, shape.dtype, from + i));
                }
            }
        }
    }
    return AGK_OK;
}

extern "C" int agk_head_norm_int8_host(const agk_head_norm_int8_args* args) {
    if (const int code = agk::check(args)) return code;
    const agk_heads& shape = args->shape;
    for (int64_t row = 0; row < shape.batch * shape.heads; ++row) {
        const int64_t entry = row / shape.heads, head = row % shape.heads, begin = row * shape.tokens * shape.head_width;
        const std::vector<double> nothing(static_cast<size_t>(shape.head_width), 0.0);
        std::vector<double> mean = nothing;
        for (int64_t token = 0; token < shape.tokens; ++token) {
            const std::vector<double> x = normalised(shape, entry, token, KEY, head);
            for (int64_t i = 0; i < shape.head_width; ++i) mean[i] += x[i];
        }
        for (int64_t i = 0; i < shape.head_width; ++i) {
            mean[i] /= static_cast<double>(shape.tokens);
            args->key_mean[row * shape.head_width + i] = static_cast<float>(mean[i]);
        }
        const int64_t queries = (shape.tokens + args->query_group - 1) / args->query_group;
        const int64_t keys = (shape.tokens + args->key_group - 1) / args->key_group;
        quantise(shape, entry, QUERY, head, nothing, args->query_group, args->query + begin,
                 args->query_scales + row * queries);
        quantise(shape, entry, KEY, head, mean, args->key_group, args->key + begin, args->key_scales + row * keys);
    }
    return AGK_OK;
}
