// The VAE's spatial norm: GroupNorm over a chunk, scale and shift from the nearest position of the latent, SiLU.
//
// The bias of x is part of the shifts that both kernels make anyway, so it costs them no operation per element.
// Three launches: statistics per block, their merging, and the norm. The chunk is read twice and written once. Statistics are
// means and sums of squared differences, merged pairwise (Chan, Golub, LeVeque 1983), so a large mean costs no precision. The
// order of merging is fixed.
#include "launch.cuh"
#include "tensor_cores.cuh"

namespace agk {
namespace {

constexpr int MAX_THREADS = 1024, TARGET_THREADS = 256;
// A group's width is a multiple of four, so four consecutive channels of a vector belong to one group.
constexpr int FOUR = 4;
// Loads in flight per thread.
constexpr int VECTORS_IN_FLIGHT = 4;
constexpr float LOG2_E = 1.4426950408889634f;

template <typename Real>
struct Moments {
    Real count, mean, squares;
};

// As store(), in one instruction. The compiler split some of these stores in four.
template <typename T, int N>
__device__ __forceinline__ void store_whole(T* to, const float (&from)[N]) {
#ifdef __CUDA_ARCH__
    uint32_t w[4];
    const Pack<T, N> pack = to_pack<T>(from);
    static_assert(sizeof pack == sizeof w);
    memcpy(w, &pack, sizeof w);
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
#else
    store(to, from);
#endif
}

template <typename Real>
__device__ __forceinline__ Moments<Real> merged(Moments<Real> a, Moments<Real> b) {
    const Real count = a.count + b.count;
    if (b.count == 0) return a;
    const Real apart = b.mean - a.mean, part = b.count / count;
    return {count, a.mean + apart * part, a.squares + b.squares + apart * apart * a.count * part};
}

// Block b handles `chunk` positions from b * chunk on, and writes the mean and squares of every group: out [blocks, groups].
// A thread handles one vector of channels of several positions.
template <typename T>
__global__ void __launch_bounds__(MAX_THREADS)
    statistics_kernel(agk_spatial_norm_args a, int vectors, int places, int chunk, float2* out) {
    constexpr int N = VECTOR<T>, FOURS = N / FOUR;
    __shared__ float2 kept[MAX_THREADS * FOURS];
    const int vector = threadIdx.x % vectors, slot = threadIdx.x / vectors, slots = blockDim.x / vectors;
    const int first = blockIdx.x * chunk, last = min(first + chunk, places);
    const T* x = static_cast<const T*>(a.x) + vector * N;
    // Sums of differences from the first value, which is near the mean even where the mean is large.
    float origin[FOURS] = {}, sum[FOURS] = {}, squares[FOURS] = {}, bias[N] = {};
    if (a.x_bias != nullptr) load_floats(a.x_bias + vector * N, bias);
    if (first + slot < last) {
        const Pack<T, N> pack = load<N>(x + static_cast<int64_t>(first + slot) * a.channels);
#pragma unroll
        for (int four = 0; four < FOURS; ++four) origin[four] = to_float(pack.v[four * FOUR]) + bias[four * FOUR];
    }
#pragma unroll
    for (int i = 0; i < N; ++i) bias[i] -= origin[i / FOUR];
    const auto at = [&](int place) { return x + static_cast<int64_t>(place) * a.channels; };
    const auto add = [&](const Words<T, N>& words) {
        float value[N];
        to_floats(words, value);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const float apart = value[i] + bias[i];
            sum[i / FOUR] += apart;
            squares[i / FOUR] += apart * apart;
        }
    };
    // Start VECTORS_IN_FLIGHT loads before the first is used.
    int place = first + slot;
    for (; place + (VECTORS_IN_FLIGHT - 1) * slots < last; place += VECTORS_IN_FLIGHT * slots) {
        Words<T, N> words[VECTORS_IN_FLIGHT];
#pragma unroll
        for (int i = 0; i < VECTORS_IN_FLIGHT; ++i) words[i] = load_words<N>(at(place + i * slots));
#pragma unroll
        for (int i = 0; i < VECTORS_IN_FLIGHT; ++i) add(words[i]);
    }
    for (; place < last; place += slots) add(load_words<N>(at(place)));
    const int taken = first + slot < last ? (last - first - slot - 1) / slots + 1 : 0;
#pragma unroll
    for (int four = 0; four < FOURS; ++four) {
        const float mean = taken ? sum[four] / static_cast<float>(taken * FOUR) : 0.0f;
        kept[threadIdx.x * FOURS + four] = {origin[four] + mean, squares[four] - sum[four] * mean};
    }
    __syncthreads();
    const int groups = static_cast<int>(a.groups), fours_per_group = static_cast<int>(a.channels / a.groups) / FOUR;
    for (int group = threadIdx.x; group < groups; group += blockDim.x) {
        Moments<float> all{0.0f, 0.0f, 0.0f};
        for (int from = 0; from < slots; ++from) {
            const int places_there = first + from < last ? (last - first - from - 1) / slots + 1 : 0;
            for (int four = 0; four < fours_per_group; ++four) {
                const float2 part = kept[(from * vectors * FOURS) + group * fours_per_group + four];
                all = merged(all, {static_cast<float>(places_there * FOUR), part.x, part.y});
            }
        }
        out[static_cast<int64_t>(blockIdx.x) * groups + group] = {all.mean, all.squares};
    }
}

// Merges the blocks' statistics to mean and 1 / standard deviation, one warp per group.
__global__ void merge_kernel(agk_spatial_norm_args a, int places, int chunk, int blocks, const float2* parts, float2* out) {
    const int group = blockIdx.x;
    const double width = static_cast<double>(a.channels / a.groups);
    Moments<double> all{0.0, 0.0, 0.0};
    for (int block = threadIdx.x; block < blocks; block += WARP) {
        const float2 part = parts[static_cast<int64_t>(block) * a.groups + group];
        all = merged(all, {min(chunk, places - block * chunk) * width, part.x, part.y});
    }
    for (int distance = WARP / 2; distance; distance /= 2) {
        const Moments<double> other{__shfl_down_sync(~0u, all.count, distance), __shfl_down_sync(~0u, all.mean, distance),
                                    __shfl_down_sync(~0u, all.squares, distance)};
        all = merged(all, other);
    }
    if (threadIdx.x == 0) {
        out[group] = {static_cast<float>(all.mean), static_cast<float>(1.0 / sqrt(all.squares / all.count + a.epsilon))};
    }
}

// A thread handles one vector of channels of all pixels of a frame that share a position of the latent, so that the divisions and
// the loads of scale and shift are needed once for all of them.
template <typename T>
__global__ void __launch_bounds__(TARGET_THREADS) norm_kernel(agk_spatial_norm_args a, int vectors, int64_t total, const float2* statistics) {
    constexpr int N = VECTOR<T>;
    const int64_t index = static_cast<int64_t>(blockIdx.x) * TARGET_THREADS + threadIdx.x;
    if (index >= total) return;
    const int cell = static_cast<int>(index / vectors), vector = static_cast<int>(index - static_cast<int64_t>(cell) * vectors);
    const int latent_width = static_cast<int>(a.latent_width), latent_height = static_cast<int>(a.latent_height);
    const int latent_line = cell / latent_width, latent_column = cell - latent_line * latent_width;
    const int frame = latent_line / latent_height, latent_row = latent_line - frame * latent_height;
    const int apart = a.frames > 1 && a.frames % 2 == 1;
    const int latent_frames = static_cast<int>(a.latent_frames) - apart, frames = static_cast<int>(a.frames) - apart;
    const int latent_frame = frame < apart ? 0 : apart + (frame - apart) / (frames / latent_frames);
    const int channels = static_cast<int>(a.channels), group_width = channels / static_cast<int>(a.groups);
    const int64_t latent_at = (static_cast<int64_t>(latent_frame) * latent_height + latent_row) * latent_width + latent_column;
    const int64_t from = latent_at * channels + vector * N;
    float gain[N], offset[N], weight[N], bias[N];
    to_floats(load<N>(static_cast<const T*>(a.scale) + from), gain);
    to_floats(load<N>(static_cast<const T*>(a.shift) + from), offset);
    load_floats(a.weight + vector * N, weight);
    load_floats(a.bias + vector * N, bias);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const float2 group = statistics[(vector * N + i / FOUR * FOUR) / group_width];
        offset[i] += (bias[i] - group.x * group.y * weight[i]) * gain[i];
        gain[i] *= group.y * weight[i];
    }
    if (a.x_bias != nullptr) {
        load_floats(a.x_bias + vector * N, bias);
#pragma unroll
        for (int i = 0; i < N; ++i) offset[i] += bias[i] * gain[i];
    }
    const int height = static_cast<int>(a.height), width = static_cast<int>(a.width);
    const int rows = height / latent_height, run = width / latent_width;
    const int64_t corner = (static_cast<int64_t>(frame) * height + latent_row * rows) * width + latent_column * run;
    const T* x = static_cast<const T*>(a.x) + corner * channels + vector * N;
    T* out = static_cast<T*>(a.out) + corner * channels + vector * N;
    for (int row = 0; row < rows; ++row) {
        for (int begin = 0; begin < run; begin += VECTORS_IN_FLIGHT) {
            Words<T, N> words[VECTORS_IN_FLIGHT];
#pragma unroll
            for (int i = 0; i < VECTORS_IN_FLIGHT; ++i) {
                if (begin + i < run) words[i] = load_words<N>(x + (begin + i) * channels);
            }
#pragma unroll
            for (int i = 0; i < VECTORS_IN_FLIGHT; ++i) {
                if (begin + i >= run) continue;
                float value[N];
                to_floats(words[i], value);
#pragma unroll
                for (int j = 0; j < N; ++j) {
                    value[j] = value[j] * gain[j] + offset[j];
                    value[j] = __fdividef(value[j], 1.0f + exp2_approx(-LOG2_E * value[j]));
                }
                store_whole(out + (begin + i) * channels, value);
            }
        }
        x += static_cast<int64_t>(width) * channels;
        out += static_cast<int64_t>(width) * channels;
    }
}

}  // namespace
}  // namespace agk

