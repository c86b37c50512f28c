// Attention with INT8 queries and keys: softmax(q k^T / 8) v for heads of 64.
//
// A warp keeps 32 queries, their running maxima and sums, and a 32 x 64 output in registers, and loops over all keys, 64 at a
// time, while the next keys and values are copied to shared memory. Scores are int32, scaled to float32; the online softmax is
// float32; weights are rounded to the values' type. Every sum has a fixed order. With HALF_SUMS, weights, values and the sums of
// 64 keys are float16; these are added to float32 sums.
// (One pass over the keys, and weights that stay in the registers of their scores: FlashAttention-2, arXiv:2307.08691. INT8
// scores with one scale per block of smoothed keys, 16-bit weights and values, half sums: SageAttention, arXiv:2410.02367.)
#include "attention.cuh"

namespace agk {
namespace {

constexpr int WARPS = COPY_THREADS / WARP;
// Each warp has two tiles of 16 queries, so each key and value read from shared memory is used twice. With one tile, shared
// memory bandwidth would be the limit.
constexpr int ROW_TILES = 2;
constexpr int QUERIES = WARPS * ROW_TILES * ROWS;
// Initial value of the int32 accumulators: the bits of the float32 1.5 * 2^23, whose ulp is 1. As 64 * 127 * 127 < 2^22, the
// final bits are the float 1.5 * 2^23 + score. Subtracting the bias is exact, and faster than a conversion.
constexpr int SCORE_BIAS = 0x4b400000;
constexpr float SCORE_BIAS_AS_FLOAT = 12582912.0f;

// With float16 sums, values are scaled by this, so that 64 of the largest do not overflow.
constexpr float VALUE_SCALE = 1.0f / KEYS;

// Two values as scaled-down float16. A bfloat16 is the upper half of a float32.
template <typename T>
__device__ __forceinline__ uint32_t scaled_halves(uint32_t bits) {
    if constexpr (std::is_same_v<T, __half>) {
        __half both[2];
        memcpy(static_cast<void*>(both), &bits, sizeof both);
        return pack_pair<__half>(to_float(both[0]) * VALUE_SCALE, to_float(both[1]) * VALUE_SCALE);
    }
    return pack_pair<__half>(__uint_as_float(bits << 16) * VALUE_SCALE, __uint_as_float(bits & 0xffff0000u) * VALUE_SCALE);
}

// Adds two float16 sums to float32 ones.
__device__ __forceinline__ void add_halves(float& low, float& high, uint32_t sums) {
    __half both[2];
    memcpy(static_cast<void*>(both), &sums, sizeof both);
    low += to_float(both[0]);
    high += to_float(both[1]);
}

// Keys and values of KEYS tokens in shared memory, swizzled as RowLoader writes them.
template <typename T>
struct alignas(128) Tile {
    int8_t keys[KEYS * WIDTH];
    T values[KEYS * WIDTH];

