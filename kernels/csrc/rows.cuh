// Fused row operators: gate and residual (optional), LayerNorm, modulation (shot or image), quantisation.
//
// A block handles a range of consecutive rows. A thread holds two 16-byte vectors of a row, which halves the cost per element of
// block reductions and address arithmetic. It keeps the modulation in registers and reloads it only where the rows change from
// shot to image or to the next batch entry. A row is read once and written once.
#pragma once

#include "reduce.cuh"

namespace agk {

// Per thread, blockDim.x vectors apart, so that accesses are coalesced.
constexpr int VECTORS = 2;
constexpr int MAX_THREADS = MAX_WARPS * WARP;
static_assert(MAX_ROW_BYTES == VECTORS * MAX_THREADS * VECTOR_BYTES);

// Combines weight, bias and modulation [2, width], shift and scale: normalised * gain + offset = (normalised * weight + bias) * (1 + scale) + shift.
template <int N>
__device__ __forceinline__ void load_modulation(const agk_norm& norm, const float* modulation, int width, int column,
                                                float (&gain)[N], float (&offset)[N]) {
    load_floats(norm.weight + column, gain);
    load_floats(norm.bias + column, offset);
    if (modulation == nullptr) return;
    float factor[N], addend[N];
    load_floats(modulation + column, addend);
    load_floats(modulation + width + column, factor);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        gain[i] *= 1.0f + factor[i];
        offset[i] = offset[i] * (1.0f + factor[i]) + addend[i];
    }
}

// A thread's columns of a row: element [v][i] is column columns[v] + i. Threads past the end of the row hold zeros.
template <int N>
struct Columns {
    int first, step, width;

    __device__ __forceinline__ explicit Columns(int64_t row_width)
        : first(static_cast<int>(threadIdx.x) * N),
          step(static_cast<int>(blockDim.x) * N),
          width(static_cast<int>(row_width)) {}
    __device__ __forceinline__ int operator[](int v) const { return first + v * step; }
    __device__ __forceinline__ bool inside(int v) const { return first + v * step < width; }
};

template <int N, typename T>
__device__ __forceinline__ void load_row(const T* row, const Columns<N>& columns, Words<T, N> (&to)[VECTORS]) {
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        if (columns.inside(v)) to[v] = load_words<N>(row + columns[v]);
    }
}

template <int N, typename T>
__device__ __forceinline__ void store_row(T* row, const Columns<N>& columns, const float (&from)[VECTORS][N]) {
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        if (columns.inside(v)) store(row + columns[v], from[v]);
    }
}

// Scales a row to the range of Out and writes the scale.
template <typename Out, int N>
__device__ __forceinline__ void scale_row(float (&value)[VECTORS][N], unsigned (&scratch)[MAX_WARPS], float* scale) {
    unsigned bits = MIN_MAGNITUDE_BITS;
#pragma unroll
    for (int i = 0; i < VECTORS * N; ++i) bits = max(bits, magnitude_bits(value[i / N][i % N]));
    const float magnitude = __uint_as_float(block_max(bits, scratch));
    if (threadIdx.x == 0) *scale = magnitude / MAX_VALUE<Out>;
    const float factor = MAX_VALUE<Out> / magnitude;
#pragma unroll
    for (int i = 0; i < VECTORS * N; ++i) value[i / N][i % N] *= factor;
}

