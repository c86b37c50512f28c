// Plain references of head_norm and attention, in float64.
#include <cmath>
#include <limits>
#include <vector>

#include "../check.h"
#include "number.h"

namespace agk::host {
namespace {

enum Part { QUERY = 0, KEY = 1, VALUE = 2 };

// Index of a head's first element in qkv [batch, tokens, 3, heads, head_width].
template <typename Args>
int64_t index(const Args& a, int64_t entry, int64_t token, Part part, int64_t head) {
    return (((entry * a.tokens + token) * 3 + part) * a.heads + head) * a.head_width;
}

void normalise(const agk_head_norm_args& a, int64_t begin, const float* weight, const float* bias) {
    std::vector<double> x(static_cast<size_t>(a.head_width));
    double mean = 0.0, variance = 0.0;
    for (int64_t i = 0; i < a.head_width; ++i) mean += x[i] = get(a.qkv, a.dtype, begin + i);
    mean /= static_cast<double>(a.head_width);
    for (const double value : x) variance += (value - mean) * (value - mean);
    variance /= static_cast<double>(a.head_width);
    for (int64_t i = 0; i < a.head_width; ++i) {
        const double normalised = (x[i] - mean) / std::sqrt(variance + a.epsilon);
        put(a.qkv, a.dtype, begin + i, static_cast<float>(normalised * weight[i] + bias[i]));
    }
}

// One head of the queries, keys or values of a batch entry, [tokens, head_width].
std::vector<float> decode_head(const agk_attention_args& a, int64_t entry, Part part, int64_t head) {
    std::vector<float> values;
    for (int64_t token = 0; token < a.tokens; ++token) {
        const int64_t begin = index(a, entry, token, part, head);
        for (int64_t i = 0; i < a.head_width; ++i) values.push_back(get(a.qkv, a.dtype, begin + i));
    }
    return values;
}

void attend(const agk_attention_args& a, int64_t entry, int64_t head) {
    const int64_t tokens = a.tokens, width = a.head_width;
    const auto query = decode_head(a, entry, QUERY, head), key = decode_head(a, entry, KEY, head);
    const auto value = decode_head(a, entry, VALUE, head);
    std::vector<double> weights(static_cast<size_t>(tokens));
    for (int64_t token = 0; token < tokens; ++token) {
        double maximum = -std::numeric_limits<double>::infinity(), sum = 0.0;
        for (int64_t other = 0; other < tokens; ++other) {
            double score = 0.0;
            for (int64_t i = 0; i < width; ++i) score += static_cast<double>(query[token * width + i]) * key[other * width + i];
            weights[other] = score / std::sqrt(static_cast<double>(width));
            maximum = std::fmax(maximum, weights[other]);
        }
        for (double& weight : weights) sum += weight = std::exp(weight - maximum);
        for (int64_t i = 0; i < width; ++i) {
            double mixed = 0.0;
            for (int64_t other = 0; other < tokens; ++other) mixed += weights[other] * value[other * width + i];
            put(a.out, a.dtype, ((entry * tokens + token) * a.heads + head) * width + i, static_cast<float>(mixed / sum));
        }
    }
}

}  // namespace
}  // namespace agk::host

using namespace agk::host;

extern "C" int agk_head_norm_host(const agk_head_norm_args* args) {
    if (const int code = agk::check(args)) return code;
    for (int64_t i = 0; i < args->batch * args->tokens * args->heads; ++i) {
        const int64_t head = i % args->heads, token = i / args->heads % args->tokens, entry = i / args->heads / args->tokens;
        normalise(*args, index(*args, entry, token, QUERY, head), args->query_weight, args->query_bias);
        normalise(*args, index(*args, entry, token, KEY, head), args->key_weight, args->key_bias);
    }
    return AGK_OK;
}

extern "C" int agk_attention_host(const agk_attention_args* args) {
    if (const int code = agk::check(args)) return code;
    for (int64_t i = 0; i < args->batch * args->heads; ++i) attend(*args, i / args->heads, i % args->heads);
    return AGK_OK;
}