    __device__ __forceinline__ int8_t* key(unsigned row, unsigned chunk) {
        return keys + row * WIDTH + (chunk ^ (row / 2 % 4)) * 16;
    }
    __device__ __forceinline__ T* value(unsigned row, unsigned chunk) {
        return values + row * WIDTH + (chunk ^ (row % 8)) * 8;
    }
};

// Grid: (tiles of QUERIES queries, heads, batch). At most 255 registers per thread, so two blocks fit on a multiprocessor.
template <typename T, bool HALF_SUMS>
__global__ void __launch_bounds__(COPY_THREADS, 2) attention_kernel(agk_attention_int8_args a) {
    using Weight = std::conditional_t<HALF_SUMS, __half, T>;
    __shared__ Tile<T> tiles[2];
    const unsigned lane = threadIdx.x % WARP;
    const int tokens = static_cast<int>(a.tokens);
    const int first_row = blockIdx.x * QUERIES + threadIdx.x / WARP * ROW_TILES * ROWS + lane / 4;
    const HeadPointers<T> head(a);
    RowLoader<int8_t> keys(head.keys, WIDTH);
    RowLoader<T> values(head.values, a.token_stride);
    const auto copy_next = [&](Tile<T>& to, int remaining) {
        keys.next(to.keys, remaining);
        values.next(to.values, remaining);
    };
    KeyScales key_scales(head.key_scales, a.key_group);
    copy_next(tiles[0], tokens);

    uint32_t query[ROW_TILES][2][4];
    Softmax softmax[ROW_TILES];
    float out[ROW_TILES][WIDTH_TILES][4] = {}, sum[ROW_TILES][2] = {};
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; ++tile) load_queries(softmax[tile], query[tile], a, head, first_row + tile * ROWS);

#pragma unroll 1
    for (int first = 0; first < tokens; first += KEYS) {
        Tile<T>& tile = tiles[first / KEYS % 2];
        cp_async_wait_all();
        // All threads' copies have landed, and no thread still reads the other tile.
        __syncthreads();
        if (first + KEYS < tokens) copy_next(tiles[(first / KEYS + 1) % 2], tokens - first - KEYS);

        int scores[ROW_TILES][KEY_TILES][4];
#pragma unroll
        for (int column = 0; column < KEY_TILES; ++column) {
            uint32_t key[4];
            ldmatrix_x4(key, tile.key(column * COLUMNS + lane % 8, lane / 8));
#pragma unroll
            for (int row = 0; row < ROW_TILES; ++row) {
#pragma unroll
                for (int i = 0; i < 4; ++i) scores[row][column][i] = SCORE_BIAS;
                mma(scores[row][column], query[row][0], key[0], key[1]);
                mma(scores[row][column], query[row][1], key[2], key[3]);
            }
        }
        uint32_t weights[ROW_TILES][STEPS][4];
        float correction[ROW_TILES][2];
        const float key_scale = key_scales.next();
#pragma unroll
        for (int row = 0; row < ROW_TILES; ++row) {
            float exact[KEY_TILES][4];
#pragma unroll
            for (int i = 0; i < KEY_TILES * 4; ++i) {
                exact[i / 4][i % 4] = __int_as_float(scores[row][i / 4][i % 4]) - SCORE_BIAS_AS_FLOAT;
            }
            if (tokens - first < KEYS) mask(exact, tokens - first, -INFINITY);
            float maximum[2];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                maximum[half] = fmaxf(exact[0][2 * half], exact[0][2 * half + 1]);
#pragma unroll
                for (int column = 1; column < KEY_TILES; ++column) {
                    maximum[half] = fmaxf(maximum[half], fmaxf(exact[column][2 * half], exact[column][2 * half + 1]));
                }
                maximum[half] = row_max(maximum[half]);
            }
            online_softmax(softmax[row], exact, maximum, key_scale, correction[row]);
            add_weights(sum[row], exact, correction[row]);
            pack<Weight>(exact, weights[row]);
        }
        if (any_maximum_changed(correction)) {
#pragma unroll
            for (int row = 0; row < ROW_TILES; ++row) rescale(out[row], correction[row]);
        }
        // Two tiles of 8 columns at a time, each with keys 0 to 7 and 8 to 15 of the step.
        if constexpr (HALF_SUMS) {
#pragma unroll
            for (int column = 0; column < WIDTH_TILES; column += 2) {
                uint32_t sums[ROW_TILES][2][2] = {};
#pragma unroll
                for (int step = 0; step < STEPS; ++step) {
                    uint32_t value[4];
                    ldmatrix_x4_trans(value, tile.value(step * 16 + lane % 16, column + lane / 16));
#pragma unroll
                    for (int i = 0; i < 4; ++i) value[i] = scaled_halves<T>(value[i]);
#pragma unroll
                    for (int row = 0; row < ROW_TILES; ++row) {
                        mma(sums[row][0], weights[row][step], value[0], value[1]);
                        mma(sums[row][1], weights[row][step], value[2], value[3]);
                    }
                }
#pragma unroll
                for (int i = 0; i < ROW_TILES * 4; ++i) {
                    float(&total)[4] = out[i / 4][column + i / 2 % 2];
                    add_halves(total[i % 2 * 2], total[i % 2 * 2 + 1], sums[i / 4][i / 2 % 2][i % 2]);
                }
            }
        } else {
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
#pragma unroll
                for (int column = 0; column < WIDTH_TILES; column += 2) {
                    uint32_t value[4];
                    ldmatrix_x4_trans(value, tile.value(step * 16 + lane % 16, column + lane / 16));
#pragma unroll
                    for (int row = 0; row < ROW_TILES; ++row) {
                        mma<T>(out[row][column], weights[row][step], value[0], value[1]);
                        mma<T>(out[row][column + 1], weights[row][step], value[2], value[3]);
                    }
                }
            }
        }
    }

#pragma unroll
    for (int tile = 0; tile < ROW_TILES; ++tile) {
        constexpr float SUM_SCALE = HALF_SUMS ? VALUE_SCALE : 1.0f;
        const float row_sums[2] = {row_sum(sum[tile][0]) * SUM_SCALE, row_sum(sum[tile][1]) * SUM_SCALE};
        store_out<T>(a, out[tile], row_sums, first_row + tile * ROWS);
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
        kernel<<<grid, COPY_THREADS, 0, stream>>>(a);
        return launch_result("attention_int8");
    });
}
