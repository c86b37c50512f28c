// The instructions that C++ has no words for: products on tensor cores, loads of their operands, copies in the background.
//
// What lies where among a warp's threads is the PTX ISA's, "Matrix Fragments for mma.m16n8k16" (and k32), "ldmatrix" and
// "cp.async": thread t holds row t / 4 (and 8 below) and, of each eight columns, 2 (t % 4) and the next. All threads of the
// warp take part in each. On the processor they are emulated from the same tables, by tests/kernels/emulation.
#pragma once

#include "vector.cuh"

#ifndef __CUDACC__
#include "emulated_tensor_cores.h"
#else

namespace agk {

// d += a b in int32 of int8: a 16 x 32 by rows, b 32 x 8 by columns, four elements a register.
__device__ __forceinline__ void multiply(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// d += a b in float32 of halves T: a 16 x 16 by rows, b 16 x 8 by columns, two elements a register.
template <typename T>
__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (std::is_same_v<T, __half>) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
}

// The same of float16 with sums in float16, two a register: at twice the rate on GeForce, and no faster elsewhere.
__device__ __forceinline__ void multiply(uint32_t (&d)[2], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
        : "+r"(d[0]), "+r"(d[1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 x 8 matrices of 16-bit elements in shared memory, one a register: thread t names row t % 8 of matrix t / 8 (16
// bytes) and is given elements 2 (t % 4) and the next of row t / 4.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
                 : "memory");
}

// The same of the transposed matrices: thread t is given rows 2 (t % 4) and the next of column t / 4.
__device__ __forceinline__ void load_transposed(uint32_t (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
                 : "memory");
}

// 16 bytes to shared memory, or with `there` false zeros, at some time before this thread's copies_arrived().
__device__ __forceinline__ void copy_in_background(void* shared, const void* global, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(shared))),
                 "l"(global), "r"(there ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void copies_arrived() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// 2 to the x to about 22 bits, 0 where that is below 2^-126: one instruction.
__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

}  // namespace agk
#endif
