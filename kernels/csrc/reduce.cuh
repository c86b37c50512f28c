// Sum and maximum over a block of whole warps; every thread gets the result.
//
// A scratch array must be cleared before its first use, and may be reused only after another reduction, whose barrier ensures
// that all threads have read it. All threads of a warp write the same value: electing one would take more instructions.
#pragma once

#include "launch.cuh"

namespace agk {

constexpr int MAX_WARPS = 16;

// Zeroes the entries of warps that the block does not have.
template <typename T>
__device__ __forceinline__ void clear(T (&scratch)[MAX_WARPS]) {
    if (threadIdx.x < MAX_WARPS && threadIdx.x >= blockDim.x / WARP) scratch[threadIdx.x] = 0;
}

__device__ __forceinline__ float block_sum(float value, float (&scratch)[MAX_WARPS]) {
#pragma unroll
    for (int distance = WARP / 2; distance; distance /= 2) value += __shfl_xor_sync(~0u, value, distance);
    scratch[threadIdx.x / WARP] = value;
    __syncthreads();
    value = scratch[threadIdx.x % MAX_WARPS];
#pragma unroll
    for (int distance = MAX_WARPS / 2; distance; distance /= 2) value += __shfl_xor_sync(~0u, value, distance);
    return value;
}

__device__ __forceinline__ unsigned block_max(unsigned value, unsigned (&scratch)[MAX_WARPS]) {
    scratch[threadIdx.x / WARP] = __reduce_max_sync(~0u, value);
    __syncthreads();
    return __reduce_max_sync(~0u, scratch[threadIdx.x % MAX_WARPS]);
}

}  // namespace agk
