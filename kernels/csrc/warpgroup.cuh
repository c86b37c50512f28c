// wgmma, the MMA of a warpgroup (four warps, the first at a multiple of four). It exists on sm_90a only.
//
// The left operand is in registers, 16 rows per warp, in the layout of mma.sync (tensor_cores.cuh). The accumulators have the
// same layout; d[tile] is eight columns. The right operand is read from shared memory through a descriptor, asynchronously:
// until wait() has been called with them, accumulators must not be read or written, and operands must not change. Source: PTX
// ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions". Tests emulate them in tests/kernels/emulation.
#pragma once

#include "attention.cuh"

namespace agk {
// Depth of an MMA of halves.
constexpr int DEPTH = 16;
}  // namespace agk

#ifndef __CUDACC__
#include "emulated_warpgroup.h"
#else

namespace agk {

__device__ __forceinline__ uint32_t shared_address(const void* shared) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Orders earlier register writes before the MMAs that follow.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Commits all MMAs since the last commit as one group.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <typename Register, int TILES>
__device__ __forceinline__ void use_registers(Register (&held)[TILES][4]) {
#pragma unroll
    for (int i = 0; i < TILES * 4; ++i) {
        if constexpr (std::is_same_v<Register, float>) {
            asm volatile("" : "+f"(held[i / 4][i % 4])::"memory");
        } else {
            asm volatile("" : "+r"(held[i / 4][i % 4])::"memory");
        }
    }
}

// Returns when at most PENDING groups are still running. held: accumulators and left operands of the finished groups, which the
// compiler must not read or write before this point.
template <int PENDING, typename... Registers>
__device__ __forceinline__ void wait(Registers&... held) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
    (use_registers(held), ...);
}

// wgmma reads shared memory through the async proxy: what this thread has written is there for it after this.
__device__ __forceinline__ void fence_before_wgmma() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A barrier in shared memory, at which some threads wait for others. A phase ends with the last of its arrivals; phases have
// parities 0, 1, 0 and so on.
class Barrier {
  public:
    // By one thread, before a __syncthreads().
    __device__ __forceinline__ void init(unsigned arrivals) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals) : "memory");
    }
    // What the thread has done before is seen by the threads that wait.
    __device__ __forceinline__ void arrive() {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
    }
    // Until a phase of this parity has ended, at once if the phase that runs has the other one. The first phase's is 0.
    __device__ __forceinline__ void wait(unsigned parity) {
        uint32_t ended = 0;
        while (!ended) {
            asm volatile(
                "{ .reg .pred ended; mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2; selp.u32 %0, 1, 0, ended; }"
                : "=r"(ended)
                : "r"(shared_address(this)), "r"(parity)
                : "memory");
        }
    }

  private:
    uint64_t state;
};

// Changes how many registers each thread of this warpgroup has: the others can take what it gives up.
template <int COUNT>
__device__ __forceinline__ void give_up_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// A reference to shared memory whose size the launch says, at a multiple of 1024. More than 48 KiB are possible only so.
#define AGK_LAUNCHED_SHARED(Type, name)                         \
    extern __shared__ __align__(1024) unsigned char launched_shared[]; \
    Type& name = *reinterpret_cast<Type*>(launched_shared)

// d = a b, or with ADD d += a b, int8 to int32: a 64 x 32 row-major; b 32 x 64, 32 elements of a column in a 64-byte row.
template <bool ADD>
__device__ __forceinline__ void mma(int (&d)[KEY_TILES][4], const uint32_t (&a)[4], uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, %37;"
        : "+r"(d[0][0]), "+r"(d[0][1]), "+r"(d[0][2]), "+r"(d[0][3]),
          "+r"(d[1][0]), "+r"(d[1][1]), "+r"(d[1][2]), "+r"(d[1][3]),
          "+r"(d[2][0]), "+r"(d[2][1]), "+r"(d[2][2]), "+r"(d[2][3]),
          "+r"(d[3][0]), "+r"(d[3][1]), "+r"(d[3][2]), "+r"(d[3][3]),
          "+r"(d[4][0]), "+r"(d[4][1]), "+r"(d[4][2]), "+r"(d[4][3]),
          "+r"(d[5][0]), "+r"(d[5][1]), "+r"(d[5][2]), "+r"(d[5][3]),
          "+r"(d[6][0]), "+r"(d[6][1]), "+r"(d[6][2]), "+r"(d[6][3]),
          "+r"(d[7][0]), "+r"(d[7][1]), "+r"(d[7][2]), "+r"(d[7][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ADD));
}

// d = a b, or with ADD d += a b, halves T to float32: a 64 x DEPTH row-major; b DEPTH x 64, the 64 columns of a row contiguous,
// or with BY_KEYS the DEPTH elements of a column.
#define AGK_MULTIPLY_HALVES(TYPE)                                                                                          \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " "                                           \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "   \
                 "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                                                     \
                 "{%32, %33, %34, %35}, %36, %37, 1, 1, %38;"                                                              \
                 : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),               \
                   "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),               \
                   "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),               \
                   "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),               \
                   "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),               \
                   "+f"(d[7][2]), "+f"(d[7][3])                                                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ADD), "n"(!BY_KEYS))

template <typename T, bool ADD = true, bool BY_KEYS = false>
__device__ __forceinline__ void mma(float (&d)[WIDTH_TILES][4], const uint32_t (&a)[4], uint64_t b) {
    if constexpr (std::is_same_v<T, __half>) {
        AGK_MULTIPLY_HALVES("f16");
    } else {
        AGK_MULTIPLY_HALVES("bf16");
    }
}
#undef AGK_MULTIPLY_HALVES

}  // namespace agk
#endif

namespace agk {

// PTX ISA, "Matrix Descriptor Format": start address, offset to the next 8 rows, and the swizzle, whose width a row has. The
// first two are in units of 16 bytes, from bits 0 and 32 on.
enum class Swizzle : uint64_t { Bytes128 = 1, Bytes64 = 2 };

__device__ __forceinline__ uint64_t make_descriptor(const void* shared, unsigned bytes_of_8_rows, Swizzle swizzle) {
    const auto field = [](uint64_t bytes) { return (bytes & 0x3ffff) >> 4; };
    return field(shared_address(shared)) | field(bytes_of_8_rows) << 32 | static_cast<uint64_t>(swizzle) << 62;
}

// The descriptor of a matrix `bytes` further on.
__device__ __forceinline__ uint64_t advance_descriptor(uint64_t descriptor, unsigned bytes) { return descriptor + bytes / 16; }

}  // namespace agk
