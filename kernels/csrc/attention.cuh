// What attention with INT8 scores is made of, whichever instructions multiply: tiles of keys and values in shared memory, the
// softmax that goes on from tile to tile, queries as they come and results as they go.
//
// A thread holds, of each 16 queries of its warp, two rows (lane / 4 and 8 below) and of each eight columns two, as the
// PTX ISA has sums of mma.m16n8 and of wgmma alike.
#pragma once

#include <algorithm>
#include <cfloat>

#include "launch.cuh"
#include "tensor_cores.cuh"

namespace agk {

constexpr int KEYS = ATTENTION_KEYS, WIDTH = ATTENTION_WIDTH;
// A product on tensor cores is 16 rows a warp and tiles of 8 columns; of 16 bits it goes 16 deep.
constexpr int ROWS = 16, COLUMNS = 8;
constexpr int KEY_TILES = KEYS / COLUMNS, WIDTH_TILES = WIDTH / COLUMNS, STEPS = KEYS / 16;
constexpr int KEY_CHUNKS = WIDTH / 16, VALUE_CHUNKS = WIDTH / 8;
// exp(x / sqrt(64)) as a power of two.
constexpr float LOG2E_BY_8 = 1.4426950408889634f / 8.0f;

// Keys and values of KEYS tokens in shared memory. The 16-byte chunks of a row change places with the row's number, so that
// the eight rows of a matrix that is loaded lie in different banks: wgmma's swizzles of 64 and of 128 bytes, whose pattern
// begins at a multiple of 1024.
template <typename T>
struct alignas(1024) Tile {
    int8_t keys[KEYS * WIDTH];
    T values[KEYS * WIDTH];

    __device__ __forceinline__ int8_t* key(unsigned row, unsigned chunk) {
        return keys + row * WIDTH + (chunk ^ (row / 2 % KEY_CHUNKS)) * 16;
    }
    __device__ __forceinline__ T* value(unsigned row, unsigned chunk) {
        return values + row * WIDTH + (chunk ^ (row % VALUE_CHUNKS)) * 8;
    }
};

// Where the keys, values and scales of a block's head lie.
template <typename T>
struct Head {
    const int8_t* keys;
    const T* values;
    const float *query_scales, *key_scales;
    int64_t offset;

    // Of grid (tiles of queries, heads, batch).
    __device__ __forceinline__ explicit Head(const agk_attention_int8_args& a) {
        const int64_t row = static_cast<int64_t>(blockIdx.z) * a.heads + blockIdx.y;
        offset = row * a.tokens * WIDTH;
        keys = a.key + offset;
        values = static_cast<const T*>(a.value) + blockIdx.z * a.batch_stride + blockIdx.y * a.head_stride;
        query_scales = a.query_scales + row * ((a.tokens + a.query_group - 1) / a.query_group);
        key_scales = a.key_scales + row * ((a.tokens + a.key_group - 1) / a.key_group);
    }
};

// Copies a head's keys and values to tiles, one after the other, by all THREADS of a block.
template <int THREADS, typename T>
class Fetcher {
  public:
    __device__ __forceinline__ Fetcher(const Head<T>& head, int64_t stride)
        : keys(head.keys + threadIdx.x * 16),
          values(head.values + threadIdx.x / VALUE_CHUNKS * stride + threadIdx.x % VALUE_CHUNKS * 8),
          stride(stride) {}

    // Begins to copy the next KEYS tokens, of which `left` are there, and zeros for the others.
    __device__ __forceinline__ void next(Tile<T>& to, int left) {
        constexpr int KEY_ROWS = THREADS / KEY_CHUNKS, VALUE_ROWS = THREADS / VALUE_CHUNKS;
        static_assert(KEY_ROWS % 8 == 0 && VALUE_ROWS % 8 == 0, "a chunk's place in its row is the same in all its rows");
        const int key = threadIdx.x / KEY_CHUNKS, value = threadIdx.x / VALUE_CHUNKS;
#pragma unroll
        for (int row = 0; row < KEYS; row += KEY_ROWS) {
            if (KEYS % KEY_ROWS != 0 && row + key >= KEYS) continue;
            copy_in_background(to.key(key, threadIdx.x % KEY_CHUNKS) + row * WIDTH, keys + row * WIDTH, row + key < left);
        }
#pragma unroll
        for (int row = 0; row < KEYS; row += VALUE_ROWS) {
            if (KEYS % VALUE_ROWS != 0 && row + value >= KEYS) continue;
            copy_in_background(to.value(value, threadIdx.x % VALUE_CHUNKS) + row * WIDTH, values + row * stride, row + value < left);
        }
        keys += KEYS * WIDTH;
        values += KEYS * stride;
    }

  private:
    const int8_t* keys;
    const T* values;
    int64_t stride;
};

// The scales of a head's keys, tile by tile: a division for each would take long.
class KeyScales {
  public:
    __device__ __forceinline__ KeyScales(const float* scales, int64_t group)
        : scales(scales), group(static_cast<int>(group)), left(this->group) {}

    __device__ __forceinline__ float next() {
        if (left == 0) {
            ++scales;
            left = group;
        }
        left -= KEYS;
        return *scales;
    }

