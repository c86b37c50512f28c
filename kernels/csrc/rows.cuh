// Rows of tokens in one pass: gate and residual (or not), LayerNorm, modulation by the row's kind, quantisation.
//
// A block takes a run of rows. A thread holds one 16-byte vector of the row and, because consecutive rows are nearly
// always of one kind, that vector's modulation in registers: it is read again only where the kind or the batch entry
// changes. The row's own bytes are read once and written once; that is the floor.
#pragma once

#include "reduce.cuh"

namespace agk {

constexpr int MAX_THREADS = 1024;

template <int N>
__device__ __forceinline__ void fill(float (&to)[N], float value) {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = value;
}

// gain and offset of a kind of row: normalised * gain + offset is weight and bias, then (1 + scale) and shift.
template <int N>
__device__ __forceinline__ void load_modulation(const agk_norm& norm, const float* shift, const float* scale,
                                                int column, float (&gain)[N], float (&offset)[N]) {
    fill(gain, 1.0f);
    fill(offset, 0.0f);
    if (norm.weight != nullptr) {
        load_floats(norm.weight + column, gain);
        load_floats(norm.bias + column, offset);
    }
    if (scale == nullptr) return;
    float factor[N], addend[N];
    load_floats(scale + column, factor);
    load_floats(shift + column, addend);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        gain[i] *= 1.0f + factor[i];
        offset[i] = offset[i] * (1.0f + factor[i]) + addend[i];
    }
}

// Values of a row, 0 where a thread reaches past it, as codes of Out that go into [-448, 448] or [-127, 127], and the scale
// that they were divided by.
template <typename Out, int N>
__device__ __forceinline__ void scale_row(float (&value)[N], unsigned (&scratch)[MAX_WARPS], float* scale) {
    unsigned bits = SMALLEST_MAGNITUDE_BITS;
#pragma unroll
    for (int i = 0; i < N; ++i) bits = max(bits, magnitude_bits(value[i]));
    const float magnitude = __uint_as_float(block_max(bits, scratch));
    if (threadIdx.x == 0) *scale = magnitude / LARGEST<Out>;
    const float factor = LARGEST<Out> / magnitude;
#pragma unroll
    for (int i = 0; i < N; ++i) value[i] *= factor;
}

// Out is T, __nv_fp8_e4m3 or int8_t. With GATED: x_next = x + gate * branch comes first, and norm.out may be NULL.
template <typename T, typename Out, bool GATED>
__global__ void __launch_bounds__(MAX_THREADS)
    row_kernel(agk_rows shape, const T* x, const T* branch, const float* image_gate, const float* shot_gate, T* x_next,
               agk_norm norm, int64_t rows_a_block) {
    constexpr int N = VECTOR<T>;
    __shared__ float sums[2][MAX_WARPS];
    __shared__ unsigned maxima[MAX_WARPS];
    const int column = static_cast<int>(threadIdx.x) * N;
    // The last warp may reach past the row: those threads only take part in the reductions, with nothing.
    const bool inside = column < shape.width;
    const int64_t first = static_cast<int64_t>(blockIdx.x) * rows_a_block;
    const int64_t last = min(first + rows_a_block, shape.rows);
    const float inverse_width = 1.0f / static_cast<float>(shape.width);
    float gain[N], offset[N], gate[N];
    int64_t held = -1;
    int64_t at = first * shape.width + column, entry = first / shape.tokens, token = first % shape.tokens;
    Words<T, N> coming{}, coming_branch{};
    if (inside) {
        coming = load_words<N>(x + at);
        if constexpr (GATED) coming_branch = load_words<N>(branch + at);
    }
    for (int64_t row = first; row < last; ++row, ++token, at += shape.width) {
        if (token == shape.tokens) {
            token = 0;
            ++entry;
        }
        const bool shot = token < shape.shot_tokens;
        if (inside && held != 2 * entry + shot) {
            held = 2 * entry + shot;
            const int64_t begin = entry * shape.modulation_stride;
            if constexpr (GATED) load_floats((shot ? shot_gate : image_gate) + begin + column, gate);
            const float* shift = shot ? norm.shot_shift : norm.image_shift;
            const float* scale = shot ? norm.shot_scale : norm.image_scale;
            const bool plain = scale == nullptr;
            load_modulation(norm, plain ? nullptr : shift + begin, plain ? nullptr : scale + begin, column, gain, offset);
        }
        float value[N];
        fill(value, 0.0f);
        if (inside) {
            to_floats(coming, value);
            if constexpr (GATED) {
                float added[N];
                to_floats(coming_branch, added);
#pragma unroll
                for (int i = 0; i < N; ++i) value[i] = to_float(from_float<T>(value[i] + gate[i] * added[i]));
                store(x_next + at, value);
            }
            // The next row is on its way while this one is reduced.
            if (row + 1 < last) {
                coming = load_words<N>(x + at + shape.width);
                if constexpr (GATED) coming_branch = load_words<N>(branch + at + shape.width);
            }
        }
        if (GATED && norm.out == nullptr) continue;

        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < N; ++i) sum += value[i];
        const float mean = block_sum(sum, sums[0]) * inverse_width;
        float squares = 0.0f;
        if (inside) {
#pragma unroll
            for (int i = 0; i < N; ++i) squares += (value[i] - mean) * (value[i] - mean);
        }
        const float deviation = rsqrtf(block_sum(squares, sums[1]) * inverse_width + norm.epsilon);
        if (inside) {
#pragma unroll
            for (int i = 0; i < N; ++i) value[i] = (value[i] - mean) * deviation * gain[i] + offset[i];
        }
        if constexpr (QUANTISED<Out>) scale_row<Out>(value, maxima, norm.out_scales + row);
        if (inside) store(static_cast<Out*>(norm.out) + at, value);
    }
}

// How rows are shared out so that the grid fills the GPU exactly once.
struct RowGrid {
    unsigned blocks;
    int threads;
    int64_t rows_a_block;
};

template <typename T, typename Kernel>
int row_grid(const char* name, Kernel kernel, int64_t rows, int64_t width, RowGrid& grid) {
    grid.threads = static_cast<int>(divide_up(width, VECTOR<T> * WARP)) * WARP;
    int64_t blocks = 0;
    if (const int code = cuda_result(name, resident_blocks(kernel, grid.threads, blocks))) return code;
    grid.rows_a_block = divide_up(rows, blocks);
    grid.blocks = static_cast<unsigned>(divide_up(rows, grid.rows_a_block));
    return AGK_OK;
}

template <typename T, typename Out, bool GATED>
int launch_rows(const char* name, const agk_rows& shape, const void* x, const void* branch, const float* image_gate,
                const float* shot_gate, void* x_next, const agk_norm& norm, cudaStream_t stream) {
    const auto kernel = row_kernel<T, Out, GATED>;
    RowGrid grid;
    if (const int code = row_grid<T>(name, kernel, shape.rows, shape.width, grid)) return code;
    kernel<<<grid.blocks, grid.threads, 0, stream>>>(
        shape, static_cast<const T*>(x), static_cast<const T*>(branch), image_gate, shot_gate, static_cast<T*>(x_next),
        norm, grid.rows_a_block);
    return launched(name);
}

}  // namespace agk
