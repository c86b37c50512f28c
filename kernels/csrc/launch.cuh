// Around every launch: a dtype code as a type, how many blocks fill the GPU, and a launch's error in words.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "vector.cuh"

namespace agk {

// Calls visit(T{}) with the type of a dtype of activations, which check() has seen to be one.
template <typename Visit>
int with_activations(int dtype, Visit&& visit) {
    switch (dtype) {
        case AGK_F32: return visit(float{});
        case AGK_F16: return visit(__half{});
        default: return visit(__nv_bfloat16{});
    }
}

// As above without float32.
template <typename Visit>
int with_halves(int dtype, Visit&& visit) {
    return dtype == AGK_F16 ? visit(__half{}) : visit(__nv_bfloat16{});
}

// As with_activations for an output that is in the activations' dtype T or quantised.
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
    // The runtime keeps it, too, and would say it again of the next launch.
    cudaGetLastError();
    return fail(AGK_CUDA_ERROR + static_cast<int>(error), "%s: CUDA: %s", name, cudaGetErrorString(error));
}

// Whether the launch just made was accepted; what goes wrong while it runs shows at the stream's next wait.
inline int launched(const char* name) { return cuda_result(name, cudaGetLastError()); }

// Blocks that the current device runs at once of a kernel: a grid of so many fills it exactly once.
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
