// Attention on Hopper with wgmma, which has twice the rate of mma.sync and reads keys and values from shared memory.
//
// A producer warp group copies tiles of keys and values to a ring of stages; three consumer warp groups have 64 queries each.
// Each stage has two mbarriers: producers arrive on `full` when their copies have landed, consumer warps on `empty` when no MMA
// reads the stage any more. One warp group's MMAs overlap another's softmax. Within a warp group, QK^T of a tile is issued
// before PV of the previous one, which runs during the softmax. (Source: FlashAttention-3, arXiv:2407.08608.)
//
// Of every 16 queries of its warp a thread holds two rows (lane / 4 and 8 below), and two of every eight columns. This is the
// layout of wgmma's accumulators in the PTX ISA.
#include "warpgroup.cuh"

namespace agk {
namespace {

constexpr int COPY_THREADS = 4 * WARP, CONSUMER_WARPS = 12, THREADS = COPY_THREADS + CONSUMER_WARPS * WARP;
// An MMA has 16 rows a warp and tiles of 8 columns.
constexpr int ROWS = 16, COLUMNS = 8, QUERIES = CONSUMER_WARPS * ROWS;
constexpr int KEYS = 64, WIDTH = ATTENTION_WIDTH;
static_assert(KEYS == TILES * COLUMNS && WIDTH == TILES * COLUMNS);
constexpr int STEPS = KEYS / DEPTH;
// For setmaxnreg. A launch of 512 threads gives each 128 registers; consumers need more.
constexpr int PRODUCER_REGISTERS = 32, CONSUMER_REGISTERS = 160;
// One for PV, one for QK^T, two in flight.
constexpr int STAGES = 4;
// An MMA reads 32 bytes of a row of keys.
constexpr unsigned KEY_STEP_BYTES = 32;
// exp(x / sqrt(64)) as a power of two.
constexpr float LOG2E_BY_8 = 1.4426950408889634f / 8.0f;

template <typename T>
struct Shared {
    struct alignas(1024) {
        T keys[KEYS * WIDTH];
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

// Elements from one token's queries, keys or values to the next one's.
__device__ __forceinline__ int64_t token_stride(const agk_attention_args& a) { return 3 * a.heads * WIDTH; }

// This block's head of the queries (part 0), keys (1) or values (2). The grid is (tiles of queries, heads, batch).
template <typename T>
__device__ __forceinline__ const T* head_of(const agk_attention_args& a, int part) {
    return static_cast<const T*>(a.qkv) + ((blockIdx.z * a.tokens * 3 + part) * a.heads + blockIdx.y) * WIDTH;
}

// Copies a head's keys or values to shared memory with COPY_THREADS threads, KEYS rows at a time. Rows are swizzled in chunks of
// 16 bytes to avoid bank conflicts, as wgmma's 128-byte swizzle does.
template <typename T>
class RowLoader {
  public:
    __device__ __forceinline__ RowLoader(const T* head, int64_t stride)
        : from(head + threadIdx.x / CHUNKS * stride + threadIdx.x % CHUNKS * CHUNK), stride(stride) {}

    // Starts to copy the next rows. Only `remaining` of them exist; the others become zeros.
    __device__ __forceinline__ void next(T* to, int remaining) {
        const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS ^ row % 8;
#pragma unroll
        for (int first = 0; first < KEYS; first += ROWS_PER_PASS) {
            cp_async(to + (first + row) * WIDTH + chunk * CHUNK, from + first * stride, first + row < remaining);
        }
        from += KEYS * stride;
    }

  private:
    static constexpr int CHUNK = 16 / sizeof(T), CHUNKS = WIDTH / CHUNK, ROWS_PER_PASS = COPY_THREADS / CHUNKS;
    static_assert(ROWS_PER_PASS % 8 == 0, "a thread's swizzled chunk is the same in all its rows");

