// Plain reference of noise: a block at a time, products of 64 bits from halves of 32.
#include "../check.h"

namespace agk::host {
namespace {

struct Product {
    uint64_t high, low;
};

Product multiply(uint64_t a, uint64_t b) {
    const uint64_t mask = 0xffffffff, a0 = a & mask, a1 = a >> 32, b0 = b & mask, b1 = b >> 32;
    const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (middle & mask);
    return {a1 * b1 + (middle >> 32) + (other >> 32), a * b};
}

// Adds the weighted table values of one block of one draw to sums.
void add_block(const agk_noise_args& args, int64_t block, int draw, float* sums) {
    uint64_t word[4] = {static_cast<uint64_t>(block) + 1, static_cast<uint64_t>(args.first + draw), args.turn[2],
                        AGK_NOISE_VERSION};
    uint64_t key[2] = {args.turn[0], args.turn[1]};
    for (int round = 0; round < 10; ++round) {
        const Product one = multiply(0xD2E7470EE14C6C93, word[0]), other = multiply(0xCA5A826395121157, word[2]);
        word[0] = other.high ^ word[1] ^ key[0];
        word[1] = other.low;
        word[2] = one.high ^ word[3] ^ key[1];
        word[3] = one.low;
        key[0] += 0x9E3779B97F4A7C15;
        key[1] += 0xBB67AE8584CAA73B;
    }
    for (int64_t i = 0; i < NOISE_VALUES; ++i) {
        const float weighted = args.weights[draw] * args.table[word[i / 4] >> 16 * (i % 4) & 0xffff];
        sums[i] += weighted;
    }
}

}  // namespace
}  // namespace agk::host

extern "C" int agk_noise_host(const agk_noise_args* args) {
    if (const int code = agk::check(args)) return code;
    constexpr int64_t VALUES = agk::NOISE_VALUES;
    const int64_t blocks = (args->count + 2 * VALUES - 1) / (2 * VALUES);
    for (int64_t block = 0; block < blocks; ++block) {
        float x[VALUES] = {}, y[VALUES] = {};
        for (int draw = 0; draw < args->draws; ++draw) {
            agk::host::add_block(*args, block, draw, x);
            agk::host::add_block(*args, blocks + block, draw, y);
        }
        for (int64_t i = 0; i < VALUES; ++i) {
            const int64_t one = block * VALUES + i, other = blocks * VALUES + one;
            if (one < args->count) args->out[one] = x[i] + y[i];
            if (other < args->count) args->out[other] = x[i] - y[i];
        }
    }
    return AGK_OK;
}
