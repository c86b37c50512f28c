// wgmma (the MMA of a warp group, four aligned warps), mbarrier and setmaxnreg. wgmma and setmaxnreg exist on sm_90a only.
//
// Operand A is in registers, 16 rows per warp, as are the accumulators; d[tile] is eight columns. Operand B is read from shared memory through a descriptor. wgmma is asynchronous: accumulators must not be read
// or written, and operands must not change, before wgmma_wait(). Source: PTX ISA, "Asynchronous Warpgroup Level Matrix
// Multiply-Accumulate Instructions". Tests emulate them in tests/kernels/emulation.
#pragma once

#include "launch.cuh"
#include "ptx.cuh"

namespace agk {
// K of an MMA with 16-bit operands, and its tiles of eight columns.
constexpr int DEPTH = 16, TILES = 8;
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

template <typename Register, int COUNT>
__device__ __forceinline__ void use_registers(Register (&held)[COUNT][4]) {
#pragma unroll
    for (int i = 0; i < COUNT * 4; ++i) {
        if constexpr (std::is_same_v<Register, float>) {
            asm volatile("" : "+f"(held[i / 4][i % 4])::"memory");
        } else {
            asm volatile("" : "+r"(held[i / 4][i % 4])::"memory");
        }
    }
}

// Waits until at most PENDING groups are pending. held: accumulators and A operands of the completed groups, which the compiler
// must not read or write before this point.
template <int PENDING, typename... Registers>
__device__ __forceinline__ void wgmma_wait(Registers&... held) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
    (use_registers(held), ...);
}

// Makes this thread's writes to shared memory visible to wgmma, which reads through the async proxy.
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A phase completes when all expected arrivals have been made. The parity of phases alternates, from 0.
class Mbarrier {
  public:
    // Called by one thread, before a __syncthreads().
    __device__ __forceinline__ void init(unsigned arrivals) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals) : "memory");
    }
    // Release: threads that wait see this thread's earlier writes.
    __device__ __forceinline__ void arrive() {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
    }
    // Waits for the phase of this parity; returns at once if the current phase has the other parity.
    __device__ __forceinline__ void wait(unsigned parity) {
        uint32_t done = 0;
        while (!done) {
            asm volatile(
                "{ .reg .pred done; mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2; selp.u32 %0, 1, 0, done; }"
                : "=r"(done)
                : "r"(shared_address(this)), "r"(parity)
                : "memory");
        }
    }

  private:
    uint64_t state;
};

// setmaxnreg: sets the registers per thread of this warp group. Consumers take what the producer releases.
template <int COUNT>
__device__ __forceinline__ void dealloc_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void alloc_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// A reference to dynamic shared memory, aligned to 1024 bytes. Static shared memory is limited to 48 KiB.
#define AGK_DYNAMIC_SHARED(Type, name)                         \
    extern __shared__ __align__(1024) unsigned char dynamic_shared[]; \
    Type& name = *reinterpret_cast<Type*>(dynamic_shared)

// d = a b, or with ADD d += a b, 16-bit T to float32: a 64 x DEPTH row-major; b DEPTH x 64, row-major or with K_MAJOR
// column-major.
#define AGK_WGMMA_HALVES(TYPE)                                                                                          \
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
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ADD), "n"(!K_MAJOR))

template <typename T, bool ADD, bool K_MAJOR>
__device__ __forceinline__ void mma(float (&d)[TILES][4], const uint32_t (&a)[4], uint64_t b) {
    if constexpr (std::is_same_v<T, __half>) {
        AGK_WGMMA_HALVES("f16");
    } else {
        AGK_WGMMA_HALVES("bf16");
    }
}
#undef AGK_WGMMA_HALVES

}  // namespace agk
#endif

namespace agk {

// PTX ISA, "Matrix Descriptor Format": start address (bit 0) and stride between groups of 8 rows (bit 32), in units of 16 bytes,
// and a swizzle of 128 bytes (bit 62), the width of a row.
__device__ __forceinline__ uint64_t make_descriptor(const void* shared, unsigned bytes_of_8_rows) {
    const auto field = [](uint64_t bytes) { return (bytes & 0x3ffff) >> 4; };
    return field(shared_address(shared)) | field(bytes_of_8_rows) << 32 | uint64_t{1} << 62;
}

__device__ __forceinline__ uint64_t advance_descriptor(uint64_t descriptor, unsigned bytes) { return descriptor + bytes / 16; }

}  // namespace agk
