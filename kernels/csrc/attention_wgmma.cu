// Attention for Hopper with wgmma, which reads keys and values from shared memory and has twice the rate of mma.sync:
// attention_int8, and attention with scores of halves.
//
// One warpgroup copies keys and values, three have 64 queries each. Each slot of shared memory has two barriers: `full`, where
// the copying threads arrive when their copies are there, and `empty`, where the others' warps arrive when no MMA reads the
// slot any more. So one warpgroup's products run while another makes weights. Within a warpgroup, a tile's scores are started
// before the results of the tile before, which run while the scores become weights. (This order, threads that only copy, and
// registers given up by them: FlashAttention-3, arXiv:2407.08608.) A kernel with INT8 scores in which all threads copied and
// met at a barrier of the block for each tile took 1.4 times as long on an H100.
#include "warpgroup.cuh"

namespace agk {
namespace {

constexpr int WARPS = 12, THREADS = COPYING + WARPS * WARP, QUERIES = WARPS * ROWS;
// 512 threads have 128 registers each. These fit the same number, and the kernel needs more than 128.
constexpr int REGISTERS_TO_COPY = 32, REGISTERS = 160;
// One tile for the product with values, one for the scores, two on their way.
constexpr int SLOTS = 4;
// An MMA reads 32 bytes of a row of keys.
constexpr unsigned STEP_OF_KEYS = 32;

template <typename Key, typename T>
struct Shared {
    struct alignas(1024) {
        Key keys[KEYS * WIDTH];
        T values[KEYS * WIDTH];
    } slots[SLOTS];
    Barrier full[SLOTS], empty[SLOTS];
};

// A slot, and the parity of the phase of its barriers.
struct Slot {
    int number = 0;
    unsigned parity = 0;

    __device__ __forceinline__ Slot next() const {
        return number + 1 < SLOTS ? Slot{number + 1, parity} : Slot{0, parity ^ 1};
    }
};

// Waits for the last results and rescales them to the maximum of the next weights.
__device__ __forceinline__ void settle(float (&results)[WIDTH_TILES][4], uint32_t (&weights)[STEPS][4],
                                       const float (&shrink)[1][2]) {
    wait<0>(results, weights);
    if (any_maximum_changed(shrink)) rescale(results, shrink[0]);
}

__device__ __forceinline__ int largest_of(int a, int b, int c) { return __vimax3_s32(a, b, c); }
__device__ __forceinline__ float largest_of(float a, float b, float c) { return fmaxf(a, fmaxf(b, c)); }

// Weights of a tile of which `keys` keys exist, from its scores, int32 or float32. shrink: as of online_softmax.
template <typename Score>
__device__ __forceinline__ void weigh(Softmax& softmax, Score (&scores)[KEY_TILES][4], float (&weights)[KEY_TILES][4], int keys,
                                      float key_scale, float (&shrink)[2]) {
#pragma unroll
    for (int i = 0; i < KEY_TILES * 4; ++i) weights[i / 4][i % 4] = static_cast<float>(scores[i / 4][i % 4]);
    if (keys < KEYS) {
        mask(weights, keys, -INFINITY);
        if constexpr (std::is_same_v<Score, int>) {
            mask(scores, keys, INT32_MIN);
        } else {
            mask(scores, keys, -INFINITY);
        }
    }
    float largest[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        Score of_row = max(scores[0][2 * half], scores[0][2 * half + 1]);
#pragma unroll
        for (int tile = 1; tile < KEY_TILES; ++tile) {
            of_row = largest_of(of_row, scores[tile][2 * half], scores[tile][2 * half + 1]);
        }
        largest[half] = static_cast<float>(row_max(of_row));
    }
    online_softmax(softmax, weights, largest, key_scale, shrink);
}

// What INT8 scores and scores of halves do not share. PRODUCTS: MMAs of a tile's scores.
template <typename T>
struct Int8Scores {
    using Args = agk_attention_int8_args;
    using Key = int8_t;
    using Value = T;
    using Score = int;
    static constexpr int PRODUCTS = WIDTH / 32;

    HeadPointers<T> head;
    KeyScales scales;