// Out is T, __nv_fp8_e4m3 or int8_t. With GATED, x += gate * branch first.
template <typename T, typename Out, bool GATED>
__global__ void __launch_bounds__(MAX_THREADS)
    row_kernel(agk_rows shape, std::conditional_t<GATED, T, const T>* x, const T* branch, const float* image_gate,
               const float* shot_gate, agk_norm norm, int64_t rows_per_block) {
    constexpr int N = VECTOR<T>;
    __shared__ float sums[2][MAX_WARPS];
    __shared__ unsigned maxima[MAX_WARPS];
    clear(sums[0]);
    clear(sums[1]);
    clear(maxima);
    const Columns<N> columns(shape.width);
    int64_t row = blockIdx.x * rows_per_block;
    const int64_t last = min(row + rows_per_block, shape.rows);
    const float inverse_width = 1.0f / static_cast<float>(columns.width);
    Words<T, N> prefetched[VECTORS] = {}, prefetched_branch[VECTORS] = {};
    int64_t at = row * shape.width;
    load_row(static_cast<const T*>(x) + at, columns, prefetched);
    if constexpr (GATED) load_row(branch + at, columns, prefetched_branch);
    while (row < last) {
        // Load the modulation for the rows up to the next change of shot, image or batch entry.
        const int64_t token = row % shape.tokens;
        const bool shot = token < shape.shot_tokens;
        const int64_t end = min(last, row - token + (shot ? shape.shot_tokens : shape.tokens));
        float gain[VECTORS][N] = {}, offset[VECTORS][N] = {}, gate[VECTORS][N] = {};
#pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
            if (!columns.inside(v)) continue;
            if constexpr (GATED) load_floats((shot ? shot_gate : image_gate) + columns[v], gate[v]);
            load_modulation(norm, shot ? norm.shot : norm.image, columns.width, columns[v], gain[v], offset[v]);
        }
        for (; row < end; ++row, at += shape.width) {
            float value[VECTORS][N];
#pragma unroll
            for (int v = 0; v < VECTORS; ++v) {
                to_floats(prefetched[v], value[v]);
                if constexpr (GATED) {
                    float added[N];
                    to_floats(prefetched_branch[v], added);
#pragma unroll
                    for (int i = 0; i < N; ++i) value[v][i] = to_float(from_float<T>(value[v][i] + gate[v][i] * added[i]));
                }
            }
            if constexpr (GATED) store_row(x + at, columns, value);
            // Prefetch the next row while this one is reduced.
            if (row + 1 < last) {
                load_row(static_cast<const T*>(x) + at + shape.width, columns, prefetched);
                if constexpr (GATED) load_row(branch + at + shape.width, columns, prefetched_branch);
            }

            float sum = 0.0f, squares = 0.0f;
#pragma unroll
            for (int i = 0; i < VECTORS * N; ++i) sum += value[i / N][i % N];
            const float mean = block_sum(sum, sums[0]) * inverse_width;
#pragma unroll
            for (int v = 0; v < VECTORS; ++v) {
                // Columns past the end of the row stay 0.
                const float centre = columns.inside(v) ? mean : 0.0f;
#pragma unroll
                for (int i = 0; i < N; ++i) {
                    value[v][i] -= centre;
                    squares += value[v][i] * value[v][i];
                }
            }
            const float inverse_deviation = rsqrtf(block_sum(squares, sums[1]) * inverse_width + norm.epsilon);
#pragma unroll
            for (int i = 0; i < VECTORS * N; ++i) {
                float& one = value[i / N][i % N];
                one = one * inverse_deviation * gain[i / N][i % N] + offset[i / N][i % N];
            }
            if constexpr (QUANTISED<Out>) scale_row<Out>(value, maxima, norm.out_scales + row);
            store_row(static_cast<Out*>(norm.out) + at, columns, value);
        }
    }
}

// One wave of blocks.
struct RowGrid {
    unsigned blocks;
    int threads;
    int64_t rows_per_block;
};

template <typename T, typename Kernel>
int make_row_grid(const char* name, Kernel kernel, int64_t rows, int64_t width, RowGrid& grid) {
    grid.threads = static_cast<int>(divide_up(width, VECTORS * VECTOR<T> * WARP)) * WARP;
    int64_t blocks = 0;
    if (const int code = cuda_result(name, resident_blocks(kernel, grid.threads, blocks))) return code;
    grid.rows_per_block = divide_up(rows, blocks);
    grid.blocks = static_cast<unsigned>(divide_up(rows, grid.rows_per_block));
    return AGK_OK;
}

template <typename T, typename Out, bool GATED>
int launch_rows(const char* name, const agk_rows& shape, std::conditional_t<GATED, void, const void>* x, const void* branch,
                const float* image_gate, const float* shot_gate, const agk_norm& norm, cudaStream_t stream) {
    const auto kernel = row_kernel<T, Out, GATED>;
    RowGrid grid;
    if (const int code = make_row_grid<T>(name, kernel, shape.rows, shape.width, grid)) return code;
    kernel<<<grid.blocks, grid.threads, 0, stream>>>(
        shape, static_cast<std::conditional_t<GATED, T, const T>*>(x), static_cast<const T*>(branch), image_gate, shot_gate,
        norm, grid.rows_per_block);
    return launch_result(name);
}

}  // namespace agk
