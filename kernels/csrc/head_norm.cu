// LayerNorm of every head of queries and keys, written in attention's layout, in one pass over qkv.
//
// A block handles a range of tokens; a thread handles the same vector of the queries, keys or copied values of each of them, so
// it keeps the norm's weights in registers. It prefetches two tokens ahead.
#include "heads.cuh"

namespace agk {
namespace {

constexpr int MAX_THREADS = 512;

// Grid: (ranges of tokens, parts of a token's vectors).
template <typename T>
__global__ void __launch_bounds__(MAX_THREADS, 2)
    head_kernel(agk_head_norm_args a, int lanes, int vectors, int tokens_per_block) {
    constexpr int N = VECTOR<T>;
    const int index = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x), heads = static_cast<int>(a.shape.heads);
    // No early return: shuffles need whole warps. `vectors` is a multiple of `lanes`.
    const bool inside = index < vectors;
    const int lane = index % lanes, head = index / lanes % heads, part = index / lanes / heads;
    const HeadNorm<N> norm(a.shape, part == QUERY, lane);
    // check() limits tokens to 2^31.
    const int tokens = static_cast<int>(a.shape.tokens), first = static_cast<int>(blockIdx.x) * tokens_per_block;
    const int remaining = min(tokens_per_block, static_cast<int>(a.shape.batch) * tokens - first);
    const int64_t entry = first / tokens, stride = token_stride(a.shape);
    int token = first % tokens;
    const T* from = vector_of<T>(a.shape, first, part, head, lane);
    T* out = static_cast<T*>(part == QUERY ? a.query : part == KEY ? a.key : a.value);
    out += entry * a.batch_stride + token * a.token_stride + head * a.head_stride + lane * N;
    Words<T, N> prefetched{}, after{};
    if (inside) prefetched = load_words<N>(from);
    if (inside && remaining > 1) after = load_words<N>(from + stride);
    for (int done = 0; done < remaining; ++done, ++token) {
        if (token == tokens) {
            token = 0;
            out += a.batch_stride - tokens * a.token_stride;
        }
        const Words<T, N> words = prefetched;
        prefetched = after;
        if (inside && done + 2 < remaining) after = load_words<N>(from + 2 * stride);
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
        const int64_t tokens = shape.batch * shape.tokens, tokens_per_block = divide_up(tokens * parts, blocks);
        const dim3 grid(static_cast<unsigned>(divide_up(tokens, tokens_per_block)), static_cast<unsigned>(parts));
        kernel<<<grid, threads, 0, static_cast<cudaStream_t>(stream)>>>(
            *args, lanes, static_cast<int>(vectors), static_cast<int>(tokens_per_block));
        return launch_result(name);
    });
}
