// Attention whose scores are products of INT8 queries and keys: softmax(q k^T / 8) v for heads of 64.
//
// A warp keeps 32 queries, their scores' maximum and sum, and 32 x 64 results in registers and goes over all keys, 64 at a
// time: scores in int32, made float32 by the two scales, the softmax continued in float32, weights rounded to the values'
// type, times the values. The next keys and values are copied to shared memory meanwhile. Every sum is in a fixed order.
// With half sums, weights and values are float16, and so are the sums of 64 keys, which then go to the float32 ones.
// (One pass over the keys, and weights that stay in the registers of their scores: FlashAttention-2, arXiv:2307.08691.
// INT8 scores with a scale a block of smoothed keys, weights and values in 16 bits, half sums: SageAttention, arXiv:2410.02367.)
#include "attention.cuh"

namespace agk {
namespace {

constexpr int WARPS = 4, THREADS = WARPS * WARP;
// Two of 16 queries a warp: each key and value read from shared memory is used twice, which is what that memory's speed
// asks for.
constexpr int ROW_TILES = 2;
constexpr int QUERIES = WARPS * ROW_TILES * ROWS;
// Scores are summed on top of this int32: its bits are 1.5 * 2^23 as a float32, whose last bit is 1. So the sum's bits are
// the float 1.5 * 2^23 + score, as 64 * 127 * 127 < 2^22; taking it off is exact, and faster than a conversion.
constexpr int SCORE_BIAS = 0x4b400000;
constexpr float SCORE_BIAS_AS_FLOAT = 12582912.0f;

// Values whose sums are float16 are made so much smaller, as 64 of the largest must not overflow, and results larger.
constexpr float SHRINK = 1.0f / KEYS;

// Two values as float16, made smaller; of bfloat16 each is the upper half of a float32.
template <typename T>
__device__ __forceinline__ uint32_t as_halves(uint32_t bits) {
    if constexpr (std::is_same_v<T, __half>) {
        __half both[2];
        memcpy(static_cast<void*>(both), &bits, sizeof both);
        return pair<__half>(to_float(both[0]) * SHRINK, to_float(both[1]) * SHRINK);
    }
    return pair<__half>(__uint_as_float(bits << 16) * SHRINK, __uint_as_float(bits & 0xffff0000u) * SHRINK);
}

// Adds two sums in float16.
__device__ __forceinline__ void add_halves(float& low, float& high, uint32_t sums) {
    __half both[2];
    memcpy(static_cast<void*>(both), &sums, sizeof both);
    low += to_float(both[0]);
    high += to_float(both[1]);
}

// Over the four threads that hold a row.
__device__ __forceinline__ float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ __forceinline__ float row_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

// Grid (tiles of QUERIES queries, heads, batch). 255 registers a thread leave room for two blocks on a multiprocessor.
template <typename T, bool HALF_SUMS>
__global__ void __launch_bounds__(THREADS, 2) attention_kernel(agk_attention_int8_args a) {
    using Weight = std::conditional_t<HALF_SUMS, __half, T>;
    __shared__ Tile<T> tiles[2];
    const unsigned lane = threadIdx.x % WARP;
    const int tokens = static_cast<int>(a.tokens);
    const int first_row = blockIdx.x * QUERIES + threadIdx.x / WARP * ROW_TILES * ROWS + lane / 4;
    const Head<T> head(a);
    Fetcher<THREADS, T> fetcher(head, a.token_stride);
    KeyScales key_scales(head.key_scales, a.key_group);
    fetcher.next(tiles[0], tokens);

    uint32_t query[ROW_TILES][2][4];
    Softmax softmax[ROW_TILES];
    float out[ROW_TILES][WIDTH_TILES][4] = {}, sum[ROW_TILES][2] = {};
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; ++tile) take_queries(softmax[tile], query[tile], a, head, first_row + tile * ROWS);

#pragma unroll 1
    for (int first = 0; first < tokens; first += KEYS) {
        Tile<T>& tile = tiles[first / KEYS % 2];
        copies_arrived();
        // All threads' copies are there, and nobody reads the other tile any more.
        __syncthreads();
        if (first + KEYS < tokens) fetcher.next(tiles[(first / KEYS + 1) % 2], tokens - first - KEYS);

        int scores[ROW_TILES][KEY_TILES][4];
#pragma unroll
        for (int column = 0; column < KEY_TILES; ++column) {
            uint32_t key[4];
            load_matrices(key, tile.key(column * COLUMNS + lane % 8, lane / 8));
#pragma unroll
            for (int row = 0; row < ROW_TILES; ++row) {
#pragma unroll
                for (int i = 0; i < 4; ++i) scores[row][column][i] = SCORE_BIAS;
                multiply(scores[row][column], query[row][0], key[0], key[1]);
                multiply(scores[row][column], query[row][1], key[2], key[3]);
            }
        }
        uint32_t weights[ROW_TILES][STEPS][4];
        float shrink[ROW_TILES][2];
        const float key_scale = key_scales.next();
#pragma unroll
        for (int row = 0; row < ROW_TILES; ++row) {
            float exact[KEY_TILES][4];
#pragma unroll
            for (int i = 0; i < KEY_TILES * 4; ++i) {
                exact[i / 4][i % 4] = __int_as_float(scores[row][i / 4][i % 4]) - SCORE_BIAS_AS_FLOAT;
            }
            if (tokens - first < KEYS) mask(exact, tokens - first, -INFINITY);
            float largest[2];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                largest[half] = fmaxf(exact[0][2 * half], exact[0][2 * half + 1]);
#pragma unroll
                for (int column = 1; column < KEY_TILES; ++column) {
                    largest[half] = fmaxf(largest[half], fmaxf(exact[column][2 * half], exact[column][2 * half + 1]));
                }
                largest[half] = row_max(largest[half]);
            }
            continue_softmax(softmax[row], exact, largest, key_scale, shrink[row]);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                sum[row][half] *= shrink[row][half];
#pragma unroll
                for (int column = 0; column < KEY_TILES; ++column) {
                    sum[row][half] += exact[column][2 * half] + exact[column][2 * half + 1];
                }
            }
            pack<Weight>(exact, weights[row]);
        }
        if (any_new_maximum(shrink)) {
#pragma unroll
            for (int row = 0; row < ROW_TILES; ++row) rescale(out[row], shrink[row]);
        }
        // Two tiles of 8 columns at once: keys 0 to 7 and 8 to 15 of the step for each.
        if constexpr (HALF_SUMS) {
#pragma unroll
            for (int column = 0; column < WIDTH_TILES; column += 2) {
                uint32_t sums[ROW_TILES][2][2] = {};
#pragma unroll
                for (int step = 0; step < STEPS; ++step) {
                    uint32_t value[4];
                    load_transposed(value, tile.value(step * 16 + lane % 16, column + lane / 16));
#pragma unroll
                    for (int i = 0; i < 4; ++i) value[i] = as_halves<T>(value[i]);
#pragma unroll
                    for (int row = 0; row < ROW_TILES; ++row) {
                        multiply(sums[row][0], weights[row][step], value[0], value[1]);
                        multiply(sums[row][1], weights[row][step], value[2], value[3]);
                    }
                }
#pragma unroll
                for (int i = 0; i < ROW_TILES * 4; ++i) {
                    float(&of)[4] = out[i / 4][column + i / 2 % 2];
                    add_halves(of[i % 2 * 2], of[i % 2 * 2 + 1], sums[i / 4][i / 2 % 2][i % 2]);
                }
            }
        } else {
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
#pragma unroll
                for (int column = 0; column < WIDTH_TILES; column += 2) {
                    uint32_t value[4];
                    load_transposed(value, tile.value(step * 16 + lane % 16, column + lane / 16));
#pragma unroll
                    for (int row = 0; row < ROW_TILES; ++row) {
                        multiply<T>(out[row][column], weights[row][step], value[0], value[1]);
                        multiply<T>(out[row][column + 1], weights[row][step], value[2], value[3]);
                    }
                }
            }
        }
    }

