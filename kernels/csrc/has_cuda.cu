// This library holds the operators for CUDA, and they run here or not.
#include <cuda_runtime.h>

#include "animegamer_kernels.h"

namespace {
// Built as all others are.
__global__ void any_kernel() {}
}  // namespace

extern "C" int agk_has_cuda(void) { return 1; }

extern "C" int agk_runs_here(void) {
    cudaFuncAttributes found;
    const bool runs = cudaFuncGetAttributes(&found, any_kernel) == cudaSuccess;
    // Otherwise the next launch would say it again.
    cudaGetLastError();
    return runs;
}
