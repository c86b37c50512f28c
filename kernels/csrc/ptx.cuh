// PTX instructions without a C++ equivalent: cp.async and ex2. tests/kernels/emulation emulates them on the CPU.
#pragma once

#include "vector.cuh"

#ifndef __CUDACC__
#include "emulated_ptx.h"
#else

namespace agk {

// Starts a copy of 16 bytes to shared memory, or of zeros unless `valid`. Complete after this thread's cp_async_wait_group().
__device__ __forceinline__ void cp_async(void* shared, const void* global, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(shared))),
                 "l"(global), "r"(valid ? 16 : 0)
                 : "memory");
}

// Commits this thread's copies since the last commit as a group; waits until at most PENDING groups are pending.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING>
__device__ __forceinline__ void cp_async_wait_group() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// 2^x to about 22 bits, 0 if below 2^-126, in one instruction.
__device__ __forceinline__ float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

}  // namespace agk
#endif
