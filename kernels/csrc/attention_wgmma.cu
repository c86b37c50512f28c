// Attention on Hopper with wgmma, which has twice the rate of mma.sync and reads keys and values from shared memory:
// attention_int8, and attention with 16-bit queries and keys.
//
// A producer warp group copies tiles of keys and values to a ring of stages; three consumer warp groups have 64 queries each.
// Each stage has two mbarriers: producers arrive on `full` when their copies have landed, consumer warps on `empty` when no MMA
// reads the stage any more. One warp group's MMAs overlap another's softmax. Within a warp group, QK^T of a tile is issued
// before PV of the previous one, which runs during the softmax. (Source: FlashAttention-3, arXiv:2407.08608.) An INT8 kernel
// without warp specialization, with a __syncthreads() per tile, took 1.4 times as long on an H100.
#include "warpgroup.cuh"

namespace agk {
namespace {

constexpr int CONSUMER_WARPS = 12, THREADS = COPY_THREADS + CONSUMER_WARPS * WARP, QUERIES = CONSUMER_WARPS * ROWS;
// For setmaxnreg. A launch of 512 threads gives each 128 registers; consumers need more.
constexpr int PRODUCER_REGISTERS = 32, CONSUMER_REGISTERS = 160;
// One for PV, one for QK^T, two in flight.
constexpr int STAGES = 4;
// An MMA reads 32 bytes of a row of keys.
constexpr unsigned KEY_STEP_BYTES = 32;

template <typename Key, typename T>
struct Shared {
    struct alignas(1024) {
        Key keys[KEYS * WIDTH];
        T values[KEYS * WIDTH];
    } stages[STAGES];
    Mbarrier full[STAGES], empty[STAGES];
};

// Position in the ring of stages, and the phase parity of the stage's barriers.
struct PipelineState {
    int stage = 0;
    unsigned phase = 0;

    __device__ __forceinline__ PipelineState next() const {
        return stage + 1 < STAGES ? PipelineState{stage + 1, phase} : PipelineState{0, phase ^ 1};
    }
};

// Waits for PV, then rescales the output to the new row maximum.
__device__ __forceinline__ void wait_and_rescale(float (&out)[WIDTH_TILES][4], uint32_t (&weights)[STEPS][4],
                                                 const float (&correction)[1][2]) {
    wgmma_wait<0>(out, weights);
    if (any_maximum_changed(correction)) rescale(out, correction[0]);
}

__device__ __forceinline__ int max3(int a, int b, int c) { return __vimax3_s32(a, b, c); }
__device__ __forceinline__ float max3(float a, float b, float c) { return fmaxf(a, fmaxf(b, c)); }

// Softmax weights of a tile from its int32 or float32 scores; only the first `keys` keys exist. correction: see online_softmax.
template <typename Score>
__device__ __forceinline__ void tile_softmax(Softmax& softmax, Score (&scores)[KEY_TILES][4], float (&weights)[KEY_TILES][4],
                                             int keys, float key_scale, float (&correction)[2]) {
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
    float maximum[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        Score highest = max(scores[0][2 * half], scores[0][2 * half + 1]);
#pragma unroll
        for (int tile = 1; tile < KEY_TILES; ++tile) {
            highest = max3(highest, scores[tile][2 * half], scores[tile][2 * half + 1]);
        }
        maximum[half] = static_cast<float>(row_max(highest));
    }
    online_softmax(softmax, weights, maximum, key_scale, correction);
}

// The parts of the kernel that depend on the scores' type. K_STEPS: MMAs along the head width for QK^T.
template <typename T>
struct Int8Scores {
    using Args = agk_attention_int8_args;
    using Key = int8_t;
    using Value = T;
    using Score = int;
    static constexpr int K_STEPS = WIDTH / 32;

    HeadPointers<T> head;
    KeyScales scales;