extern "C" int agk_spatial_norm(const agk_spatial_norm_args* args, void* to) {
    using namespace agk;
    const char* name = "spatial_norm";
    if (const int code = check(args)) return code;
    const auto stream = static_cast<cudaStream_t>(to);
    const auto places = static_cast<int>(args->frames * args->height * args->width);
    auto* statistics = static_cast<float2*>(args->workspace);
    float2* parts = statistics + args->groups;
    return with_activations(args->dtype, [&](auto element) {
        using T = decltype(element);
        const int vectors = static_cast<int>(args->channels / VECTOR<T>);
        const int threads = vectors > TARGET_THREADS ? vectors : TARGET_THREADS / vectors * vectors;
        // At least four positions per thread, so that merging does not dominate small inputs.
        const int64_t least = threads / vectors * 4;
        const int64_t even = divide_up(places, STATISTICS_BLOCKS);
        const int chunk = static_cast<int>(even > least ? even : least);
        const int blocks = static_cast<int>(divide_up(places, chunk));
        statistics_kernel<T><<<blocks, threads, 0, stream>>>(*args, vectors, places, chunk, parts);
        if (const int code = launch_result(name)) return code;
        merge_kernel<<<static_cast<unsigned>(args->groups), WARP, 0, stream>>>(*args, places, chunk, blocks, parts, statistics);
        if (const int code = launch_result(name)) return code;
        const int64_t total = args->frames * args->latent_height * args->latent_width * vectors;
        norm_kernel<T><<<static_cast<unsigned>(divide_up(total, TARGET_THREADS)), TARGET_THREADS, 0, stream>>>(
            *args, vectors, total, statistics);
        return launch_result(name);
    });
}
