// Fused epilogue of a matrix product: dequantise int32 sums, GELU, quantise for the next product.
#include "rows.cuh"
#include "ptx.cuh"

namespace agk {
namespace {

// x / 2 (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), as x / (1 + 2^(-2 log2(e) u)).
__device__ __forceinline__ float gelu(float x) {
    constexpr float LINEAR = -2.302208198f, CUBIC = 0.044715f * LINEAR;
    return __fdividef(x, 1.0f + exp2_approx(x * (LINEAR + CUBIC * (x * x))));
}

template <typename In>
constexpr bool SUMS = std::is_same_v<In, int32_t>;

// In is T, or int32_t with scales and bias. Out is T, __nv_fp8_e4m3 or int8_t. For rows of T, two blocks per multiprocessor
// overlap one's loads with the other's reductions.
template <typename T, typename In, typename Out>
__global__ void __launch_bounds__(MAX_THREADS, SUMS<In> ? 1 : 2) epilogue_kernel(agk_epilogue_args args, int64_t rows_per_block) {
    constexpr int N = VECTOR<T>;
    __shared__ unsigned maxima[2][MAX_WARPS];
    clear(maxima[0]);
    clear(maxima[1]);
    const Columns<N> columns(args.width);
    int64_t row = blockIdx.x * rows_per_block;
    const int64_t last = min(row + rows_per_block, args.rows);
    const In* x = static_cast<const In*>(args.x);
    float column_scale[VECTORS][N] = {}, bias[VECTORS][N] = {}, row_scale = 0.0f;
    Words<In, N> prefetched[VECTORS] = {};
    int64_t at = row * args.width;
    load_row(x + at, columns, prefetched);
    if constexpr (SUMS<In>) {
#pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
            if (!columns.inside(v)) continue;
            load_floats(args.column_scales + columns[v], column_scale[v]);
            load_floats(args.bias + columns[v], bias[v]);
        }
        row_scale = args.row_scales[row];
    }
#pragma unroll 1
    for (; row < last; ++row, at += args.width) {
        float value[VECTORS][N];
#pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
            to_floats(prefetched[v], value[v]);
            if constexpr (SUMS<In>) {
#pragma unroll
                for (int i = 0; i < N; ++i) value[v][i] = value[v][i] * (row_scale * column_scale[v][i]) + bias[v][i];
            }
        }
        // Prefetch the next row while this one is reduced.
        if (row + 1 < last) {
            load_row(x + at + args.width, columns, prefetched);
            if constexpr (SUMS<In>) row_scale = args.row_scales[row + 1];
        }
        if (args.gelu) {
#pragma unroll
            for (int i = 0; i < VECTORS * N; ++i) value[i / N][i % N] = gelu(value[i / N][i % N]);
        }
        if constexpr (QUANTISED<Out>) scale_row<Out>(value, maxima[static_cast<unsigned>(row) % 2], args.out_scales + row);
        store_row(static_cast<Out*>(args.out) + at, columns, value);
    }
}

template <typename T, typename In, typename Out>
int launch_epilogue(const agk_epilogue_args& args, cudaStream_t stream) {
    const char* name = "epilogue";
    const auto kernel = epilogue_kernel<T, In, Out>;
    RowGrid grid;
    if (const int code = make_row_grid<T>(name, kernel, args.rows, args.width, grid)) return code;
    kernel<<<grid.blocks, grid.threads, 0, stream>>>(args, grid.rows_per_block);
    return launch_result(name);
}

}  // namespace
}  // namespace agk

extern "C" int agk_epilogue(const agk_epilogue_args* args, void* stream) {
    if (const int code = agk::check(args)) return code;
    return agk::with_activations(args->dtype, [&](auto element) {
        using T = decltype(element);
        return agk::with_output<T>(args->out_dtype, [&](auto out) {
            using Out = decltype(out);
            const auto on = static_cast<cudaStream_t>(stream);
            return args->row_scales == nullptr ? agk::launch_epilogue<T, T, Out>(*args, on)
                                               : agk::launch_epilogue<T, int32_t, Out>(*args, on);
        });
    });
}