    __device__ __forceinline__ explicit Int8Scores(const Args& a) : head(a), scales(head.key_scales, a.key_group) {}
    __device__ __forceinline__ RowLoader<Key> keys(const Args&) const { return {head.keys, WIDTH}; }
    __device__ __forceinline__ RowLoader<T> values(const Args& a) const { return {head.values, a.token_stride}; }
    __device__ __forceinline__ void load(Softmax& softmax, uint32_t (&query)[PRODUCTS][4], const Args& a, int row) const {
        load_queries(softmax, query, a, head, row);
    }
    __device__ __forceinline__ float key_scale() { return scales.next(); }
    template <bool ADD>
    static __device__ __forceinline__ void multiply(Score (&scores)[KEY_TILES][4], const uint32_t (&query)[4], uint64_t keys) {
        mma<ADD>(scores, query, keys);
    }
};

template <typename T>
struct HalfScores {
    using Args = agk_attention_args;
    using Key = T;
    using Value = T;
    using Score = float;
    static constexpr int PRODUCTS = WIDTH / DEPTH;

    int64_t head;

    __device__ __forceinline__ explicit HalfScores(const Args& a) : head(blockIdx.z * a.batch_stride + blockIdx.y * a.head_stride) {}
    __device__ __forceinline__ RowLoader<T> keys(const Args& a) const {
        return {static_cast<const T*>(a.key) + head, a.token_stride};
    }
    __device__ __forceinline__ RowLoader<T> values(const Args& a) const {
        return {static_cast<const T*>(a.value) + head, a.token_stride};
    }
    // Of each 16 columns a thread holds two from 2 (lane % 4) on and two from 8 later.
    __device__ __forceinline__ void load(Softmax& softmax, uint32_t (&query)[PRODUCTS][4], const Args& a, int first_row) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + half * 8;
            softmax.factor[half] = LOG2E_BY_8;
            softmax.largest[half] = -INFINITY;
            const auto* words = reinterpret_cast<const uint32_t*>(static_cast<const T*>(a.query) + head + row * a.token_stride);
#pragma unroll
            for (int part = 0; part < 2 * PRODUCTS; ++part) {
                query[part / 2][part % 2 * 2 + half] = row < a.tokens ? words[part * 4 + threadIdx.x % 4] : 0;
            }
        }
    }
    __device__ __forceinline__ float key_scale() { return 1.0f; }
    template <bool ADD>
    static __device__ __forceinline__ void multiply(Score (&scores)[KEY_TILES][4], const uint32_t (&query)[4], uint64_t keys) {
        mma<T, ADD, true>(scores, query, keys);
    }
};

template <typename Kind, typename Memory>
__device__ __forceinline__ void copy_tiles(Memory& shared, const Kind& kind, const typename Kind::Args& a) {
    auto keys = kind.keys(a);
    auto values = kind.values(a);
    Slot now, before;
    const auto say_full = [&](const Slot& slot) {
        fence_before_wgmma();
        shared.full[slot.number].arrive();
    };
    const int tokens = static_cast<int>(a.tokens);
#pragma unroll 1
    for (int left = tokens; left > 0; left -= KEYS) {
        // Of a slot that was never full, this parity's phase counts as ended.
        shared.empty[now.number].wait(now.parity ^ 1);
        keys.next(shared.slots[now.number].keys, left);
        values.next(shared.slots[now.number].values, left);
        commit_copies();
        if (left < tokens) {
            wait_for_groups<1>();
            say_full(before);
        }
        before = now;
        now = now.next();
    }
    wait_for_groups<0>();
    say_full(before);
}

