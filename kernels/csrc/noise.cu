// Normal numbers from counters: Philox words, a table, weighted sums, and one sum and difference.
//
// A thread handles one block of Philox in each half, 32 numbers: integer arithmetic between gathers that depend on nothing. The
// table of 256 KiB stays in L2, and most of it in L1. The weights are the kernel's arguments, so all threads read them from the
// constant bank. Products and sums name their rounding: a fused multiply-add would give other bits than the references.
#include "launch.cuh"

namespace agk {
namespace {

constexpr int NOISE_THREADS = 128;

struct Weights {
    float of[AGK_MOST_DRAWS];
};

// Philox4x64-10: Salmon and others, "Parallel random numbers: as easy as 1, 2, 3", 2011.
__device__ __forceinline__ void philox(uint64_t (&c)[4], uint64_t k0, uint64_t k1) {
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        constexpr uint64_t M0 = 0xD2E7470EE14C6C93, M1 = 0xCA5A826395121157;
        const uint64_t high0 = __umul64hi(M0, c[0]), low0 = M0 * c[0], high1 = __umul64hi(M1, c[2]), low1 = M1 * c[2];
        c[0] = high1 ^ c[1] ^ k0;
        c[1] = low1;
        c[2] = high0 ^ c[3] ^ k1;
        c[3] = low0;
        k0 += 0x9E3779B97F4A7C15;
        k1 += 0xBB67AE8584CAA73B;
    }
}

__device__ __forceinline__ void add_draw(const agk_noise_args& a, int64_t block, int draw, float weight,
                                         float (&sums)[NOISE_VALUES]) {
    uint64_t words[4] = {static_cast<uint64_t>(block + 1), static_cast<uint64_t>(a.first + draw), a.turn[2], AGK_NOISE_VERSION};
    philox(words, a.turn[0], a.turn[1]);
#pragma unroll
    for (int i = 0; i < NOISE_VALUES; ++i) {
        const float value = a.table[words[i / 4] >> 16 * (i % 4) & 0xffff];
        sums[i] = __fadd_rn(sums[i], __fmul_rn(weight, value));
    }
}

// Writes the numbers from `at` on that are not beyond `count`.
__device__ __forceinline__ void write(float* out, int64_t at, int64_t count, const float (&values)[NOISE_VALUES]) {
#pragma unroll
    for (int i = 0; i < NOISE_VALUES; i += 4) {
        const float four[4] = {values[i], values[i + 1], values[i + 2], values[i + 3]};
        if (at + i + 4 <= count) {
            store(out + at + i, four);
        } else {
            for (int j = 0; j < 4 && at + i + j < count; ++j) out[at + i + j] = four[j];
        }
    }
}

__global__ void __launch_bounds__(NOISE_THREADS) noise_kernel(agk_noise_args a, Weights weights, int64_t blocks) {
    const int64_t block = static_cast<int64_t>(blockIdx.x) * NOISE_THREADS + threadIdx.x;
    if (block >= blocks) return;
    float x[NOISE_VALUES] = {}, y[NOISE_VALUES] = {};
    for (int draw = 0; draw < a.draws; ++draw) {
        add_draw(a, block, draw, weights.of[draw], x);
        add_draw(a, blocks + block, draw, weights.of[draw], y);
    }
    float sums[NOISE_VALUES], differences[NOISE_VALUES];
#pragma unroll
    for (int i = 0; i < NOISE_VALUES; ++i) {
        sums[i] = __fadd_rn(x[i], y[i]);
        differences[i] = __fsub_rn(x[i], y[i]);
    }
    write(a.out, block * NOISE_VALUES, a.count, sums);
    write(a.out, (blocks + block) * NOISE_VALUES, a.count, differences);
}

}  // namespace
}  // namespace agk

extern "C" int agk_noise(const agk_noise_args* args, void* stream) {
    using namespace agk;
    if (const int code = check(args)) return code;
    Weights weights{};
    for (int draw = 0; draw < args->draws; ++draw) weights.of[draw] = args->weights[draw];
    const int64_t blocks = divide_up(args->count, 2 * NOISE_VALUES);
    noise_kernel<<<static_cast<unsigned>(divide_up(blocks, NOISE_THREADS)), NOISE_THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        *args, weights, blocks);
    return launch_result("noise");
}
