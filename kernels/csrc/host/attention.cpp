// Plain reference of attention_int8: one query of a head at a time, in float64.
#include <cmath>
#include <limits>
#include <vector>

#include "../check.h"
#include "number.h"

using namespace agk::host;

extern "C" int agk_attention_int8_host(const agk_attention_int8_args* args) {
    if (const int code = agk::check(args)) return code;
    const int64_t tokens = args->tokens, width = args->head_width;
    const int64_t query_groups = (tokens + args->query_group - 1) / args->query_group;
    const int64_t key_groups = (tokens + args->key_group - 1) / args->key_group;
    std::vector<double> weights(static_cast<size_t>(tokens)), values(static_cast<size_t>(tokens * width));
    for (int64_t row = 0; row < args->batch * args->heads; ++row) {
        const int64_t entry = row / args->heads, head = row % args->heads;
        for (int64_t i = 0; i < tokens * width; ++i) {
            const int64_t token = i / width * args->token_stride, at = entry * args->batch_stride + head * args->head_stride;
            values[i] = get(args->value, args->dtype, at + token + i % width);
        }
        for (int64_t token = 0; token < tokens; ++token) {
            const int8_t* query = args->query + (row * tokens + token) * width;
            const double query_scale = args->query_scales[row * query_groups + token / args->query_group];
            double largest = -std::numeric_limits<double>::infinity(), sum = 0.0;
            for (int64_t other = 0; other < tokens; ++other) {
                const int8_t* key = args->key + (row * tokens + other) * width;
                int64_t score = 0;
                for (int64_t i = 0; i < width; ++i) score += query[i] * key[i];
                const double key_scale = args->key_scales[row * key_groups + other / args->key_group];
                weights[other] = static_cast<double>(score) * query_scale * key_scale / std::sqrt(static_cast<double>(width));
                largest = std::fmax(largest, weights[other]);
            }
            for (double& weight : weights) sum += weight = std::exp(weight - largest);
            for (int64_t i = 0; i < width; ++i) {
                double mixed = 0.0;
                for (int64_t other = 0; other < tokens; ++other) mixed += weights[other] * values[other * width + i];
                const int64_t to = ((entry * tokens + token) * args->heads + head) * width + i;
                put(args->out, args->dtype, to, static_cast<float>(mixed / sum));
            }
        }
    }
    return AGK_OK;
}
