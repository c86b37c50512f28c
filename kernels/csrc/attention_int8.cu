// Attention whose scores are products of INT8 queries and keys: softmax(q k^T / 8) v for heads of 64.
//
// A warp keeps 32 queries, their scores' maximum and sum, and 32 x 64 results in registers and goes over all keys, 64 at a
// time: scores in int32, made float32 by the two scales, the softmax continued in float32, weights rounded to the values'
// type, times the values. The next keys and values are copied to shared memory meanwhile. Every sum is in a fixed order.
// With half_sums, weights and values are float16, and so are the sums of 64 keys, which then go to the float32 ones.
// (One pass over the keys, and weights that stay in the registers of their scores: FlashAttention-2, arXiv:2307.08691.
// INT8 scores with a scale a block of smoothed keys, weights and values in 16 bits, half sums: SageAttention, arXiv:2410.02367.)
#include <cfloat>

#include "launch.cuh"
#include "tensor_cores.cuh"

namespace agk {
namespace {

constexpr int WARPS = 4, THREADS = WARPS * WARP;
// A product on tensor cores is 16 rows by 8 columns. Two of 16 queries a warp: each key and value read from shared memory
// is used twice, which is what that memory's speed asks for.
constexpr int ROWS = 16, COLUMNS = 8, ROW_TILES = 2;
constexpr int QUERIES = WARPS * ROW_TILES * ROWS, KEYS = ATTENTION_KEYS, WIDTH = ATTENTION_WIDTH;
constexpr int KEY_TILES = KEYS / COLUMNS, WIDTH_TILES = WIDTH / COLUMNS, STEPS = KEYS / 16;
constexpr int KEY_CHUNKS = WIDTH / 16, VALUE_CHUNKS = WIDTH / 8;
// exp(x / sqrt(64)) as a power of two.
constexpr float LOG2E_BY_8 = 1.4426950408889634f / 8.0f;
// Scores are summed on top of this int32: its bits are 1.5 * 2^23 as a float32, whose last bit is 1. So the sum's bits are
// the float 1.5 * 2^23 + score, as 64 * 127 * 127 < 2^22; taking it off is exact, and faster than a conversion.
constexpr int SCORE_BIAS = 0x4b400000;
constexpr float SCORE_BIAS_AS_FLOAT = 12582912.0f;

// Keys and values of KEYS tokens in shared memory. The 16-byte chunks of a row change places with the row's number, so that
// the eight rows of a matrix that is loaded lie in different banks.
template <typename T>
struct alignas(128) Tile {
    int8_t keys[KEYS * WIDTH];
    T values[KEYS * WIDTH];

    __device__ __forceinline__ int8_t* key(unsigned row, unsigned chunk) {
        return keys + row * WIDTH + (chunk ^ (row / 2 % KEY_CHUNKS)) * 16;
    }
    __device__ __forceinline__ T* value(unsigned row, unsigned chunk) {
        return values + row * WIDTH + (chunk ^ (row % VALUE_CHUNKS)) * 8;
    }
};

// Begins to copy the tokens from `first` on, of `tokens`; zeros after the last one.
template <typename T>
__device__ __forceinline__ void fetch(Tile<T>& to, const int8_t* keys, const T* values, int64_t stride, unsigned first,
                                      unsigned tokens) {
    keys += static_cast<int64_t>(first) * WIDTH;
    values += first * stride;
#pragma unroll
    for (unsigned turn = 0; turn < KEYS * KEY_CHUNKS / THREADS; ++turn) {
        const unsigned i = turn * THREADS + threadIdx.x, row = i / KEY_CHUNKS;
        copy_in_background(to.key(row, i % KEY_CHUNKS), keys + i * 16, first + row < tokens);
    }
#pragma unroll
    for (unsigned turn = 0; turn < KEYS * VALUE_CHUNKS / THREADS; ++turn) {
        const unsigned i = turn * THREADS + threadIdx.x, row = i / VALUE_CHUNKS, chunk = i % VALUE_CHUNKS;
        copy_in_background(to.value(row, chunk), values + row * stride + chunk * 8, first + row < tokens);
    }
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

template <typename T>
__device__ __forceinline__ uint32_t pair(float low, float high) {
    uint32_t bits;
    if constexpr (std::is_same_v<T, __half>) {
        const __half2 both = __floats2half2_rn(low, high);
        memcpy(&bits, &both, sizeof bits);
    } else {
        const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
        memcpy(&bits, &both, sizeof bits);
    }
    return bits;
}

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

// What a thread knows of its two rows (8 apart) of a tile of 16 queries.
struct Softmax {
    float factor[2], largest[2], sum[2];
};

// Scores of 16 queries by KEYS keys, of which `keys` are there, to weights in pairs as the next product takes them; what was
// found before is brought to the new maximum. The largest weight is 1.
template <typename T>
__device__ __forceinline__ void continue_softmax(Softmax& row, const int (&scores)[KEY_TILES][4], float key_scale, int keys,
                                                 float (&out)[WIDTH_TILES][4], uint32_t (&weights)[STEPS][4]) {
    const int column = threadIdx.x % 4 * 2;
    float value[KEY_TILES][4];
#pragma unroll
    for (int tile = 0; tile < KEY_TILES; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) value[tile][i] = __int_as_float(scores[tile][i]) - SCORE_BIAS_AS_FLOAT;
    }
    if (keys < KEYS) {
#pragma unroll
        for (int tile = 0; tile < KEY_TILES; ++tile) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (tile * COLUMNS + column + i % 2 >= keys) value[tile][i] = -INFINITY;
            }
        }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float scale = row.factor[half] * key_scale;
        // Rows of zeros have the smallest scales, whose product is 0; and 0 times minus infinity is no number.
        if (scale == 0.0f) scale = FLT_MIN;
        float largest = -INFINITY;
#pragma unroll
        for (int tile = 0; tile < KEY_TILES; ++tile) {
            largest = fmaxf(largest, fmaxf(value[tile][2 * half], value[tile][2 * half + 1]));
        }
        largest = fmaxf(row.largest[half], row_max(largest) * scale);
        const float shrink = power_of_two(row.largest[half] - largest);
        row.largest[half] = largest;
        row.sum[half] *= shrink;
#pragma unroll
        for (int tile = 0; tile < KEY_TILES; ++tile) {
            const float low = power_of_two(fmaf(value[tile][2 * half], scale, -largest));
            const float high = power_of_two(fmaf(value[tile][2 * half + 1], scale, -largest));
            row.sum[half] += low + high;
            weights[tile / 2][tile % 2 * 2 + half] = pair<T>(low, high);
        }
#pragma unroll
        for (int tile = 0; tile < WIDTH_TILES; ++tile) {
            out[tile][2 * half] *= shrink;
            out[tile][2 * half + 1] *= shrink;
        }
    }
}

