// Sum and maximum over a block of whole warps, for every thread of it.
//
// A scratch array may be used again after one other reduction: whoever writes it then has passed that one's barrier, and
// so has everybody who still read it.
#pragma once

#include "launch.cuh"

namespace agk {

constexpr int MAX_WARPS = 32;

__device__ __forceinline__ float block_sum(float value, float (&scratch)[MAX_WARPS]) {
#pragma unroll
    for (int distance = WARP / 2; distance; distance /= 2) value += __shfl_xor_sync(~0u, value, distance);
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = value;
    __syncthreads();
    const unsigned lane = threadIdx.x % WARP;
    value = lane < blockDim.x / WARP ? scratch[lane] : 0.0f;
#pragma unroll
    for (int distance = WARP / 2; distance; distance /= 2) value += __shfl_xor_sync(~0u, value, distance);
    return value;
}

__device__ __forceinline__ unsigned block_max(unsigned value, unsigned (&scratch)[MAX_WARPS]) {
    value = __reduce_max_sync(~0u, value);
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = value;
    __syncthreads();
    const unsigned lane = threadIdx.x % WARP;
    return __reduce_max_sync(~0u, lane < blockDim.x / WARP ? scratch[lane] : 0u);
}

}  // namespace agk