#pragma unroll
    for (int tile = 0; tile < ROW_TILES; ++tile) {
        // Weights whose values were made smaller count as much less.
        constexpr float COUNT = HALF_SUMS ? SHRINK : 1.0f;
        const float of_rows[2] = {row_sum(sum[tile][0]) * COUNT, row_sum(sum[tile][1]) * COUNT};
        finish<T>(a, out[tile], of_rows, first_row + tile * ROWS);
    }
}

}  // namespace
}  // namespace agk

extern "C" int agk_attention_int8(const agk_attention_int8_args* args, void* to) {
    using namespace agk;
    if (const int code = check(args)) return code;
    const auto stream = static_cast<cudaStream_t>(to);
    const agk_attention_int8_args a = with_small_groups(*args);
    if (a.products == AGK_WARPGROUPS) return attention_int8_by_warpgroups(a, stream);
    const dim3 grid(static_cast<unsigned>(divide_up(a.tokens, QUERIES)), static_cast<unsigned>(a.heads),
                    static_cast<unsigned>(a.batch));
    return with_halves(a.dtype, [&](auto element) {
        using T = decltype(element);
        const auto kernel = a.products == AGK_HALF_SUMS ? attention_kernel<T, true> : attention_kernel<T, false>;
        kernel<<<grid, THREADS, 0, stream>>>(a);
        return launched("attention_int8");
    });
}