// Grid (tiles of QUERIES queries, heads, batch). 255 registers a thread leave room for two blocks on a multiprocessor.
template <typename T, bool HALF_SUMS>
__global__ void __launch_bounds__(THREADS, 2) attention_kernel(agk_attention_int8_args a) {
    using Weight = std::conditional_t<HALF_SUMS, __half, T>;
    __shared__ Tile<T> tiles[2];
    const unsigned lane = threadIdx.x % WARP;
    const int tokens = static_cast<int>(a.tokens), head = blockIdx.y;
    const int first_row = blockIdx.x * QUERIES + threadIdx.x / WARP * ROW_TILES * ROWS + lane / 4;
    const int64_t batch_row = static_cast<int64_t>(blockIdx.z) * a.heads + head, begin = batch_row * a.tokens * WIDTH;
    const float* query_scales = a.query_scales + batch_row * ((a.tokens + a.query_group - 1) / a.query_group);
    const float* key_scales = a.key_scales + batch_row * ((a.tokens + a.key_group - 1) / a.key_group);
    // Groups of more tokens than there are are one; in 32 bits, as a division in 64 takes long.
    const auto query_group = static_cast<unsigned>(min(a.query_group, a.tokens));
    const auto key_group = static_cast<unsigned>(min(a.key_group, int64_t{INT32_MAX}));
    const int8_t* keys = a.key + begin;
    const T* values = static_cast<const T*>(a.value) + blockIdx.z * a.batch_stride + head * a.head_stride;
    fetch(tiles[0], keys, values, a.token_stride, 0, tokens);

    // Queries as the product takes them: of each 32 columns, four from 4 (lane % 4) on and four from 16 later.
    uint32_t query[ROW_TILES][2][4];
    Softmax softmax[ROW_TILES];
    float out[ROW_TILES][WIDTH_TILES][4] = {};
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + tile * ROWS + half * 8;
            softmax[tile].factor[half] = row < tokens ? query_scales[row / query_group] * LOG2E_BY_8 : 0.0f;
            softmax[tile].largest[half] = -INFINITY;
            softmax[tile].sum[half] = 0.0f;
            const auto* words = reinterpret_cast<const uint32_t*>(a.query + begin + static_cast<int64_t>(row) * WIDTH);
#pragma unroll
            for (int quarter = 0; quarter < 4; ++quarter) {
                query[tile][quarter / 2][quarter % 2 * 2 + half] = row < tokens ? words[quarter * 4 + lane % 4] : 0;
            }
        }
    }

#pragma unroll 1
    for (int first = 0; first < tokens; first += KEYS) {
        Tile<T>& tile = tiles[first / KEYS % 2];
        copies_arrived();
        // All threads' copies are there, and nobody reads the other tile any more.
        __syncthreads();
        if (first + KEYS < tokens) fetch(tiles[(first / KEYS + 1) % 2], keys, values, a.token_stride, first + KEYS, tokens);

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
        const float key_scale = key_scales[first / key_group];
#pragma unroll
        for (int row = 0; row < ROW_TILES; ++row) {
            continue_softmax<Weight>(softmax[row], scores[row], key_scale, tokens - first, out[row], weights[row]);
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
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float inverse = (HALF_SUMS ? 1.0f / SHRINK : 1.0f) / row_sum(softmax[tile].sum[half]);
            const int row = first_row + tile * ROWS + half * 8;
            if (row >= tokens) continue;
            T* to = static_cast<T*>(a.out) + ((blockIdx.z * a.tokens + row) * a.heads + head) * WIDTH + lane % 4 * 2;
#pragma unroll
            for (int column = 0; column < WIDTH_TILES; ++column) {
                const float result[2] = {out[tile][column][2 * half] * inverse, out[tile][column][2 * half + 1] * inverse};
                store(to + column * COLUMNS, result);
            }
        }
    }
}

}  // namespace
}  // namespace agk

extern "C" int agk_attention_int8(const agk_attention_int8_args* args, void* to) {
    using namespace agk;
    if (const int code = check(args)) return code;
    const dim3 grid(static_cast<unsigned>(divide_up(args->tokens, QUERIES)), static_cast<unsigned>(args->heads),
                    static_cast<unsigned>(args->batch));
    const auto stream = static_cast<cudaStream_t>(to);
    return with_halves(args->dtype, [&](auto element) {
        using T = decltype(element);
        const auto kernel = args->half_sums ? attention_kernel<T, true> : attention_kernel<T, false>;
        kernel<<<grid, THREADS, 0, stream>>>(*args);
        return launched("attention_int8");
    });
}
