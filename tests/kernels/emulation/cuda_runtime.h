// Replaces CUDA's header, so that a C++ compiler builds the kernels' sources for one CPU thread.
//
// The threads of a block are fibers, which switch only at barriers, warp operations and mbarrier waits. A warp runs to the next
// barrier before the next warp starts; blocks run sequentially. Every second block runs its warps and threads in reverse order,
// so that a missing barrier gives wrong results. A warp operation or a barrier that some threads never reach aborts the program.
// Memory spaces, timing and the rounding of the GPU's functions are not emulated.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <type_traits>

#undef __device__
#undef __global__
#undef __shared__
#undef __forceinline__
#undef __launch_bounds__
#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace emulation {
// Runs `thread` once for every thread of every block.
void launch(const std::function<void()>& thread, dim3 grid, dim3 block, std::size_t = 0, void* = nullptr);
void block_barrier();
// For a thread that polls shared memory; aborts when no thread notes progress any more.
void yield();
void note_progress();
// Exchanges a value within the warp. Returns all 32 values, valid until this thread's next exchange but one.
const uint64_t* warp_exchange(uint64_t value);
unsigned lane();

template <typename T>
uint64_t bits(T value) {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    uint64_t to = 0;
    std::memcpy(&to, &value, sizeof value);
    return to;
}

template <typename T>
T value(uint64_t bits) {
    T to;
    std::memcpy(&to, &bits, sizeof to);
    return to;
}
}  // namespace emulation

inline void __syncthreads() { emulation::block_barrier(); }

inline void require_full_mask(unsigned mask) {
    if (mask != ~0u) std::abort();
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int distance) {
    require_full_mask(mask);
    return emulation::value<T>(emulation::warp_exchange(emulation::bits(value))[emulation::lane() ^ distance]);
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, int distance) {
    require_full_mask(mask);
    const uint64_t* all = emulation::warp_exchange(emulation::bits(value));
    return emulation::value<T>(all[std::min(31u, emulation::lane() + distance)]);
}

inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
    require_full_mask(mask);
    const uint64_t* all = emulation::warp_exchange(value);
    return static_cast<unsigned>(*std::max_element(all, all + 32));
}

inline bool __any_sync(unsigned mask, bool value) {
    require_full_mask(mask);
    const uint64_t* all = emulation::warp_exchange(value);
    return std::any_of(all, all + 32, [](uint64_t one) { return one != 0; });
}

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
__extension__ typedef unsigned __int128 Wide;
inline uint64_t __umul64hi(uint64_t a, uint64_t b) { return static_cast<uint64_t>(static_cast<Wide>(a) * b >> 64); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
// On a GPU it is accurate to 2 units in the last place, and 0 if y is above 2^126.
inline float __fdividef(float x, float y) { return x / y; }
inline unsigned __float_as_uint(float x) { return static_cast<unsigned>(emulation::bits(x)); }
inline float __uint_as_float(unsigned x) { return emulation::value<float>(x); }
inline float __int_as_float(int x) { return emulation::value<float>(static_cast<unsigned>(x)); }
// Byte i of the result is the byte of (b, a) that digit i of `pick` selects, 0 to 7.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned pick) {
    const uint64_t both = static_cast<uint64_t>(b) << 32 | a;
    unsigned to = 0;
    for (int i = 0; i < 4; ++i) to |= static_cast<unsigned>(both >> (pick >> 4 * i & 7) * 8 & 255) << 8 * i;
    return to;
}
inline int __float2int_rn(float x) {
    return std::isnan(x) ? 0 : static_cast<int>(std::nearbyint(std::fmax(-2147483648.0, std::fmin(2147483647.0, x))));
}

template <typename A, typename B>
std::common_type_t<A, B> min(A a, B b) {
    return b < a ? b : a;
}
template <typename A, typename B>
std::common_type_t<A, B> max(A a, B b) {
    return a < b ? b : a;
}

// Other CUDA functions are defined in emulation.cpp.
template <typename Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, Kernel) {
    return cudaSuccess;
}
template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel, cudaFuncAttribute, int) {
    return cudaSuccess;
}
template <typename Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int, std::size_t) {
    return *blocks = 2, cudaSuccess;
}
