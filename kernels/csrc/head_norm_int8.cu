// LayerNorm of every head of queries and keys, keys less their mean over the tokens, both in INT8 with a scale a group.
//
// The keys are read twice, for their mean and to be written; normalising them again is cheaper than keeping them. Sums
// go through the workspace in a fixed order, so the same input gives the same bytes. (Smoothing: SageAttention,
// arXiv:2410.02367, section 4.2.)
#include "heads.cuh"
#include "reduce.cuh"

namespace agk {
namespace {

// A group of 64 keys of 64 halves is one vector a thread.
constexpr int THREADS = 512;

// Sum of the normalised keys of KEY_CHUNK tokens: grid (chunks, heads, batch), out [batch, heads, chunks, head_width].
template <typename T>
__global__ void __launch_bounds__(THREADS) key_sum_kernel(agk_heads shape, int lanes, float* out) {
    constexpr int N = VECTOR<T>;
    __shared__ float sums[THREADS * N];
    const int lane = threadIdx.x % lanes, slot = threadIdx.x / lanes, slots = THREADS / lanes;
    const int64_t first = blockIdx.x * KEY_CHUNK, last = min(first + KEY_CHUNK, shape.tokens);
    const int head = blockIdx.y;
    const HeadNorm<N> norm(shape, false, lane);
    float sum[N] = {};
    for (int64_t begin = first; begin < last; begin += slots) {
        const int64_t token = begin + slot;
        float value[N] = {};
        if (token < last) to_floats(load<N>(vector_of<T>(shape, blockIdx.z * shape.tokens + token, KEY, head, lane)), value);
        normalise_head(norm, lanes, value);
#pragma unroll
        for (int i = 0; i < N; ++i) sum[i] += token < last ? value[i] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) sums[threadIdx.x * N + i] = sum[i];
    __syncthreads();
    const int width = lanes * N;
    for (int column = threadIdx.x; column < width; column += THREADS) {
        float total = 0.0f;
        for (int other = 0; other < slots; ++other) total += sums[other * width + column];
        out[((static_cast<int64_t>(blockIdx.z) * shape.heads + head) * gridDim.x + blockIdx.x) * width + column] = total;
    }
}

// The chunks' sums to a mean: grid (heads, batch), a thread a column.
__global__ void key_mean_kernel(agk_heads shape, int chunks, const float* sums, float* mean) {
    const int64_t row = static_cast<int64_t>(blockIdx.y) * shape.heads + blockIdx.x;
    float total = 0.0f;
    for (int chunk = 0; chunk < chunks; ++chunk) total += sums[(row * chunks + chunk) * shape.head_width + threadIdx.x];
    mean[row * shape.head_width + threadIdx.x] = total / static_cast<float>(shape.tokens);
}

// Grid (groups, heads, batch * 2): a block normalises its group for the largest magnitude, and to write it once more unless
// its threads hold all of it.
template <typename T>
__global__ void __launch_bounds__(THREADS) quantise_kernel(agk_head_norm_int8_args a, int lanes) {
    constexpr int N = VECTOR<T>;
    __shared__ unsigned scratch[MAX_WARPS];
    clear(scratch);
    const agk_heads& shape = a.shape;
    const Part part = blockIdx.z % 2 ? KEY : QUERY;
    const int64_t entry = blockIdx.z / 2, group = part == KEY ? a.key_group : a.query_group;
    const int head = blockIdx.y;
    const int64_t first = blockIdx.x * group, last = min(first + group, shape.tokens);
    // The grid has room for the more of the two kinds of group.
    if (first >= shape.tokens) return;
    const int lane = threadIdx.x % lanes, slot = threadIdx.x / lanes, slots = static_cast<int>(blockDim.x) / lanes;
    const int64_t row = entry * shape.heads + head;
    float mean[N] = {};
    if (part == KEY) load_floats(a.key_mean + row * shape.head_width + lane * N, mean);

    const HeadNorm<N> norm(shape, part == QUERY, lane);
    const auto smoothed = [&](int64_t token, float(&value)[N]) {
#pragma unroll
        for (int i = 0; i < N; ++i) value[i] = 0.0f;
        if (token < last) to_floats(load<N>(vector_of<T>(shape, entry * shape.tokens + token, part, head, lane)), value);
        normalise_head(norm, lanes, value);
#pragma unroll
        for (int i = 0; i < N; ++i) value[i] -= mean[i];
    };
    float value[N];
    unsigned bits = SMALLEST_MAGNITUDE_BITS;
    for (int64_t begin = first; begin < last; begin += slots) {
        smoothed(begin + slot, value);
        if (begin + slot >= last) continue;
#pragma unroll
        for (int i = 0; i < N; ++i) bits = max(bits, magnitude_bits(value[i]));
    }
    const float magnitude = __uint_as_float(block_max(bits, scratch));
    const float factor = LARGEST<int8_t> / magnitude;
    if (threadIdx.x == 0) {
        const int64_t groups = (shape.tokens + group - 1) / group;
        (part == KEY ? a.key_scales : a.query_scales)[row * groups + blockIdx.x] = magnitude / LARGEST<int8_t>;
    }
    int8_t* out = (part == KEY ? a.key : a.query) + row * shape.tokens * shape.head_width + lane * N;
    for (int64_t begin = first; begin < last; begin += slots) {
        if (group > slots) smoothed(begin + slot, value);
        if (begin + slot >= last) continue;
#pragma unroll
        for (int i = 0; i < N; ++i) value[i] *= factor;
        store(out + (begin + slot) * shape.head_width, value);
    }
}

}  // namespace
}  // namespace agk

extern "C" int agk_head_norm_int8(const agk_head_norm_int8_args* args, void* to) {
    using namespace agk;
    const char* name = "head_norm_int8";
    if (const int code = check(args)) return code;
    const agk_heads& shape = args->shape;
    const auto stream = static_cast<cudaStream_t>(to);
    const auto batch = static_cast<unsigned>(shape.batch), heads = static_cast<unsigned>(shape.heads);
    const auto chunks = static_cast<unsigned>(divide_up(shape.tokens, KEY_CHUNK));
    const int64_t smaller = args->query_group < args->key_group ? args->query_group : args->key_group;
    const int64_t larger = args->query_group < args->key_group ? args->key_group : args->query_group;
    auto* sums = static_cast<float*>(args->workspace);
    return with_activations(shape.dtype, [&](auto element) {
        using T = decltype(element);
        const int lanes = static_cast<int>(shape.head_width / VECTOR<T>);
        // No more threads than a group has vectors.
        const int64_t wanted = divide_up(larger * lanes, WARP) * WARP;
        const int threads = wanted < THREADS ? static_cast<int>(wanted) : THREADS;
        key_sum_kernel<T><<<dim3(chunks, heads, batch), THREADS, 0, stream>>>(shape, lanes, sums);
        if (const int code = launched(name)) return code;
        key_mean_kernel<<<dim3(heads, batch), static_cast<unsigned>(shape.head_width), 0, stream>>>(
            shape, static_cast<int>(chunks), sums, args->key_mean);
        if (const int code = launched(name)) return code;
        quantise_kernel<T><<<dim3(static_cast<unsigned>(divide_up(shape.tokens, smaller)), heads, 2 * batch), threads, 0,
                             stream>>>(*args, lanes);
        return launched(name);
    });
}