  private:
    const float* scales;
    int group, left;
};

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

// What a thread knows of its two rows (8 apart) of 16 queries.
struct Softmax {
    float factor[2], largest[2];
};

// 16 queries as a product takes them, and their softmax before any key: of each 32 columns, four from 4 (lane % 4) on and four
// from 16 later.
template <typename T>
__device__ __forceinline__ void take_queries(Softmax& softmax, uint32_t (&query)[2][4], const agk_attention_int8_args& a,
                                      const Head<T>& head, int first_row) {
    const int tokens = static_cast<int>(a.tokens);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = first_row + half * 8;
        softmax.factor[half] = row < tokens ? head.query_scales[row / static_cast<unsigned>(a.query_group)] * LOG2E_BY_8 : 0.0f;
        softmax.largest[half] = -INFINITY;
        const auto* words = reinterpret_cast<const uint32_t*>(a.query + head.offset + static_cast<int64_t>(row) * WIDTH);
#pragma unroll
        for (int quarter = 0; quarter < 4; ++quarter) {
            query[quarter / 2][quarter % 2 * 2 + half] = row < tokens ? words[quarter * 4 + threadIdx.x % 4] : 0;
        }
    }
}

// Gives `lowest` to the scores of keys that are not there: the first `keys` of KEYS are.
template <typename Score>
__device__ __forceinline__ void mask(Score (&scores)[KEY_TILES][4], int keys, Score lowest) {
    const int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < KEY_TILES * 4; ++i) {
        if (i / 4 * COLUMNS + column + i % 2 >= keys) scores[i / 4][i % 4] = lowest;
    }
}

// Scores of 16 queries by KEYS keys to weights, in place. largest_score: of each row; `shrink` brings what was found before to
// the new maximum. The largest weight is 1. Their sum is left to the caller.
__device__ __forceinline__ void continue_softmax(Softmax& row, float (&weights)[KEY_TILES][4], const float (&largest_score)[2],
                                                 float key_scale, float (&shrink)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        // Never 0: rows of zeros have the smallest scales, whose product is, and 0 times minus infinity is no number.
        const float scale = fmaf(row.factor[half], key_scale, FLT_MIN);
        const float largest = fmaxf(row.largest[half], largest_score[half] * scale);
        shrink[half] = power_of_two(row.largest[half] - largest);
        row.largest[half] = largest;
#pragma unroll
        for (int tile = 0; tile < KEY_TILES; ++tile) {
            float &low = weights[tile][2 * half], &high = weights[tile][2 * half + 1];
            low = power_of_two(fmaf(low, scale, -largest));
            high = power_of_two(fmaf(high, scale, -largest));
        }
    }
}

// Weights in pairs of type T, as the product with values takes them.
template <typename T>
__device__ __forceinline__ void pack(const float (&weights)[KEY_TILES][4], uint32_t (&pairs)[STEPS][4]) {
#pragma unroll
    for (int tile = 0; tile < KEY_TILES; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            pairs[tile / 2][tile % 2 * 2 + half] = pair<T>(weights[tile][2 * half], weights[tile][2 * half + 1]);
        }
    }
}

// Whether any row of a warp has one: after a few tiles there is hardly any.
template <int TILES>
__device__ __forceinline__ bool any_new_maximum(const float (&shrink)[TILES][2]) {
    bool any = false;
#pragma unroll
    for (int i = 0; i < TILES * 2; ++i) any = any || shrink[i / 2][i % 2] != 1.0f;
    return __any_sync(~0u, any);
}

// Brings sums to a new maximum.
template <int TILES>
__device__ __forceinline__ void rescale(float (&sums)[TILES][4], const float (&shrink)[2]) {
#pragma unroll
    for (int i = 0; i < TILES * 4; ++i) sums[i / 4][i % 4] *= shrink[i % 4 / 2];
}

// Results of 16 queries: the first WIDTH_TILES of what was summed over the weights' sum of each row.
template <typename T, int TILES>
__device__ __forceinline__ void finish(const agk_attention_int8_args& a, const float (&out)[TILES][4], const float (&sum)[2],
                                       int first_row) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float inverse = 1.0f / sum[half];
        const int row = first_row + half * 8;
        if (row >= a.tokens) continue;
        T* to = static_cast<T*>(a.out) + ((blockIdx.z * a.tokens + row) * a.heads + blockIdx.y) * WIDTH + threadIdx.x % 4 * 2;
#pragma unroll
        for (int column = 0; column < WIDTH_TILES; ++column) {
            const float result[2] = {out[column][2 * half] * inverse, out[column][2 * half + 1] * inverse};
            store(to + column * COLUMNS, result);
        }
    }
}

// Arguments whose groups are of no more tokens than there are, and so fit 32 bits: a division in 64 takes long.
inline agk_attention_int8_args with_small_groups(agk_attention_int8_args a) {
    a.query_group = std::min(a.query_group, a.tokens);
    a.key_group = std::min(a.key_group, divide_up(a.tokens, KEYS) * KEYS);
    return a;
}

// Of arguments that were checked, by the instructions of sm_90a: attention_int8_wgmma.cu.
int attention_int8_by_warpgroups(const agk_attention_int8_args& args, cudaStream_t stream);

}  // namespace agk
