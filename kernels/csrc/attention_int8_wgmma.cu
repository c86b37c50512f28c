// attention_int8 for Hopper: the same by products of warpgroups, which read keys and values from shared memory themselves and
// at twice the rate of mma.sync.
//
// Each of three warpgroups keeps 64 queries. Weights times the values of a tile run while the next tile's scores become
// weights, and where those wait for each other, other warpgroups have the rest to do. What a row's weights sum up to is one
// more product, by ones. (Scores before the last tile's results: FlashAttention-3, arXiv:2407.08608.)
#include "warpgroup.cuh"

namespace agk {
namespace {

constexpr int WARPS = 12, THREADS = WARPS * WARP, QUERIES = WARPS * ROWS;
// Tiles in shared memory: whose values are multiplied, whose scores are, and what is being copied.
constexpr int SLOTS = 3;
// A product with halves is 16 deep. Rows of keys have 64 bytes, of values 128, each as wide as its swizzle; of ones 16.
constexpr int DEPTH = 16;
constexpr unsigned BYTES_OF_8_KEYS = 8 * WIDTH, BYTES_OF_8_VALUES = 8 * WIDTH * 2, BYTES_OF_8_ONES = 8 * COLUMNS * 2;

// A product's right side whose every column sums up what it is multiplied by.
template <typename T>
struct alignas(128) Ones {
    T v[DEPTH * COLUMNS];
};

// Results of a warpgroup's queries so far, each warp's of 16, and the sums of their weights in every column.
struct Results {
    float out[WIDTH_TILES][4], sum[1][4];
};

// Begins the scores of a tile: 64 deep in two products.
template <typename T>
__device__ __forceinline__ void begin_scores(int (&scores)[KEY_TILES][4], const uint32_t (&query)[2][4], const Tile<T>& tile) {
    begin_products();
    multiply<false>(scores, query[0], describe(tile.keys, BYTES_OF_8_KEYS, Swizzle::Bytes64));
    multiply<true>(scores, query[1], describe(tile.keys + WIDTH / 2, BYTES_OF_8_KEYS, Swizzle::Bytes64));
    end_products();
}

// Begins to add weights times the values of a tile.
template <typename T>
__device__ __forceinline__ void begin_results(Results& results, const uint32_t (&weights)[STEPS][4], const Tile<T>& tile,
                                              const Ones<T>& ones) {
    begin_products();
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        const T* values = tile.values + step * DEPTH * WIDTH;
        multiply<T>(results.out, weights[step], describe(values, BYTES_OF_8_VALUES, Swizzle::Bytes128));
        multiply<T>(results.sum, weights[step], describe(ones.v, BYTES_OF_8_ONES, Swizzle::None));
    }
    end_products();
}

// Waits for the last results, and brings them to the maximum that the next weights have.
__device__ __forceinline__ void settle(Results& results, const float (&shrink)[1][2]) {
    wait<0>(results.out, results.sum);
    if (any_new_maximum(shrink)) {
        rescale(results.out, shrink[0]);
        rescale(results.sum, shrink[0]);
    }
}

// Grid (tiles of QUERIES queries, heads, batch). 168 registers a thread are one block a multiprocessor.
template <typename T>
__global__ void __launch_bounds__(THREADS, 1) warpgroup_kernel(agk_attention_int8_args a) {
    __shared__ Tile<T> tiles[SLOTS];
    __shared__ Ones<T> ones;
    const int tokens = static_cast<int>(a.tokens);
    const int first_row = blockIdx.x * QUERIES + threadIdx.x / WARP * ROWS + threadIdx.x % WARP / 4;
    const auto all_arrived = [] {
        copies_arrived_for_products();
        __syncthreads();
    };
    const Head<T> head(a);
    Fetcher<THREADS, T> fetcher(head, a.token_stride);
    KeyScales key_scales(head.key_scales, a.key_group);
    fetcher.next(tiles[0], tokens);
    if (threadIdx.x < DEPTH * COLUMNS) ones.v[threadIdx.x] = from_float<T>(1.0f);

    Softmax softmax;
    Results results{};
    uint32_t query[2][4], pairs[STEPS][4];
    int scores[KEY_TILES][4];
    float weights[KEY_TILES][4], shrink[1][2];
    const auto weigh = [&](int first) {
#pragma unroll
        for (int i = 0; i < KEY_TILES * 4; ++i) weights[i / 4][i % 4] = static_cast<float>(scores[i / 4][i % 4]);
        continue_softmax(softmax, weights, key_scales.next(), tokens - first, shrink[0]);
    };
    take_queries(softmax, query, a, head, first_row);
    all_arrived();
    fetcher.next(tiles[1], tokens - KEYS);
    begin_scores(scores, query, tiles[0]);
    wait<0>(scores);
    weigh(0);

    int last = 0;
#pragma unroll 1
    for (int first = KEYS; first < tokens; first += KEYS) {
        const int now = (last + 1) % SLOTS;
        settle(results, shrink);
        pack<T>(weights, pairs);
        // This tile is there, and nobody multiplies any more by the one before the last, whose place the next one takes.
        all_arrived();
        fetcher.next(tiles[(now + 1) % SLOTS], tokens - first - KEYS);
        begin_scores(scores, query, tiles[now]);
        begin_results(results, pairs, tiles[last], ones);
        wait<1>(scores);
        weigh(first);
        last = now;
    }
    settle(results, shrink);
    pack<T>(weights, pairs);
    begin_results(results, pairs, tiles[last], ones);
    wait<0>(results.out, results.sum);
    finish<T>(a, results.out, {results.sum[0][0], results.sum[0][2]}, first_row);
}

}  // namespace

int attention_int8_by_warpgroups(const agk_attention_int8_args& args, cudaStream_t stream) {
    const dim3 grid(static_cast<unsigned>(divide_up(args.tokens, QUERIES)), static_cast<unsigned>(args.heads),
                    static_cast<unsigned>(args.batch));
    return with_halves(args.dtype, [&](auto element) {
        const auto kernel = warpgroup_kernel<decltype(element)>;
        kernel<<<grid, THREADS, 0, stream>>>(args);
        return launched("attention_int8");
    });
}

}  // namespace agk
