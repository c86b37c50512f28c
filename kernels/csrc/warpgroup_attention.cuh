// What the attention kernels with wgmma share: from scores to weights, their sums, and results that are rescaled.
#pragma once

#include "warpgroup.cuh"

namespace agk {

// Waits for the last results and rescales them to the maximum of the next weights.
template <int TILES>
__device__ __forceinline__ void settle(float (&results)[TILES][4], uint32_t (&weights)[STEPS][4], const float (&shrink)[1][2]) {
    wait<0>(results, weights);
    if (any_maximum_changed(shrink)) rescale(results, shrink[0]);
}

__device__ __forceinline__ int largest_of(int a, int b, int c) { return __vimax3_s32(a, b, c); }
__device__ __forceinline__ float largest_of(float a, float b, float c) { return fmaxf(a, fmaxf(b, c)); }
__device__ __forceinline__ int largest_of(int a, int b) { return max(a, b); }
__device__ __forceinline__ float largest_of(float a, float b) { return fmaxf(a, b); }

// Maximum over the four threads that hold a row.
template <typename Score>
__device__ __forceinline__ Score row_max(Score x) {
    x = largest_of(x, __shfl_xor_sync(~0u, x, 1));
    return largest_of(x, __shfl_xor_sync(~0u, x, 2));
}

// Sum over the four threads that hold a row.
__device__ __forceinline__ float row_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

// Weights of a tile of which `keys` keys exist, from its scores, int32 or float32. shrink: as of online_softmax.
template <typename Score>
__device__ __forceinline__ void weigh(Softmax& softmax, Score (&scores)[KEY_TILES][4], float (&weights)[KEY_TILES][4], int keys,
                                      float key_scale, float (&shrink)[2]) {
#pragma unroll
    for (int i = 0; i < KEY_TILES * 4; ++i) weights[i / 4][i % 4] = static_cast<float>(scores[i / 4][i % 4]);
    if (keys < KEYS) {
        mask(weights, keys, -INFINITY);
        if constexpr (std::is_same_v<Score, int>) {
            mask(scores, keys, INT32_MIN);
        } else {
            mask(scores, keys, -INFINITY);
        }
    }
    float largest[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        Score of_row = largest_of(scores[0][2 * half], scores[0][2 * half + 1]);
#pragma unroll
        for (int tile = 1; tile < KEY_TILES; ++tile) {
            of_row = largest_of(of_row, scores[tile][2 * half], scores[tile][2 * half + 1]);
        }
        largest[half] = static_cast<float>(row_max(of_row));
    }
    online_softmax(softmax, weights, largest, key_scale, shrink);
}

// Adds a thread's weights of a tile to its sums of both rows.
__device__ __forceinline__ void add_weights(float (&sum)[2], const float (&weights)[KEY_TILES][4], const float (&shrink)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        sum[half] *= shrink[half];
#pragma unroll
        for (int tile = 0; tile < KEY_TILES; ++tile) sum[half] += weights[tile][2 * half] + weights[tile][2 * half + 1];
    }
}

}  // namespace agk
