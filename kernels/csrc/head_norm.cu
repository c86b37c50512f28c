// LayerNorm of every head of queries and keys, and the layout that attention wants, in one pass over qkv.
//
// A block takes a run of tokens, and of each the same vectors of its queries and keys (and values, if they move too). So
// a thread knows its head once and for all, holds its part of the norm, and has the next two tokens' 16 bytes on their way.
#include "heads.cuh"

namespace agk {
namespace {

constexpr int MAX_THREADS = 512;

// Grid (runs of tokens, parts of a token's vectors).
template <typename T>
__global__ void __launch_bounds__(MAX_THREADS, 2)
    head_kernel(agk_head_norm_args a, int lanes, int vectors, int tokens_a_block) {
    constexpr int N = VECTOR<T>;
    const int index = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x), heads = static_cast<int>(a.shape.heads);
    // Whole warps stay, for the shuffles; `vectors` is a multiple of `lanes`.
    const bool inside = index < vectors;
    const int lane = index % lanes, head = index / lanes % heads, part = index / lanes / heads;
    const HeadNorm<N> norm(a.shape, part == QUERY, lane);
    // Fewer than 2^31 tokens, as check() has seen.
    const int tokens = static_cast<int>(a.shape.tokens), first = static_cast<int>(blockIdx.x) * tokens_a_block;
    const int left = min(tokens_a_block, static_cast<int>(a.shape.batch) * tokens - first);
    const int64_t entry = first / tokens, stride = token_stride(a.shape);
    int token = first % tokens;
    const T* from = vector_of<T>(a.shape, first, part, head, lane);
    T* out = static_cast<T*>(part == QUERY ? a.query : part == KEY ? a.key : a.value);
    out += entry * a.batch_stride + token * a.token_stride + head * a.head_stride + lane * N;
    Words<T, N> coming{}, after{};
    if (inside) coming = load_words<N>(from);
    if (inside && left > 1) after = load_words<N>(from + stride);
    for (int done = 0; done < left; ++done, ++token) {
        if (token == tokens) {
            token = 0;
            out += a.batch_stride - tokens * a.token_stride;
        }
        // Two tokens are on their way while one is normalised.
        const Words<T, N> words = coming;
        coming = after;
        if (inside && done + 2 < left) after = load_words<N>(from + 2 * stride);
        from += stride;
        float value[N];
        to_floats(words, value);
        normalise_head(norm, lanes, value);
        if (part == VALUE) to_floats(words, value);
        if (inside) store(out, value);
        out += a.token_stride;
    }
}

}  // namespace
}  // namespace agk

extern "C" int agk_head_norm(const agk_head_norm_args* args, void* stream) {
    using namespace agk;
    const char* name = "head_norm";
    if (const int code = check(args)) return code;
    const agk_heads& shape = args->shape;
    return with_activations(shape.dtype, [&](auto element) {
        using T = decltype(element);
        const auto kernel = head_kernel<T>;
        const int lanes = static_cast<int>(shape.head_width / VECTOR<T>);
        const int64_t vectors = shape.heads * lanes * (args->value == nullptr ? 2 : 3);
        const int64_t parts = divide_up(vectors, MAX_THREADS);
        const int threads = static_cast<int>(divide_up(divide_up(vectors, parts), WARP)) * WARP;
        int64_t blocks = 0;
        if (const int code = cuda_result(name, resident_blocks(kernel, threads, blocks))) return code;
        const int64_t tokens = shape.batch * shape.tokens, tokens_a_block = divide_up(tokens * parts, blocks);
        const dim3 grid(static_cast<unsigned>(divide_up(tokens, tokens_a_block)), static_cast<unsigned>(parts));
        kernel<<<grid, threads, 0, static_cast<cudaStream_t>(stream)>>>(
            *args, lanes, static_cast<int>(vectors), static_cast<int>(tokens_a_block));
        return launched(name);
    });
}