    const T* from;
    int64_t stride;
};

template <typename T>
__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
    uint32_t bits;
    if constexpr (std::is_same_v<T, __half>) {
        const __half2 both = __floats2half2_rn(low, high);
        memcpy(&bits, &both, sizeof bits);
    } else {
        const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
        memcpy(&bits, &both, sizeof bits);
    }
    return bits;
}

// Loads 16 queries in the layout of operand A: of every 16 columns a thread holds 2 (lane % 4), the next, and the same two 8 later.
template <typename T>
__device__ __forceinline__ void load_queries(uint32_t (&query)[WIDTH / DEPTH][4], const agk_attention_args& a, int first_row) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = first_row + half * 8;
        const auto* words = reinterpret_cast<const uint32_t*>(head_of<T>(a, 0) + row * token_stride(a));
#pragma unroll
        for (int pair = 0; pair < 2 * WIDTH / DEPTH; ++pair) {
            query[pair / 2][pair % 2 * 2 + half] = row < a.tokens ? words[pair * 4 + threadIdx.x % 4] : 0;
        }
    }
}

// Maximum and sum over the four threads that hold a row.
__device__ __forceinline__ float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ __forceinline__ float row_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

// The running maximum and sum of weights of a thread's two rows, which are 8 apart.
struct Softmax {
    float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
};

// Turns scores of 16 queries by KEYS keys, of which the first `keys` exist, into weights of at most 1, in place, and adds them to
// the sums. correction: the factor that rescales earlier results to the new running maximum.
__device__ __forceinline__ void online_softmax(Softmax& softmax, float (&weights)[TILES][4], int keys, float (&correction)[2]) {
    if (keys < KEYS) {
        const int column = threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < TILES * 4; ++i) {
            if (i / 4 * COLUMNS + column + i % 2 >= keys) weights[i / 4][i % 4] = -INFINITY;
        }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float highest = fmaxf(weights[0][2 * half], weights[0][2 * half + 1]);
#pragma unroll
        for (int tile = 1; tile < TILES; ++tile) {
            highest = fmaxf(highest, fmaxf(weights[tile][2 * half], weights[tile][2 * half + 1]));
        }
        const float maximum = fmaxf(softmax.maximum[half], row_max(highest) * LOG2E_BY_8);
        correction[half] = exp2_approx(softmax.maximum[half] - maximum);
        softmax.maximum[half] = maximum;
        softmax.sum[half] *= correction[half];
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            float &low = weights[tile][2 * half], &high = weights[tile][2 * half + 1];
            low = exp2_approx(fmaf(low, LOG2E_BY_8, -maximum));
            high = exp2_approx(fmaf(high, LOG2E_BY_8, -maximum));
            softmax.sum[half] += low + high;
        }
    }
}

// Packs weights in pairs of type T, in the layout of operand A of PV.
template <typename T>
__device__ __forceinline__ void pack(const float (&weights)[TILES][4], uint32_t (&pairs)[STEPS][4]) {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            pairs[tile / 2][tile % 2 * 2 + half] = pack_pair<T>(weights[tile][2 * half], weights[tile][2 * half + 1]);
        }
    }
}

// Waits for PV, then rescales the output to the new row maxima. No row of a warp has one after the first few tiles, mostly.
__device__ __forceinline__ void wait_and_rescale(float (&out)[TILES][4], uint32_t (&weights)[STEPS][4],
                                                 const float (&correction)[2]) {
    wgmma_wait<0>(out, weights);
    if (!__any_sync(~0u, correction[0] != 1.0f || correction[1] != 1.0f)) return;
#pragma unroll
    for (int i = 0; i < TILES * 4; ++i) out[i / 4][i % 4] *= correction[i % 4 / 2];
}

// Epilogue: divides the outputs of 16 queries by their sums of weights and writes them.
template <typename T>
__device__ __forceinline__ void store_out(const agk_attention_args& a, const float (&out)[TILES][4], const Softmax& softmax,
                                          int first_row) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float inverse = 1.0f / row_sum(softmax.sum[half]);
        const int row = first_row + half * 8;
        if (row >= a.tokens) continue;
        T* to = static_cast<T*>(a.out) + ((blockIdx.z * a.tokens + row) * a.heads + blockIdx.y) * WIDTH + threadIdx.x % 4 * 2;
#pragma unroll
        for (int column = 0; column < TILES; ++column) {
            const float result[2] = {out[column][2 * half] * inverse, out[column][2 * half + 1] * inverse};
            store(to + column * COLUMNS, result);
        }
    }
}

