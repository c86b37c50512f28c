// LayerNorm of every head of queries and keys in place, in one pass over qkv.
//
// Neighbouring lanes of a warp hold a head (16 bytes each) and reduce it by shuffles. A block handles a range of tokens; a thread
// handles the same vector of the queries or keys of each of them, so it keeps the norm's weights in registers. It prefetches two
// tokens ahead.
#include "launch.cuh"

namespace agk {
namespace {

constexpr int MAX_THREADS = 512;

// Sum over the `lanes` threads of a head; `lanes` is a power of two. All threads of the warp must call it.
__device__ __forceinline__ float head_sum(float value, int lanes) {
    // Unrolled for the network's heads of 64 16-bit elements.
    if (lanes == 8) {
#pragma unroll
        for (int distance = 4; distance; distance /= 2) value += __shfl_xor_sync(~0u, value, distance);
        return value;
    }
    for (int distance = lanes / 2; distance; distance /= 2) value += __shfl_xor_sync(~0u, value, distance);
    return value;
}

// Subtracts a head's mean from its values. Returns 1 / standard deviation.
template <int N>
__device__ __forceinline__ float centre_head(int lanes, float inverse_width, float epsilon, float (&value)[N]) {
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < N; ++i) sum += value[i];
    const float mean = head_sum(sum, lanes) * inverse_width;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        value[i] -= mean;
        squares += value[i] * value[i];
    }
    return rsqrtf(head_sum(squares, lanes) * inverse_width + epsilon);
}

// Grid: (ranges of tokens, parts of a token's vectors). The vectors of a token are those of its queries, then those of its keys.
template <typename T>
__global__ void __launch_bounds__(MAX_THREADS, 2)
    head_kernel(agk_head_norm_args a, int lanes, int vectors, int tokens_per_block) {
    constexpr int N = VECTOR<T>;
    const int index = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
    // No early return: shuffles need whole warps. `vectors` is a multiple of `lanes`.
    const bool inside = index < vectors, query = index < vectors / 2;
    float weight[N], bias[N];
    const int column = index % lanes * N;
    load_floats((query ? a.query_weight : a.key_weight) + column, weight);
    load_floats((query ? a.query_bias : a.key_bias) + column, bias);
    const float inverse_width = 1.0f / static_cast<float>(a.head_width);
    // check() limits tokens to 2^31.
    const int tokens = static_cast<int>(a.batch * a.tokens), first = static_cast<int>(blockIdx.x) * tokens_per_block;
    const int count = min(tokens_per_block, tokens - first);
    const int64_t stride = 3 * a.heads * a.head_width;
    T* at = static_cast<T*>(a.qkv) + first * stride + static_cast<int64_t>(index) * N;
    Words<T, N> prefetched{}, after{};
    if (inside) prefetched = load_words<N>(static_cast<const T*>(at));
    if (inside && count > 1) after = load_words<N>(static_cast<const T*>(at + stride));
    for (int done = 0; done < count; ++done, at += stride) {
        float value[N];
        to_floats(prefetched, value);
        prefetched = after;
        if (inside && done + 2 < count) after = load_words<N>(static_cast<const T*>(at + 2 * stride));
        const float inverse_deviation = centre_head(lanes, inverse_width, a.epsilon, value);
#pragma unroll
        for (int i = 0; i < N; ++i) value[i] = value[i] * inverse_deviation * weight[i] + bias[i];
        if (inside) store(at, value);
    }
}

}  // namespace
}  // namespace agk

extern "C" int agk_head_norm(const agk_head_norm_args* args, void* stream) {
    using namespace agk;
    const char* name = "head_norm";
    if (const int code = check(args)) return code;
    return with_activations(args->dtype, [&](auto element) {
        using T = decltype(element);
        const auto kernel = head_kernel<T>;
        const int lanes = static_cast<int>(args->head_width / VECTOR<T>);
        const int64_t vectors = 2 * args->heads * lanes, parts = divide_up(vectors, MAX_THREADS);
        const int threads = static_cast<int>(divide_up(divide_up(vectors, parts), WARP)) * WARP;
        int64_t blocks = 0;
        if (const int code = cuda_result(name, resident_blocks(kernel, threads, blocks))) return code;
        const int64_t tokens = args->batch * args->tokens, tokens_per_block = divide_up(tokens * parts, blocks);
        const dim3 grid(static_cast<unsigned>(divide_up(tokens, tokens_per_block)), static_cast<unsigned>(parts));
        kernel<<<grid, threads, 0, static_cast<cudaStream_t>(stream)>>>(
            *args, lanes, static_cast<int>(vectors), static_cast<int>(tokens_per_block));
        return launch_result(name);
    });
}
