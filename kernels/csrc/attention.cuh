// Parts of attention that do not depend on the MMA instruction: copies of keys and values to shared memory, the online softmax,
// loads of queries and stores of outputs.
//
// Of every 16 queries of its warp a thread holds two rows (lane / 4 and 8 below), and two of every eight columns. This is the
// accumulator layout of both mma.m16n8 and wgmma in the PTX ISA.
#pragma once

#include <algorithm>
#include <cfloat>

#include "launch.cuh"
#include "tensor_cores.cuh"

namespace agk {

constexpr int KEYS = ATTENTION_KEYS, WIDTH = ATTENTION_WIDTH;
// An MMA has 16 rows per warp and tiles of 8 columns; with 16-bit operands its K is 16.
constexpr int ROWS = 16, COLUMNS = 8;
constexpr int KEY_TILES = KEYS / COLUMNS, WIDTH_TILES = WIDTH / COLUMNS, STEPS = KEYS / 16;
// Threads that copy to shared memory: the whole block with mma.sync, the producer warp group with wgmma.
constexpr int COPY_THREADS = 4 * WARP;
// exp(x / sqrt(64)) as a power of two.
constexpr float LOG2E_BY_8 = 1.4426950408889634f / 8.0f;

// Addresses of the keys, values and scales of a block's head.
template <typename T>
struct HeadPointers {
    const int8_t* keys;
    const T* values;
    const float *query_scales, *key_scales;
    int64_t offset;

    // The grid is (tiles of queries, heads, batch).
    __device__ __forceinline__ explicit HeadPointers(const agk_attention_int8_args& a) {
        const int64_t row = static_cast<int64_t>(blockIdx.z) * a.heads + blockIdx.y;
        offset = row * a.tokens * WIDTH;
        keys = a.key + offset;
        values = static_cast<const T*>(a.value) + blockIdx.z * a.batch_stride + blockIdx.y * a.head_stride;
        query_scales = a.query_scales + row * ((a.tokens + a.query_group - 1) / a.query_group);
        key_scales = a.key_scales + row * ((a.tokens + a.key_group - 1) / a.key_group);
    }
};

// Copies a head's keys or values to shared memory with COPY_THREADS threads, KEYS rows at a time. Rows are swizzled in chunks of
// 16 bytes to avoid bank conflicts, as wgmma's 64-byte and 128-byte swizzles (the width of a row) do.
template <typename Element>
class RowLoader {
  public:
    __device__ __forceinline__ RowLoader(const Element* head, int64_t stride)
        : from(head + threadIdx.x / CHUNKS * stride + threadIdx.x % CHUNKS * CHUNK), stride(stride) {}

    // Starts to copy the next rows. Only `remaining` of them exist; the others become zeros.
    __device__ __forceinline__ void next(Element* to, int remaining) {
        const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS ^ (CHUNKS == 8 ? row % 8 : row / 2 % 4);
#pragma unroll
        for (int first = 0; first < KEYS; first += ROWS_PER_PASS) {
            cp_async(to + (first + row) * WIDTH + chunk * CHUNK, from + first * stride, first + row < remaining);
        }
        from += KEYS * stride;
    }

  private:
    static constexpr int CHUNK = 16 / sizeof(Element), CHUNKS = WIDTH / CHUNK, ROWS_PER_PASS = COPY_THREADS / CHUNKS;
    static_assert(CHUNKS == 8 || CHUNKS == 4);
    static_assert(ROWS_PER_PASS % 8 == 0, "a thread's swizzled chunk is the same in all its rows");

    const Element* from;
    int64_t stride;
};

// The scale of each tile of a head's keys. Counts down to avoid a division per tile.
class KeyScales {
  public:
    __device__ __forceinline__ KeyScales(const float* scales, int64_t group)
        : scales(scales), group(static_cast<int>(group)), remaining(this->group) {}

    __device__ __forceinline__ float next() {
        if (remaining == 0) {
            ++scales;
            remaining = group;
        }
        remaining -= KEYS;
        return *scales;
    }

  private:
    const float* scales;
    int group, remaining;
};

template <typename T>
__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
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

// Scale and running maximum of a thread's two rows, which are 8 apart.
struct Softmax {
    float factor[2], maximum[2];
};

// Loads 16 queries in the layout of operand A and initialises their softmax. Of every 32 columns a thread holds four from
// 4 (lane % 4) on, and the same four 16 later.
template <typename T>
__device__ __forceinline__ void load_queries(Softmax& softmax, uint32_t (&query)[2][4], const agk_attention_int8_args& a,
                                      const HeadPointers<T>& head, int first_row) {
    const int tokens = static_cast<int>(a.tokens);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = first_row + half * 8;
        softmax.factor[half] = row < tokens ? head.query_scales[row / static_cast<unsigned>(a.query_group)] * LOG2E_BY_8 : 0.0f;
        softmax.maximum[half] = -INFINITY;
        const auto* words = reinterpret_cast<const uint32_t*>(a.query + head.offset + static_cast<int64_t>(row) * WIDTH);
#pragma unroll
        for (int quarter = 0; quarter < 4; ++quarter) {
            query[quarter / 2][quarter % 2 * 2 + half] = row < tokens ? words[quarter * 4 + threadIdx.x % 4] : 0;
        }
    }
}

