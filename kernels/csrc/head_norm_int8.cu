// LayerNorm of every head of queries and keys, minus the keys' mean over the tokens, in INT8 with one scale per group of tokens.
//
// Keys are read twice, once for their mean; normalising them again is cheaper than storing them. Consecutive blocks handle the
// heads of the same tokens, so that together they read whole rows of qkv. Sums are added in a fixed order, so results are
// deterministic. (Smoothing: SageAttention, arXiv:2410.02367, section 4.2.)
#include "heads.cuh"
#include "reduce.cuh"

namespace agk {
namespace {

// One vector per thread for a group of 64 keys of 64 16-bit elements.
constexpr int THREADS = 512;
// Loads in flight per thread for the keys' mean, and groups per block.
constexpr int VECTORS_IN_FLIGHT = 4;
constexpr unsigned GROUPS = 8;

// Sums the keys of KEY_CHUNK tokens, normalised without weight and bias. Grid: (heads of chunks, batch). out: [batch, heads,
// chunks, head_width].
template <typename T>
__global__ void __launch_bounds__(THREADS, 2) key_sum_kernel(agk_heads shape, int lanes, int chunks, float* out) {
    constexpr int N = VECTOR<T>;
    __shared__ float sums[THREADS / WARP][WARP * N];
    const int heads = static_cast<int>(shape.heads), head = blockIdx.x % heads, chunk = blockIdx.x / heads;
    const int lane = threadIdx.x % lanes, slots = THREADS / lanes;
    const float inverse_width = 1.0f / static_cast<float>(shape.head_width);
    // check() limits tokens to 2^31.
    const int tokens = static_cast<int>(shape.tokens), slot = threadIdx.x / lanes, first = chunk * static_cast<int>(KEY_CHUNK);
    const int last = min(first + static_cast<int>(KEY_CHUNK), tokens);
    const T* from = vector_of<T>(shape, blockIdx.y * shape.tokens + first + slot, KEY, head, lane);
    const int64_t step = slots * token_stride(shape);
    float sum[N] = {};
    for (int begin = first; begin < last; begin += VECTORS_IN_FLIGHT * slots, from += VECTORS_IN_FLIGHT * step) {
        Words<T, N> words[VECTORS_IN_FLIGHT] = {};
#pragma unroll
        for (int i = 0; i < VECTORS_IN_FLIGHT; ++i) {
            if (begin + i * slots + slot < last) words[i] = load_words<N>(from + i * step);
        }
#pragma unroll
        for (int i = 0; i < VECTORS_IN_FLIGHT; ++i) {
            // Tokens past the end are zeros and add 0.
            float value[N];
            to_floats(words[i], value);
            const float inverse_deviation = centre_head(lanes, inverse_width, shape.epsilon, value);
#pragma unroll
            for (int j = 0; j < N; ++j) sum[j] += value[j] * inverse_deviation;
        }
    }
    for (int distance = lanes; distance < WARP; distance *= 2) {
#pragma unroll
        for (int i = 0; i < N; ++i) sum[i] += __shfl_xor_sync(~0u, sum[i], distance);
    }
    const int column = static_cast<int>(threadIdx.x), width = lanes * N;
#pragma unroll
    for (int i = 0; i < N; ++i) sums[threadIdx.x / WARP][lane * N + i] = sum[i];
    __syncthreads();
    if (column >= width) return;
    float total = 0.0f;
#pragma unroll
    for (int warp = 0; warp < THREADS / WARP; ++warp) total += sums[warp][column];
    out[((blockIdx.y * shape.heads + head) * chunks + chunk) * width + column] = total;
}

// The mean from the chunks' sums. Grid: (heads, batch), one thread per column.
__global__ void key_mean_kernel(agk_heads shape, int chunks, const float* sums, float* mean) {
    const int64_t row = static_cast<int64_t>(blockIdx.y) * shape.heads + blockIdx.x;
    float total = 0.0f;
    for (int chunk = 0; chunk < chunks; ++chunk) total += sums[(row * chunks + chunk) * shape.head_width + threadIdx.x];
    mean[row * shape.head_width + threadIdx.x] =
        total / static_cast<float>(shape.tokens) * shape.key_weight[threadIdx.x] + shape.key_bias[threadIdx.x];
}

// Quantises queries (key_mean NULL), or keys with their mean [batch, heads, head_width]. Grid: (heads of GROUPS groups, batch). A
// block normalises a group to find the largest magnitude, and again to write it unless its threads hold the whole group.
template <typename T>
__global__ void __launch_bounds__(THREADS, 2)
    quantise_kernel(agk_heads shape, int lanes, int group, unsigned groups, const float* key_mean, int8_t* out, float* scales) {
    constexpr int N = VECTOR<T>;
    __shared__ unsigned scratch[2][MAX_WARPS];
    clear(scratch[0]);
    clear(scratch[1]);
    const int heads = static_cast<int>(shape.heads), head = blockIdx.x % heads;
    const int lane = threadIdx.x % lanes, slot = threadIdx.x / lanes, slots = static_cast<int>(blockDim.x) / lanes;
    const int64_t entry = blockIdx.y, row = entry * heads + head;
    HeadNorm<N> norm(shape, key_mean == nullptr, lane);
    if (key_mean != nullptr) {
        float mean[N];
        load_floats(key_mean + row * shape.head_width + lane * N, mean);
#pragma unroll
        for (int i = 0; i < N; ++i) norm.bias[i] -= mean[i];
    }
    const unsigned first = blockIdx.x / heads * GROUPS, last = min(first + GROUPS, groups);
    const int64_t begin = static_cast<int64_t>(first) * group + slot, stride = token_stride(shape);
    const T* from = vector_of<T>(shape, entry * shape.tokens + begin, key_mean == nullptr ? QUERY : KEY, head, lane);
    out += (row * shape.tokens + begin) * shape.head_width + lane * N;
    // check() limits tokens to 2^31.
    int remaining = static_cast<int>(shape.tokens - begin);
    const auto fetch = [&](int ahead) { return ahead < remaining ? load_words<N>(from + ahead * stride) : Words<T, N>{}; };
    float value[N];
    const auto normalise = [&](const Words<T, N>& words) {
        to_floats(words, value);
        normalise_head(norm, lanes, value);
    };
    Words<T, N> prefetched = fetch(0);
    for (unsigned number = first; number < last; ++number) {
        const int group_tokens = min(group - slot, remaining);
        unsigned bits = MIN_MAGNITUDE_BITS;
        normalise(prefetched);
        // Prefetch the next group while this one is reduced.
        if (number + 1 < last) prefetched = fetch(group);
        for (int at = 0; at < group; at += slots) {
            if (at > 0) normalise(fetch(at));
            if (at >= group_tokens) continue;
#pragma unroll
            for (int i = 0; i < N; ++i) bits = max(bits, magnitude_bits(value[i]));
        }
        const float magnitude = __uint_as_float(block_max(bits, scratch[number % 2]));
        const float factor = MAX_VALUE<int8_t> / magnitude;
        if (threadIdx.x == 0) scales[row * groups + number] = magnitude / MAX_VALUE<int8_t>;
        for (int at = 0; at < group; at += slots) {
            if (group > slots) normalise(fetch(at));
            if (at >= group_tokens) continue;
            float code[N];
#pragma unroll
            for (int i = 0; i < N; ++i) code[i] = value[i] * factor;
            store(out + at * shape.head_width, code);
        }
        from += group * stride;
        out += group * shape.head_width;
        remaining -= group;
    }
}

template <typename T>
int quantise(const agk_heads& shape, int lanes, int64_t wanted, const float* key_mean, int8_t* out, float* scales,
             cudaStream_t stream) {
    const int64_t group = wanted < shape.tokens ? wanted : shape.tokens, groups = divide_up(shape.tokens, group);
    // At most one thread per vector of a group.
    const int64_t vectors = divide_up(group * lanes, WARP) * WARP;
    const int threads = vectors < THREADS ? static_cast<int>(vectors) : THREADS;
    const dim3 grid(static_cast<unsigned>(shape.heads * divide_up(groups, GROUPS)), static_cast<unsigned>(shape.batch));
    quantise_kernel<T><<<grid, threads, 0, stream>>>(shape, lanes, static_cast<int>(group), static_cast<unsigned>(groups),
                                                     key_mean, out, scales);
    return launch_result("head_norm_int8");
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
    auto* sums = static_cast<float*>(args->workspace);
    return with_activations(shape.dtype, [&](auto element) {
        using T = decltype(element);
        const int lanes = static_cast<int>(shape.head_width / VECTOR<T>);
        key_sum_kernel<T><<<dim3(heads * chunks, batch), THREADS, 0, stream>>>(shape, lanes, static_cast<int>(chunks), sums);
        if (const int code = launch_result(name)) return code;
        key_mean_kernel<<<dim3(heads, batch), static_cast<unsigned>(shape.head_width), 0, stream>>>(
            shape, static_cast<int>(chunks), sums, args->key_mean);
        if (const int code = launch_result(name)) return code;
        if (const int code = quantise<T>(shape, lanes, args->query_group, nullptr, args->query, args->query_scales, stream)) {
            return code;
        }
        return quantise<T>(shape, lanes, args->key_group, args->key_mean, args->key, args->key_scales, stream);
    });
}
