// Launches: dtype dispatch, the number of resident blocks, and error reporting.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "vector.cuh"

namespace agk {

// Calls visit(T{}) with the type of an activations' dtype. check() has validated the dtype.
template <typename Visit>
int with_activations(int dtype, Visit&& visit) {
    switch (dtype) {
        case AGK_F32: return visit(float{});
        case AGK_F16: return visit(__half{});
        default: return visit(__nv_bfloat16{});
    }
}

// As with_activations, for an output in the activations' type T or quantised.
template <typename T, typename Visit>
int with_output(int dtype, Visit&& visit) {
    switch (dtype) {
        case AGK_E4M3: return visit(__nv_fp8_e4m3{});
        case AGK_I8: return visit(int8_t{});
        default: return visit(T{});
    }
}

inline int cuda_result(const char* name, cudaError_t error) {
    if (error == cudaSuccess) return AGK_OK;
    // Clear the runtime's sticky copy, or the next launch would report it again.
    cudaGetLastError();
    return fail(AGK_CUDA_ERROR + static_cast<int>(error), "%s: CUDA: %s", name, cudaGetErrorString(error));
}

// Status of the last launch. Errors during execution appear when the stream is next synchronised.
inline int launch_result(const char* name) { return cuda_result(name, cudaGetLastError()); }

// The number of blocks of a kernel that are resident on the current device at once.
template <typename Kernel>
cudaError_t resident_blocks(Kernel kernel, int threads, int64_t& blocks) {
    int device = 0, processors = 0, each = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess) error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, 0);
    blocks = static_cast<int64_t>(processors) * each;
    if (error == cudaSuccess && blocks == 0) error = cudaErrorLaunchOutOfResources;
    return error;
}

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int WARP = 32;

}  // namespace agk
