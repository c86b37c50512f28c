// The VAE's spatial norm: GroupNorm over a chunk, scale and shift from the nearest latent position, SiLU.
//
// Three launches: per-block statistics, their merge, and the norm. The chunk is read twice and written once. Statistics are means
// and sums of squared deviations, merged in a fixed order (Chan, Golub, LeVeque 1983), so a large mean costs no precision. The
// bias of x is folded into offsets that both passes add anyway.
#include "launch.cuh"
#include "ptx.cuh"

namespace agk {
namespace {

constexpr int MAX_THREADS = 1024, TARGET_THREADS = 256;
// Group widths are multiples of four, so four consecutive channels of a vector belong to one group.
constexpr int QUAD = 4;
// Loads in flight per thread.
constexpr int VECTORS_IN_FLIGHT = 4;
constexpr float LOG2_E = 1.4426950408889634f;

template <typename Real>
struct Moments {
    Real count, mean, squares;
};

// store() in one instruction; the compiler split some of these stores in four.
template <typename T, int N>
__device__ __forceinline__ void store_vector(T* to, const float (&from)[N]) {
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
__device__ __forceinline__ Moments<Real> merge(Moments<Real> a, Moments<Real> b) {
    const Real count = a.count + b.count;
    if (b.count == 0) return a;
    const Real delta = b.mean - a.mean, part = b.count / count;
    return {count, a.mean + delta * part, a.squares + b.squares + delta * delta * a.count * part};
}

// Block b handles the `chunk` positions from b * chunk on, and writes every group's mean and squares to out [blocks, groups].
// A thread handles one vector of channels of several positions.
template <typename T>
__global__ void __launch_bounds__(MAX_THREADS)
    statistics_kernel(agk_spatial_norm_args a, int vectors, int positions, int chunk, float2* out) {
    constexpr int N = VECTOR<T>, QUADS = N / QUAD;
    __shared__ float2 partials[MAX_THREADS * QUADS];
    const int vector = threadIdx.x % vectors, slot = threadIdx.x / vectors, slots = blockDim.x / vectors;
    const int first = blockIdx.x * chunk, last = min(first + chunk, positions);
    const T* x = static_cast<const T*>(a.x) + vector * N;
    // Sums are taken about the first value, which is near the mean even where the mean is large.
    float origin[QUADS] = {}, sum[QUADS] = {}, squares[QUADS] = {}, bias[N] = {};
    if (a.x_bias != nullptr) load_floats(a.x_bias + vector * N, bias);
    if (first + slot < last) {
        const Pack<T, N> pack = load<N>(x + static_cast<int64_t>(first + slot) * a.channels);
#pragma unroll
        for (int quad = 0; quad < QUADS; ++quad) origin[quad] = to_float(pack.v[quad * QUAD]) + bias[quad * QUAD];
    }
#pragma unroll
    for (int i = 0; i < N; ++i) bias[i] -= origin[i / QUAD];
    const auto at = [&](int position) { return x + static_cast<int64_t>(position) * a.channels; };
    const auto add = [&](const Words<T, N>& words) {
        float value[N];
        to_floats(words, value);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const float delta = value[i] + bias[i];
            sum[i / QUAD] += delta;
            squares[i / QUAD] += delta * delta;
        }
    };
    // Issue VECTORS_IN_FLIGHT loads before the first is used.
    int position = first + slot;
    for (; position + (VECTORS_IN_FLIGHT - 1) * slots < last; position += VECTORS_IN_FLIGHT * slots) {
        Words<T, N> words[VECTORS_IN_FLIGHT];
#pragma unroll
        for (int i = 0; i < VECTORS_IN_FLIGHT; ++i) words[i] = load_words<N>(at(position + i * slots));
#pragma unroll
        for (int i = 0; i < VECTORS_IN_FLIGHT; ++i) add(words[i]);
    }
    for (; position < last; position += slots) add(load_words<N>(at(position)));
    const int count = first + slot < last ? (last - first - slot - 1) / slots + 1 : 0;
#pragma unroll
    for (int quad = 0; quad < QUADS; ++quad) {
        const float mean = count ? sum[quad] / static_cast<float>(count * QUAD) : 0.0f;
        partials[threadIdx.x * QUADS + quad] = {origin[quad] + mean, squares[quad] - sum[quad] * mean};
    }
    __syncthreads();
    const int groups = static_cast<int>(a.groups), quads_per_group = static_cast<int>(a.channels / a.groups) / QUAD;
    for (int group = threadIdx.x; group < groups; group += blockDim.x) {
        Moments<float> all{0.0f, 0.0f, 0.0f};
        for (int from = 0; from < slots; ++from) {
            const int slot_positions = first + from < last ? (last - first - from - 1) / slots + 1 : 0;
            for (int quad = 0; quad < quads_per_group; ++quad) {
                const float2 part = partials[(from * vectors * QUADS) + group * quads_per_group + quad];
                all = merge(all, {static_cast<float>(slot_positions * QUAD), part.x, part.y});
            }
        }
        out[static_cast<int64_t>(blockIdx.x) * groups + group] = {all.mean, all.squares};
    }
}

// Merges the blocks' statistics into mean and 1 / standard deviation, one warp per group.
__global__ void merge_kernel(agk_spatial_norm_args a, int positions, int chunk, int blocks, const float2* parts, float2* out) {
    const int group = blockIdx.x;
    const double width = static_cast<double>(a.channels / a.groups);
    Moments<double> all{0.0, 0.0, 0.0};
    for (int block = threadIdx.x; block < blocks; block += WARP) {
        const float2 part = parts[static_cast<int64_t>(block) * a.groups + group];
        all = merge(all, {min(chunk, positions - block * chunk) * width, part.x, part.y});
    }
    for (int distance = WARP / 2; distance; distance /= 2) {
        const Moments<double> other{__shfl_down_sync(~0u, all.count, distance), __shfl_down_sync(~0u, all.mean, distance),
                                    __shfl_down_sync(~0u, all.squares, distance)};
        all = merge(all, other);
    }
    if (threadIdx.x == 0) {
        out[group] = {static_cast<float>(all.mean), static_cast<float>(1.0 / sqrt(all.squares / all.count + a.epsilon))};
    }
}

// A thread handles one vector of channels of all pixels of a frame that share a latent position, so that the divisions and the
// loads of scale and shift are shared too.
template <typename T>
__global__ void __launch_bounds__(TARGET_THREADS)
    norm_kernel(agk_spatial_norm_args a, int vectors, int64_t total, const float2* statistics) {
    constexpr int N = VECTOR<T>;
    const int64_t index = static_cast<int64_t>(blockIdx.x) * TARGET_THREADS + threadIdx.x;
    if (index >= total) return;
    const int cell = static_cast<int>(index / vectors), vector = static_cast<int>(index - static_cast<int64_t>(cell) * vectors);
    const int latent_width = static_cast<int>(a.latent_width), latent_height = static_cast<int>(a.latent_height);
    const int latent_line = cell / latent_width, latent_column = cell - latent_line * latent_width;
    const int frame = latent_line / latent_height, latent_row = latent_line - frame * latent_height;
    const int lone = a.frames > 1 && a.frames % 2 == 1;
    const int latent_frames = static_cast<int>(a.latent_frames) - lone, frames = static_cast<int>(a.frames) - lone;
    const int latent_frame = frame < lone ? 0 : lone + (frame - lone) / (frames / latent_frames);
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
        const float2 group = statistics[(vector * N + i / QUAD * QUAD) / group_width];
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
                store_vector(out + (begin + i) * channels, value);
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
    const auto positions = static_cast<int>(args->frames * args->height * args->width);
    auto* statistics = static_cast<float2*>(args->workspace);
    float2* parts = statistics + args->groups;
    return with_activations(args->dtype, [&](auto element) {
        using T = decltype(element);
        const int vectors = static_cast<int>(args->channels / VECTOR<T>);
        const int threads = vectors > TARGET_THREADS ? vectors : TARGET_THREADS / vectors * vectors;
        // At least four positions per thread, so that the merge does not dominate small inputs.
        const int64_t minimum = threads / vectors * 4;
        const int64_t per_block = divide_up(positions, STATISTICS_BLOCKS);
        const int chunk = static_cast<int>(per_block > minimum ? per_block : minimum);
        const int blocks = static_cast<int>(divide_up(positions, chunk));
        statistics_kernel<T><<<blocks, threads, 0, stream>>>(*args, vectors, positions, chunk, parts);
        if (const int code = launch_result(name)) return code;
        merge_kernel<<<static_cast<unsigned>(args->groups), WARP, 0, stream>>>(*args, positions, chunk, blocks, parts,
                                                                               statistics);
        if (const int code = launch_result(name)) return code;
        const int64_t total = args->frames * args->latent_height * args->latent_width * vectors;
        norm_kernel<T><<<static_cast<unsigned>(divide_up(total, TARGET_THREADS)), TARGET_THREADS, 0, stream>>>(
            *args, vectors, total, statistics);
        return launch_result(name);
    });
}
