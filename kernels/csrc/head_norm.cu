// LayerNorm of every head of queries and keys, and the layout that attention wants, in one pass over qkv.
//
// A block takes a token. Its threads run through the token's queries and keys (and values, if they move too) in the
// order they lie in, 16 bytes each.
#include "heads.cuh"

namespace agk {
namespace {

constexpr int MAX_THREADS = 1024;

template <typename T>
__global__ void __launch_bounds__(MAX_THREADS) head_kernel(agk_head_norm_args a, int lanes, int vectors) {
    constexpr int N = VECTOR<T>;
    const int64_t token_row = blockIdx.x;
    const int64_t entry = token_row / a.shape.tokens, token = token_row - entry * a.shape.tokens;
    const int heads = static_cast<int>(a.shape.heads);
    // Whole warps stay in the loop, for the shuffles; `vectors` is a multiple of `lanes`.
    for (int begin = 0; begin < vectors; begin += static_cast<int>(blockDim.x)) {
        const int index = begin + static_cast<int>(threadIdx.x);
        const bool inside = index < vectors;
        const int lane = index % lanes, head = index / lanes % heads, part = index / lanes / heads;
        float value[N] = {};
        if (inside) to_floats(load<N>(vector_of<T>(a.shape, token_row, part, head, lane)), value);
        float normalised[N];
#pragma unroll
        for (int i = 0; i < N; ++i) normalised[i] = value[i];
        normalise_head(a.shape, part == QUERY ? QUERY : KEY, lane, lanes, normalised);
        if (!inside) continue;
        T* out = static_cast<T*>(part == QUERY ? a.query : part == KEY ? a.key : a.value);
        out += entry * a.batch_stride + token * a.token_stride + head * a.head_stride + lane * N;
#pragma unroll
        for (int i = 0; i < N; ++i) value[i] = part == VALUE ? value[i] : normalised[i];
        store(out, value);
    }
}

}  // namespace
}  // namespace agk

extern "C" int agk_head_norm(const agk_head_norm_args* args, void* stream) {
    using namespace agk;
    if (const int code = check(args)) return code;
    const agk_heads& shape = args->shape;
    return with_activations(shape.dtype, [&](auto element) {
        using T = decltype(element);
        const int lanes = static_cast<int>(shape.head_width / VECTOR<T>);
        const int vectors = static_cast<int>(shape.heads) * lanes * (args->value == nullptr ? 2 : 3);
        const int threads = static_cast<int>(divide_up(vectors, WARP)) * WARP;
        head_kernel<T><<<static_cast<unsigned>(shape.batch * shape.tokens), threads < MAX_THREADS ? threads : MAX_THREADS,
                         0, static_cast<cudaStream_t>(stream)>>>(*args, lanes, vectors);
        return launched("head_norm");
    });
}