    __device__ __forceinline__ explicit Int8Scores(const Args& a) : head(a), scales(head.key_scales, a.key_group) {}
    __device__ __forceinline__ RowLoader<Key> keys(const Args&) const { return {head.keys, WIDTH}; }
    __device__ __forceinline__ RowLoader<T> values(const Args& a) const { return {head.values, a.token_stride}; }
    __device__ __forceinline__ void load(Softmax& softmax, uint32_t (&query)[K_STEPS][4], const Args& a, int row) const {
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
    static constexpr int K_STEPS = WIDTH / DEPTH;

    int64_t head;

    __device__ __forceinline__ explicit HalfScores(const Args& a)
        : head(blockIdx.z * a.batch_stride + blockIdx.y * a.head_stride) {}
    __device__ __forceinline__ RowLoader<T> keys(const Args& a) const {
        return {static_cast<const T*>(a.key) + head, a.token_stride};
    }
    __device__ __forceinline__ RowLoader<T> values(const Args& a) const {
        return {static_cast<const T*>(a.value) + head, a.token_stride};
    }
    // Of every 16 columns a thread holds 2 (lane % 4), the next, and the same two 8 later.
    __device__ __forceinline__ void load(Softmax& softmax, uint32_t (&query)[K_STEPS][4], const Args& a, int first_row) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + half * 8;
            softmax.factor[half] = LOG2E_BY_8;
            softmax.maximum[half] = -INFINITY;
            const auto* words = reinterpret_cast<const uint32_t*>(static_cast<const T*>(a.query) + head + row * a.token_stride);
#pragma unroll
            for (int pair = 0; pair < 2 * K_STEPS; ++pair) {
                query[pair / 2][pair % 2 * 2 + half] = row < a.tokens ? words[pair * 4 + threadIdx.x % 4] : 0;
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
__device__ __forceinline__ void produce(Memory& shared, const Kind& kind, const typename Kind::Args& a) {
    auto keys = kind.keys(a);
    auto values = kind.values(a);
    PipelineState current, previous;
    const auto arrive_full = [&](const PipelineState& at) {
        fence_async_proxy();
        shared.full[at.stage].arrive();
    };
    const int tokens = static_cast<int>(a.tokens);
#pragma unroll 1
    for (int remaining = tokens; remaining > 0; remaining -= KEYS) {
        // A fresh mbarrier counts as having completed the phase before its first, so the first pass does not block.
        shared.empty[current.stage].wait(current.phase ^ 1);
        keys.next(shared.stages[current.stage].keys, remaining);
        values.next(shared.stages[current.stage].values, remaining);
        cp_async_commit();
        if (remaining < tokens) {
            cp_async_wait_group<1>();
            arrive_full(previous);
        }
        previous = current;
        current = current.next();
    }
    cp_async_wait_group<0>();
    arrive_full(previous);
}

template <typename Kind, typename Memory>
__device__ __forceinline__ void consume(Memory& shared, Kind& kind, const typename Kind::Args& a) {
    using T = typename Kind::Value;
    constexpr unsigned STAGE_BYTES = sizeof(shared.stages[0]), VALUE_STEP_BYTES = DEPTH * WIDTH * sizeof(T);
    const int tokens = static_cast<int>(a.tokens);
    const int first_row = blockIdx.x * QUERIES + (threadIdx.x - COPY_THREADS) / WARP * ROWS + threadIdx.x % WARP / 4;
    const uint64_t key_descriptor = make_descriptor(shared.stages[0].keys, 8 * WIDTH * sizeof(typename Kind::Key),
                                                    sizeof(typename Kind::Key) == 1 ? Swizzle::Bytes64 : Swizzle::Bytes128);
    const uint64_t value_descriptor = make_descriptor(shared.stages[0].values, 8 * WIDTH * sizeof(T), Swizzle::Bytes128);

    Softmax softmax;
    float out[WIDTH_TILES][4] = {}, sum[2] = {}, weights[KEY_TILES][4], correction[1][2];
    uint32_t query[Kind::K_STEPS][4], packed[STEPS][4];
    typename Kind::Score scores[KEY_TILES][4];
    const auto issue_qk = [&](const PipelineState& at) {
        shared.full[at.stage].wait(at.phase);
        const uint64_t keys = advance_descriptor(key_descriptor, at.stage * STAGE_BYTES);
        wgmma_fence();
        Kind::template multiply<false>(scores, query[0], keys);
#pragma unroll
        for (int step = 1; step < Kind::K_STEPS; ++step) {
            Kind::template multiply<true>(scores, query[step], advance_descriptor(keys, step * KEY_STEP_BYTES));
        }
        wgmma_commit();
    };
    const auto issue_pv = [&](const PipelineState& at) {
        const uint64_t values = advance_descriptor(value_descriptor, at.stage * STAGE_BYTES);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            mma<T>(out, packed[step], advance_descriptor(values, step * VALUE_STEP_BYTES));
        }
        wgmma_commit();
    };
    const auto softmax_tile = [&](int keys) {
        tile_softmax(softmax, scores, weights, keys, kind.key_scale(), correction[0]);
        add_weights(sum, weights, correction[0]);
    };
    kind.load(softmax, query, a, first_row);
    PipelineState current, previous;
    issue_qk(current);
    wgmma_wait<0>(scores);
    softmax_tile(tokens);
#pragma unroll 1
    for (int remaining = tokens - KEYS; remaining > 0; remaining -= KEYS) {
        wait_and_rescale(out, packed, correction);
        // PV of `previous` is complete: release its stage.
        if (remaining < tokens - KEYS && threadIdx.x % WARP == 0) shared.empty[previous.stage].arrive();
        pack<T>(weights, packed);
        const PipelineState next = current.next();
        issue_qk(next);
        issue_pv(current);
        wgmma_wait<1>(scores);
        softmax_tile(remaining);
        previous = current;
        current = next;
    }
    wait_and_rescale(out, packed, correction);
    pack<T>(weights, packed);
    issue_pv(current);
    wgmma_wait<0>(out);
    store_out<T>(a, out, {row_sum(sum[0]), row_sum(sum[1])}, first_row);
}

// Grid: (tiles of QUERIES queries, heads, batch). One block per multiprocessor.
template <typename Kind>
__global__ void __launch_bounds__(THREADS, 1) warpgroup_kernel(typename Kind::Args a) {
    using Memory = Shared<typename Kind::Key, typename Kind::Value>;
    AGK_DYNAMIC_SHARED(Memory, shared);
    if (threadIdx.x == 0) {
#pragma unroll
        for (int stage = 0; stage < STAGES; ++stage) {
            shared.full[stage].init(COPY_THREADS);
            shared.empty[stage].init(CONSUMER_WARPS);
        }
    }
    __syncthreads();
    Kind kind(a);
    if (threadIdx.x < COPY_THREADS) {
        dealloc_registers<PRODUCER_REGISTERS>();
        produce(shared, kind, a);
    } else {
        alloc_registers<CONSUMER_REGISTERS>();
        consume(shared, kind, a);
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
