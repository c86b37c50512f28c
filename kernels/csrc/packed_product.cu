// A few tokens times a packed weight. Each code is read once, decoded in registers, and used for every token.
//
// A warp computes OUTPUTS outputs; its threads step along the inputs, a word of each output's codes at a time. The scale is
// applied once per word. Tokens hit the cache, as all warps of a multiprocessor read the same ones. Bound by reading weights.
#include "packed.cuh"

namespace agk {
namespace {

// Per warp and per block. Few outputs per block, so that a matrix with 4096 outputs fills every multiprocessor.
constexpr int OUTPUTS = 4, WARPS = 4;

// Sum over the warp, valid in lane 0.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int distance = WARP / 2; distance; distance /= 2) value += __shfl_down_sync(~0u, value, distance);
    return value;
}

template <typename T, int BITS, int ROWS>
__global__ void __launch_bounds__(WARPS * WARP) product_kernel(agk_packed weight, const T* x, T* out) {
    const unsigned lane = threadIdx.x % WARP, words = static_cast<unsigned>(weight.inputs) / CODES<BITS>;
    const auto block_inputs = static_cast<unsigned>(weight.block);
    const int64_t blocks = weight.inputs / weight.block;
    const int64_t first = (static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / WARP) * OUTPUTS;
    const uint32_t* codes[OUTPUTS];
    const float* scales[OUTPUTS];
#pragma unroll
    for (int n = 0; n < OUTPUTS; ++n) {
        // Past the end, recompute the last output, which is not stored.
        const int64_t output = min(first + n, weight.outputs - 1);
        codes[n] = static_cast<const uint32_t*>(weight.codes) + output * words;
        scales[n] = weight.scales + output * blocks;
    }
    float sums[OUTPUTS][ROWS] = {};
#pragma unroll 4
    for (unsigned word = lane; word < words; word += WARP) {
        const CodeOffset<BITS> place(word, block_inputs);
        float tokens[ROWS][CODES<BITS>];
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
#pragma unroll
            for (int part = 0; part < CODES<BITS>; part += 4) {
                float four[4];
                to_floats(load<4>(x + row * weight.inputs + place.input + (part ? place.second : 0)), four);
#pragma unroll
                for (int i = 0; i < 4; ++i) tokens[row][part + i] = four[i];
            }
        }
#pragma unroll
        for (int n = 0; n < OUTPUTS; ++n) {
            float value[CODES<BITS>];
            decode<BITS>(codes[n][word], value);
            const float scale = scales[n][place.block];
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                float sum = 0.0f;
#pragma unroll
                for (int i = 0; i < CODES<BITS>; ++i) sum += tokens[row][i] * value[i];
                sums[n][row] += scale * sum;
            }
        }
    }
#pragma unroll
    for (int n = 0; n < OUTPUTS; ++n) {
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            const float sum = warp_sum(sums[n][row]);
            if (lane == 0 && first + n < weight.outputs) out[row * weight.outputs + first + n] = from_float<T>(sum);
        }
    }
}

template <typename T, int BITS, int ROWS>
int launch_product(const agk_packed_product_args& args, cudaStream_t stream) {
    const auto kernel = product_kernel<T, BITS, ROWS>;
    const auto blocks = static_cast<unsigned>(divide_up(args.weight.outputs, OUTPUTS * WARPS));
    kernel<<<blocks, WARPS * WARP, 0, stream>>>(args.weight, static_cast<const T*>(args.x), static_cast<T*>(args.out));
    return launch_result("packed_product");
}

}  // namespace
}  // namespace agk

extern "C" int agk_packed_product(const agk_packed_product_args* args, void* stream) {
    if (const int code = agk::check(args)) return code;
    return agk::with_activations(args->dtype, [&](auto element) {
        return agk::with_bits(args->weight.bits, [&](auto bits) {
            using T = decltype(element);
            constexpr int BITS = decltype(bits)::value;
            const auto on = static_cast<cudaStream_t>(stream);
            switch (args->rows) {
                case 1: return agk::launch_product<T, BITS, 1>(*args, on);
                case 2: return agk::launch_product<T, BITS, 2>(*args, on);
                case 3: return agk::launch_product<T, BITS, 3>(*args, on);
                default: return agk::launch_product<T, BITS, 4>(*args, on);
            }
        });
    });
}
