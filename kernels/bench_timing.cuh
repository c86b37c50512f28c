// How a case of bench.cu is timed: its buffers, the calls that rotate over them, and the median of the repeats.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "launch.cuh"

namespace {

constexpr double MIB = 1024.0 * 1024.0;
// Much larger than any GPU's cache (about 100 MiB), and a small part of its memory.
constexpr double ROTATED_BYTES = 512 * MIB;
// The least calls per measurement, and the most sets of buffers.
constexpr int CALLS = 16, MAX_SETS = 256;

void check_status(cudaError_t error) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
    std::exit(1);
}

void check_status(int code) {
    if (code == AGK_OK) return;
    std::fprintf(stderr, "%s\n", agk_last_error());
    std::exit(1);
}

template <typename T>
__global__ void fill_kernel(T* to, int64_t count, unsigned seed) {
    for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        unsigned mixed = (static_cast<unsigned>(i) ^ seed) * 2654435761u;
        mixed = (mixed ^ (mixed >> 15)) * 2246822519u;
        if constexpr (std::is_same_v<T, int32_t>) {
            to[i] = static_cast<int32_t>(mixed >> 8) - (1 << 23);
        } else {
            to[i] = agk::from_float<T>(static_cast<float>(mixed >> 8) * (2.0f / 16777216.0f) - 1.0f);
        }
    }
}

// Device memory of one case, filled with random numbers, freed by the destructor.
class Arena {
public:
    Arena() = default;
    Arena(const Arena&) = delete;
    ~Arena() {
        for (void* each : taken) check_status(cudaFree(each));
    }
    template <typename T>
    T* take(int64_t count) {
        void* memory = nullptr;
        check_status(cudaMalloc(&memory, static_cast<size_t>(count) * sizeof(T)));
        taken.push_back(memory);
        fill_kernel<T><<<1024, 256>>>(static_cast<T*>(memory), count, static_cast<unsigned>(taken.size()));
        check_status(cudaGetLastError());
        return static_cast<T*>(memory);
    }

private:
    std::vector<void*> taken;
};

using Call = std::function<void(cudaStream_t)>;
struct Case {
    std::string name, shape;
    double bytes;
    // Allocates a set of buffers and returns a call that uses them.
    std::function<Call(Arena&)> prepare;
    // Multiplications and additions of INT8 MMAs, and of 16-bit MMAs with float32 or float16 sums.
    double int8_operations = 0.0, half_operations = 0.0, half_sum_operations = 0.0;
};

double median_seconds(const Case& bench, int repeats, cudaStream_t stream) {
    Arena arena;
    std::vector<Call> sets;
    const int count = static_cast<int>(std::min<double>(MAX_SETS, ROTATED_BYTES / bench.bytes + 1));
    const int calls = std::max(CALLS, count);
    for (int i = 0; i < count; ++i) sets.push_back(bench.prepare(arena));
    check_status(cudaDeviceSynchronize());
    cudaEvent_t begin, end;
    check_status(cudaEventCreate(&begin));
    check_status(cudaEventCreate(&end));
    std::vector<double> seconds;
    for (int repeat = -2; repeat < repeats; ++repeat) {
        check_status(cudaEventRecord(begin, stream));
        for (int i = 0; i < calls; ++i) sets[i % sets.size()](stream);
        check_status(cudaEventRecord(end, stream));
        check_status(cudaEventSynchronize(end));
        float milliseconds = 0.0f;
        check_status(cudaEventElapsedTime(&milliseconds, begin, end));
        if (repeat >= 0) seconds.push_back(milliseconds / 1e3 / calls);
    }
    check_status(cudaEventDestroy(begin));
    check_status(cudaEventDestroy(end));
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
}

}  // namespace