template <typename T>
__device__ __forceinline__ void produce(Shared<T>& shared, const agk_attention_args& a) {
    RowLoader<T> keys(head_of<T>(a, 1), token_stride(a)), values(head_of<T>(a, 2), token_stride(a));
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

template <typename T>
__device__ __forceinline__ void consume(Shared<T>& shared, const agk_attention_args& a) {
    constexpr unsigned STAGE_BYTES = sizeof(shared.stages[0]), VALUE_STEP_BYTES = DEPTH * WIDTH * sizeof(T);
    const int tokens = static_cast<int>(a.tokens);
    const int first_row = blockIdx.x * QUERIES + (threadIdx.x - COPY_THREADS) / WARP * ROWS + threadIdx.x % WARP / 4;
    const uint64_t key_descriptor = make_descriptor(shared.stages[0].keys, 8 * WIDTH * sizeof(T));
    const uint64_t value_descriptor = make_descriptor(shared.stages[0].values, 8 * WIDTH * sizeof(T));

    Softmax softmax;
    float out[TILES][4] = {}, scores[TILES][4], weights[TILES][4], correction[2];
    uint32_t query[WIDTH / DEPTH][4], packed[STEPS][4];
    const auto issue_qk = [&](const PipelineState& at) {
        shared.full[at.stage].wait(at.phase);
        const uint64_t keys = advance_descriptor(key_descriptor, at.stage * STAGE_BYTES);
        wgmma_fence();
        mma<T, false, true>(scores, query[0], keys);
#pragma unroll
        for (int step = 1; step < WIDTH / DEPTH; ++step) {
            mma<T, true, true>(scores, query[step], advance_descriptor(keys, step * KEY_STEP_BYTES));
        }
        wgmma_commit();
    };
    const auto issue_pv = [&](const PipelineState& at) {
        const uint64_t values = advance_descriptor(value_descriptor, at.stage * STAGE_BYTES);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            mma<T, true, false>(out, packed[step], advance_descriptor(values, step * VALUE_STEP_BYTES));
        }
        wgmma_commit();
    };
    const auto softmax_tile = [&](int keys) {
#pragma unroll
        for (int i = 0; i < TILES * 4; ++i) weights[i / 4][i % 4] = scores[i / 4][i % 4];
        online_softmax(softmax, weights, keys, correction);
    };
    load_queries<T>(query, a, first_row);
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
    store_out<T>(a, out, softmax, first_row);
}

// One block per multiprocessor.
template <typename T>
__global__ void __launch_bounds__(THREADS, 1) warpgroup_kernel(agk_attention_args a) {
    AGK_DYNAMIC_SHARED(Shared<T>, shared);
    if (threadIdx.x == 0) {
#pragma unroll
        for (int stage = 0; stage < STAGES; ++stage) {
            shared.full[stage].init(COPY_THREADS);
            shared.empty[stage].init(CONSUMER_WARPS);
        }
    }
    __syncthreads();
    if (threadIdx.x < COPY_THREADS) {
        dealloc_registers<PRODUCER_REGISTERS>();
        produce(shared, a);
    } else {
        alloc_registers<CONSUMER_REGISTERS>();
        consume(shared, a);
    }
}

}  // namespace
}  // namespace agk

extern "C" int agk_attention(const agk_attention_args* args, void* stream) {
    using namespace agk;
    const char* name = "attention";
    if (const int code = check(args)) return code;
    const auto launch = [&](auto element) {
        using T = decltype(element);
        const auto kernel = warpgroup_kernel<T>;
        constexpr size_t BYTES = sizeof(Shared<T>);
        const auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(BYTES));
        if (error != cudaSuccess) return cuda_result(name, error);
        const dim3 grid(static_cast<unsigned>(divide_up(args->tokens, QUERIES)), static_cast<unsigned>(args->heads),
                        static_cast<unsigned>(args->batch));
        kernel<<<grid, THREADS, BYTES, static_cast<cudaStream_t>(stream)>>>(*args);
        return launch_result(name);
    };
    return args->dtype == AGK_F16 ? launch(__half{}) : launch(__nv_bfloat16{});
}