template <typename Kind, typename Memory>
__device__ __forceinline__ void attend(Memory& shared, Kind& kind, const typename Kind::Args& a) {
    using T = typename Kind::Value;
    constexpr unsigned SLOT_BYTES = sizeof(shared.slots[0]), STEP_OF_VALUES = DEPTH * WIDTH * sizeof(T);
    const int tokens = static_cast<int>(a.tokens);
    const int first_row = blockIdx.x * QUERIES + (threadIdx.x - COPYING) / WARP * ROWS + threadIdx.x % WARP / 4;
    const uint64_t key_descriptor = make_descriptor(shared.slots[0].keys, 8 * WIDTH * sizeof(typename Kind::Key),
                                                    sizeof(typename Kind::Key) == 1 ? Swizzle::Bytes64 : Swizzle::Bytes128);
    const uint64_t value_descriptor = make_descriptor(shared.slots[0].values, 8 * WIDTH * sizeof(T), Swizzle::Bytes128);

    Softmax softmax;
    float results[WIDTH_TILES][4] = {}, sum[2] = {}, weights[KEY_TILES][4], shrink[1][2];
    uint32_t query[Kind::PRODUCTS][4], pairs[STEPS][4];
    typename Kind::Score scores[KEY_TILES][4];
    const auto begin_scores = [&](const Slot& slot) {
        shared.full[slot.number].wait(slot.parity);
        const uint64_t keys = advance_descriptor(key_descriptor, slot.number * SLOT_BYTES);
        wgmma_fence();
        Kind::template multiply<false>(scores, query[0], keys);
#pragma unroll
        for (int step = 1; step < Kind::PRODUCTS; ++step) {
            Kind::template multiply<true>(scores, query[step], advance_descriptor(keys, step * STEP_OF_KEYS));
        }
        wgmma_commit();
    };
    const auto begin_results = [&](const Slot& slot) {
        const uint64_t values = advance_descriptor(value_descriptor, slot.number * SLOT_BYTES);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            mma<T>(results, pairs[step], advance_descriptor(values, step * STEP_OF_VALUES));
        }
        wgmma_commit();
    };
    const auto weigh_tile = [&](int keys) {
        weigh(softmax, scores, weights, keys, kind.key_scale(), shrink[0]);
        add_weights(sum, weights, shrink[0]);
    };
    kind.load(softmax, query, a, first_row);
    Slot last, before;
    begin_scores(last);
    wait<0>(scores);
    weigh_tile(tokens);
#pragma unroll 1
    for (int left = tokens - KEYS; left > 0; left -= KEYS) {
        settle(results, pairs, shrink);
        // The tile before the last was read for the last time.
        if (left < tokens - KEYS && threadIdx.x % WARP == 0) shared.empty[before.number].arrive();
        pack<T>(weights, pairs);
        const Slot now = last.next();
        begin_scores(now);
        begin_results(last);
        wait<1>(scores);
        weigh_tile(left);
        before = last;
        last = now;
    }
    settle(results, pairs, shrink);
    pack<T>(weights, pairs);
    begin_results(last);
    wait<0>(results);
    store_results<T>(a, results, {row_sum(sum[0]), row_sum(sum[1])}, first_row);
}

// Grid: (tiles of QUERIES queries, heads, batch). One block per multiprocessor.
template <typename Kind>
__global__ void __launch_bounds__(THREADS, 1) warpgroup_kernel(typename Kind::Args a) {
    using Memory = Shared<typename Kind::Key, typename Kind::Value>;
    AGK_LAUNCHED_SHARED(Memory, shared);
    if (threadIdx.x == 0) {
#pragma unroll
        for (int slot = 0; slot < SLOTS; ++slot) {
            shared.full[slot].init(COPYING);
            shared.empty[slot].init(WARPS);
        }
    }
    __syncthreads();
    Kind kind(a);
    if (threadIdx.x < COPYING) {
        give_up_registers<REGISTERS_TO_COPY>();
        copy_tiles(shared, kind, a);
    } else {
        take_registers<REGISTERS>();
        attend(shared, kind, a);
    }
}

template <typename Kind>
int launch(const char* name, const typename Kind::Args& args, cudaStream_t stream) {
    constexpr size_t BYTES = sizeof(Shared<typename Kind::Key, typename Kind::Value>);
    const auto kernel = warpgroup_kernel<Kind>;
    const auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(BYTES));
    if (error != cudaSuccess) return cuda_result(name, error);
    const dim3 grid(static_cast<unsigned>(divide_up(args.tokens, QUERIES)), static_cast<unsigned>(args.heads),
                    static_cast<unsigned>(args.batch));
    kernel<<<grid, THREADS, BYTES, stream>>>(args);
    return launch_result(name);
}

}  // namespace

int attention_int8_by_warpgroups(const agk_attention_int8_args& args, cudaStream_t stream) {
    return with_halves(args.dtype, [&](auto element) {
        return launch<Int8Scores<decltype(element)>>("attention_int8", args, stream);
    });
}

}  // namespace agk

extern "C" int agk_attention(const agk_attention_args* args, void* to) {
    using namespace agk;
    if (const int code = check(args)) return code;
    return with_halves(args->dtype, [&](auto element) {
        return launch<HalfScores<decltype(element)>>("attention", *args, static_cast<cudaStream_t>(to));
    });
}
