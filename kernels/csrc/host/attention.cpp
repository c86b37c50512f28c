// Plain references of attention_int8 and attention: one query of a head at a time, in float64.
#include <cmath>
#include <limits>
#include <vector>

#include "../check.h"
#include "number.h"

using namespace agk::host;

namespace {

// Index of a token of a head, in arrays with the arguments' strides.
template <typename Args>
int64_t index(const Args& a, int64_t row, int64_t token) {
    return row / a.heads * a.batch_stride + row % a.heads * a.head_stride + token * a.token_stride;
}

// score(row, token, other): of a query and a key; row is entry * heads + head.
template <typename Args, typename Score>
void attend(const Args& a, const Score& score) {
    const int64_t tokens = a.tokens, width = a.head_width;
    std::vector<double> weights(static_cast<size_t>(tokens)), values(static_cast<size_t>(tokens * width));
    for (int64_t row = 0; row < a.batch * a.heads; ++row) {
        for (int64_t i = 0; i < tokens * width; ++i) values[i] = get(a.value, a.dtype, index(a, row, i / width) + i % width);
        for (int64_t token = 0; token < tokens; ++token) {
            double maximum = -std::numeric_limits<double>::infinity(), sum = 0.0;
            for (int64_t other = 0; other < tokens; ++other) {
                weights[other] = score(row, token, other) / std::sqrt(static_cast<double>(width));
                maximum = std::fmax(maximum, weights[other]);
            }
            for (double& weight : weights) sum += weight = std::exp(weight - maximum);
            for (int64_t i = 0; i < width; ++i) {
                double mixed = 0.0;
                for (int64_t other = 0; other < tokens; ++other) mixed += weights[other] * values[other * width + i];
                const int64_t to = ((row / a.heads * tokens + token) * a.heads + row % a.heads) * width + i;
                put(a.out, a.dtype, to, static_cast<float>(mixed / sum));
            }
        }
    }
}

}  // namespace

extern "C" int agk_attention_int8_host(const agk_attention_int8_args* args) {
    if (const int code = agk::check(args)) return code;
    const agk_attention_int8_args& a = *args;
    const int64_t tokens = a.tokens, width = a.head_width;
    const int64_t query_groups = (tokens + a.query_group - 1) / a.query_group;
    const int64_t key_groups = (tokens + a.key_group - 1) / a.key_group;
    attend(a, [&](int64_t row, int64_t token, int64_t other) {
        const int8_t *query = a.query + (row * tokens + token) * width, *key = a.key + (row * tokens + other) * width;
        int64_t codes = 0;
        for (int64_t i = 0; i < width; ++i) codes += query[i] * key[i];
        const double query_scale = a.query_scales[row * query_groups + token / a.query_group];
        const double key_scale = a.key_scales[row * key_groups + other / a.key_group];
        return static_cast<double>(codes) * query_scale * key_scale;
    });
    return AGK_OK;
}

extern "C" int agk_attention_host(const agk_attention_args* args) {
    if (const int code = agk::check(args)) return code;
    const agk_attention_args& a = *args;
    attend(a, [&](int64_t row, int64_t token, int64_t other) {
        const int64_t query = index(a, row, token), key = index(a, row, other);
        double score = 0.0;
        for (int64_t i = 0; i < a.head_width; ++i) {
            score += static_cast<double>(get(a.query, a.dtype, query + i)) * get(a.key, a.dtype, key + i);
        }
        return score;
    });
    return AGK_OK;
}