// Maximum and sum over the four threads that hold a row.
template <typename Score>
__device__ __forceinline__ Score row_max(Score x) {
    x = max(x, __shfl_xor_sync(~0u, x, 1));
    return max(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ __forceinline__ float row_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

// Sets the scores of all but the first `keys` keys of a tile to `lowest`.
template <typename Score>
__device__ __forceinline__ void mask(Score (&scores)[KEY_TILES][4], int keys, Score lowest) {
    const int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < KEY_TILES * 4; ++i) {
        if (i / 4 * COLUMNS + column + i % 2 >= keys) scores[i / 4][i % 4] = lowest;
    }
}

// Turns scores of 16 queries by KEYS keys into weights of at most 1, in place. row_maximum: of these scores. correction: the
// factor that rescales earlier sums to the new running maximum.
__device__ __forceinline__ void online_softmax(Softmax& row, float (&weights)[KEY_TILES][4], const float (&row_maximum)[2],
                                                 float key_scale, float (&correction)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        // FLT_MIN keeps the scale above 0: the product of the smallest scales underflows, and 0 * -infinity is NaN.
        const float scale = fmaf(row.factor[half], key_scale, FLT_MIN);
        const float maximum = fmaxf(row.maximum[half], row_maximum[half] * scale);
        correction[half] = exp2_approx(row.maximum[half] - maximum);
        row.maximum[half] = maximum;
#pragma unroll
        for (int tile = 0; tile < KEY_TILES; ++tile) {
            float &low = weights[tile][2 * half], &high = weights[tile][2 * half + 1];
            low = exp2_approx(fmaf(low, scale, -maximum));
            high = exp2_approx(fmaf(high, scale, -maximum));
        }
    }
}

// Rescales a thread's sums of its two rows and adds its weights of a tile.
__device__ __forceinline__ void add_weights(float (&sum)[2], const float (&weights)[KEY_TILES][4], const float (&correction)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        sum[half] *= correction[half];
#pragma unroll
        for (int tile = 0; tile < KEY_TILES; ++tile) sum[half] += weights[tile][2 * half] + weights[tile][2 * half + 1];
    }
}

// Packs weights in pairs of type T, in the layout of operand A of PV.
template <typename T>
__device__ __forceinline__ void pack(const float (&weights)[KEY_TILES][4], uint32_t (&pairs)[STEPS][4]) {
#pragma unroll
    for (int tile = 0; tile < KEY_TILES; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            pairs[tile / 2][tile % 2 * 2 + half] = pack_pair<T>(weights[tile][2 * half], weights[tile][2 * half + 1]);
        }
    }
}

// Whether any row of the warp has a new maximum, which is rare after the first few tiles.
template <int TILES>
__device__ __forceinline__ bool any_maximum_changed(const float (&correction)[TILES][2]) {
    bool any = false;
#pragma unroll
    for (int i = 0; i < TILES * 2; ++i) any = any || correction[i / 2][i % 2] != 1.0f;
    return __any_sync(~0u, any);
}

__device__ __forceinline__ void rescale(float (&sums)[WIDTH_TILES][4], const float (&correction)[2]) {
#pragma unroll
    for (int i = 0; i < WIDTH_TILES * 4; ++i) sums[i / 4][i % 4] *= correction[i % 4 / 2];
}

// Epilogue: divides the outputs of 16 queries by their sums of weights and writes them.
template <typename T, typename Args>
__device__ __forceinline__ void store_out(const Args& a, const float (&out)[WIDTH_TILES][4], const float (&sum)[2],
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

// Limits the groups to the number of tokens, so that they fit 32 bits: 64-bit division is slow.
inline agk_attention_int8_args with_small_groups(agk_attention_int8_args a) {
    a.query_group = std::min(a.query_group, a.tokens);
    a.key_group = std::min(a.key_group, divide_up(a.tokens, KEYS) * KEYS);
    return a;
}

// attention_int8 with wgmma, on sm_90a. The arguments must have been checked. Defined in attention_wgmma.cu.
int attention_int8_by_warpgroups(const agk_attention_int8_args& args, cudaStream_t stream);

}  // namespace agk
