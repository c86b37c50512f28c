// Plain reference of attention_int8: a query of a head at a time, in float64.
#include <algorithm>
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
    std::vector<double> weights(static_cast<size_t>(tokens));
    for (int64_t row = 0; row < args->batch * args->heads; ++row) {
        const int64_t entry = row / args->heads, head = row % args->heads;
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
                for (int64_t other = 0; other < tokens; ++other) {
                    const int64_t at = entry * args->batch_stride + other * args->token_stride + head * args->head_stride + i;
                    mixed += weights[other] / sum * get(args->value, args->dtype, at);
                }
                const int64_t to = ((entry * tokens + token) * args->heads + head) * width + i;
                put(args->out, args->dtype, to, static_cast<float>(mixed));
            }
        }
    }
    return AGK_OK;
}
