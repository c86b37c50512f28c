// attention_int8 for Hopper, with wgmma, which reads keys and values from shared memory and has twice the rate of mma.sync.
//
// Each of three warpgroups has 64 queries. The product of weights and values of a tile runs while the next tile's scores become
// weights; while one warpgroup waits, the others run. (Scores before the previous tile's results: FlashAttention-3,
// arXiv:2407.08608.)
//
// There are two of it, of which a GPU has to say which one is faster. Plain: each thread adds its own weights in float32, and
// the product has the 64 columns of the values, one whole swizzle pattern. With ONES: 8 columns of ones follow those of the
// values, so that the product sums the rounded weights too; they lie in a second pattern, of which an eighth exists.
#include "warpgroup_attention.cuh"

namespace agk {
namespace {

constexpr int WARPS = 12, THREADS = WARPS * WARP, QUERIES = WARPS * ROWS;
// Tiles in shared memory: one for the product with values, one for the scores, one being copied.
constexpr int SLOTS = 3;
// A row of keys has 64 bytes and a row of values 128, each the width of its swizzle.
constexpr unsigned BYTES_OF_8_KEYS = 8 * WIDTH, BYTES_OF_8_VALUES = 8 * WIDTH * 2;

// The values of DEPTH keys, and as many ones.
template <typename T>
constexpr unsigned STEP_BYTES = DEPTH * WIDTH * sizeof(T);

// The ones come last, because offsets in a descriptor cannot be negative.
template <typename T, bool ONES>
struct Shared {
    Tile<T> tiles[SLOTS];
    T ones[ONES ? DEPTH * WIDTH : 1];
};

// Descriptors of the first tile's keys, and of its values, with ONES those as columns 64 to 71. Other tiles: advance them.
template <typename T, bool ONES>
struct Descriptors {
    uint64_t keys, values;

    __device__ __forceinline__ explicit Descriptors(const Shared<T, ONES>& shared)
        : keys(make_descriptor(shared.tiles[0].keys, 0, BYTES_OF_8_KEYS, Swizzle::Bytes64)),
          values(make_descriptor(shared.tiles[0].values,
                                 ONES ? shared_address(shared.ones) - shared_address(shared.tiles[0].values) : 0,
                                 BYTES_OF_8_VALUES, Swizzle::Bytes128)) {}

    // The descriptor of values `bytes` further on; the ones stay where they are.
    static __device__ __forceinline__ uint64_t values_at(uint64_t values, unsigned bytes) {
        return ONES ? advance_descriptor_before(values, bytes) : advance_descriptor(values, bytes);
    }
};

// Accumulators of a warp's 16 queries: results so far, with ONES in the last tile the sums of the weights.
template <bool ONES>
using Results = float[WIDTH_TILES + ONES][4];

// Starts the scores of a tile: a depth of 64 in two MMAs.
template <typename T, bool ONES>
__device__ __forceinline__ void begin_scores(int (&scores)[KEY_TILES][4], const uint32_t (&query)[2][4],
                                             const Descriptors<T, ONES>& of, int slot) {
    const uint64_t keys = advance_descriptor(of.keys, slot * sizeof(Tile<T>));
    wgmma_fence();
    mma<false>(scores, query[0], keys);
    mma<true>(scores, query[1], advance_descriptor(keys, WIDTH / 2));
    wgmma_commit();
}

// Starts to add the product of weights and values of a tile.
template <typename T, bool ONES>
__device__ __forceinline__ void begin_results(Results<ONES>& results, const uint32_t (&weights)[STEPS][4],
                                              const Descriptors<T, ONES>& of, int slot) {
    const uint64_t values = of.values_at(of.values, slot * sizeof(Tile<T>));
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        mma<T>(results, weights[step], of.values_at(values, step * STEP_BYTES<T>));
    }
    wgmma_commit();
}

// Grid: (tiles of QUERIES queries, heads, batch). At most 168 registers per thread: one block per multiprocessor.
template <typename T, bool ONES>
__global__ void __launch_bounds__(THREADS, 1) warpgroup_kernel(agk_attention_int8_args a) {
    __shared__ Shared<T, ONES> shared;
    const int tokens = static_cast<int>(a.tokens);
    const int first_row = blockIdx.x * QUERIES + threadIdx.x / WARP * ROWS + threadIdx.x % WARP / 4;
    const auto all_arrived = [] {
        wait_for_copies();
        fence_before_wgmma();
        __syncthreads();
    };
    const HeadPointers<T> head(a);
    const Descriptors<T, ONES> descriptors(shared);
    TileLoader<THREADS, T> loader(head, a.token_stride);
    KeyScales key_scales(head.key_scales, a.key_group);
    loader.next(shared.tiles[0], tokens);
    if constexpr (ONES) {
        for (unsigned i = threadIdx.x; i < DEPTH * WIDTH; i += THREADS) shared.ones[i] = from_float<T>(1.0f);
    }

    Softmax softmax;
    Results<ONES> results{};
    float sum[2] = {};
    uint32_t query[2][4], pairs[STEPS][4];
    int scores[KEY_TILES][4];
    float weights[KEY_TILES][4], shrink[1][2];
    const auto weigh_tile = [&](int keys) {
        weigh(softmax, scores, weights, keys, key_scales.next(), shrink[0]);
        if constexpr (!ONES) add_weights(sum, weights, shrink[0]);
    };
    load_queries(softmax, query, a, head, first_row);
    all_arrived();
    if (tokens > KEYS) loader.next(shared.tiles[1], tokens - KEYS);
    begin_scores(scores, query, descriptors, 0);
    wait<0>(scores);
    weigh_tile(tokens);

    int last = 0;
#pragma unroll 1
    for (int left = tokens - KEYS; left > 0; left -= KEYS) {
        const int now = last + 1 == SLOTS ? 0 : last + 1, next = now + 1 == SLOTS ? 0 : now + 1;
        settle(results, pairs, shrink);
        pack<T>(weights, pairs);
        // This tile has arrived, and no MMA still reads the tile before the last, which the next one overwrites.
        all_arrived();
        if (left > KEYS) loader.next(shared.tiles[next], left - KEYS);
        begin_scores(scores, query, descriptors, now);
        begin_results(results, pairs, descriptors, last);
        wait<1>(scores);
        weigh_tile(left);
        last = now;
    }
    settle(results, pairs, shrink);
    pack<T>(weights, pairs);
    begin_results(results, pairs, descriptors, last);
    wait<0>(results);
    if constexpr (ONES) {
        store_results<T>(a, results, {results[WIDTH_TILES][0], results[WIDTH_TILES][2]}, first_row);
    } else {
        store_results<T>(a, results, {row_sum(sum[0]), row_sum(sum[1])}, first_row);
    }
}

}  // namespace

int attention_int8_by_warpgroups(const agk_attention_int8_args& args, cudaStream_t stream) {
    const dim3 grid(static_cast<unsigned>(divide_up(args.tokens, QUERIES)), static_cast<unsigned>(args.heads),
                    static_cast<unsigned>(args.batch));
    return with_halves(args.dtype, [&](auto element) {
        using T = decltype(element);
        const auto kernel = args.products == AGK_WARPGROUPS_ONES ? warpgroup_kernel<T, true> : warpgroup_kernel<T, false>;
        kernel<<<grid, THREADS, 0, stream>>>(args);
        return launch_result("attention_int8");
    });
}

}  // namespace agk
