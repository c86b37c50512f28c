// What follows a product: INT8's sums as numbers, GELU, and the rounding that the next product wants, in one pass.
#include "rows.cuh"

namespace agk {
namespace {

// x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), by 1 + tanh(u) = 2 / (1 + exp(-2 u)).
__device__ __forceinline__ float gelu(float x) {
    constexpr float TWICE_ROOT = 1.5957691216057308f, CUBIC = 0.044715f;
    return __fdividef(x, 1.0f + __expf(-TWICE_ROOT * (x + CUBIC * x * x * x)));
}

template <typename In>
constexpr bool SUMS = std::is_same_v<In, int32_t>;
// Where a multiprocessor has 2048 threads, two blocks of it keep enough rows of halves on their way; of sums one does.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000)
template <typename In>
constexpr int BLOCKS = SUMS<In> ? 1 : 2;
#else
template <typename In>
constexpr int BLOCKS = 1;
#endif

// In is T, or int32_t for sums that the scales and the bias belong to. Out is T, __nv_fp8_e4m3 or int8_t.
template <typename T, typename In, typename Out>
__global__ void __launch_bounds__(MAX_THREADS, BLOCKS<In>) epilogue_kernel(agk_epilogue_args args, int64_t rows_a_block) {
    constexpr int N = VECTOR<T>;
    __shared__ unsigned maxima[2][MAX_WARPS];
    const int column = static_cast<int>(threadIdx.x) * N;
    // The last warp may reach past the row: those threads only take part in the reductions, with nothing.
    const bool inside = column < args.width;
    const int64_t first = static_cast<int64_t>(blockIdx.x) * rows_a_block;
    const int64_t last = min(first + rows_a_block, args.rows);
    const In* x = static_cast<const In*>(args.x);
    float column_scale[N], bias[N], row_scale = 0.0f;
    Words<In, N> coming{};
    if (inside) {
        coming = load_words<N>(x + first * args.width + column);
        if constexpr (SUMS<In>) {
            load_floats(args.column_scales + column, column_scale);
            load_floats(args.bias + column, bias);
            row_scale = args.row_scales[first];
        }
    }
    for (int64_t row = first; row < last; ++row) {
        const int64_t at = row * args.width + column;
        float value[N];
        fill(value, 0.0f);
        if (inside) {
            to_floats(coming, value);
            if constexpr (SUMS<In>) {
#pragma unroll
                for (int i = 0; i < N; ++i) value[i] = value[i] * (row_scale * column_scale[i]) + bias[i];
            }
            // The next row is on its way while this one is reduced.
            if (row + 1 < last) {
                coming = load_words<N>(x + at + args.width);
                if constexpr (SUMS<In>) row_scale = args.row_scales[row + 1];
            }
            if (args.gelu) {
#pragma unroll
                for (int i = 0; i < N; ++i) value[i] = gelu(value[i]);
            }
        }
        if constexpr (QUANTISED<Out>) scale_row<Out>(value, maxima[row % 2], args.out_scales + row);
        if (inside) store(static_cast<Out*>(args.out) + at, value);
    }
}

template <typename T, typename In, typename Out>
int launch_epilogue(const agk_epilogue_args& args, cudaStream_t stream) {
    const char* name = "epilogue";
    const auto kernel = epilogue_kernel<T, In, Out>;
    RowGrid grid;
    if (const int code = row_grid<T>(name, kernel, args.rows, args.width, grid)) return code;
    kernel<<<grid.blocks, grid.threads, 0, stream>>>(args, grid.rows_a_block);
    return launched(name);
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
