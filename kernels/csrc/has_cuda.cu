// agk_has_cuda and agk_runs_here of a library built with the CUDA operators.
#include <cuda_runtime.h>

#include "animegamer_kernels.h"

namespace {
// Built with the same options as the operators.
__global__ void any_kernel() {}
}  // namespace

extern "C" int agk_has_cuda(void) { return 1; }

extern "C" int agk_runs_here(void) {
    cudaFuncAttributes found;
    const bool runs = cudaFuncGetAttributes(&found, any_kernel) == cudaSuccess;
    // Clear the error, or the next launch would report it again.
    cudaGetLastError();
    return runs;
}
