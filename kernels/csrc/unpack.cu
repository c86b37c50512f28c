// Dequantises a packed weight to a full matrix. Used for prompts, which have enough tokens to pay for it.
#include <algorithm>

#include "packed.cuh"

namespace agk {
namespace {

constexpr int UNPACK_THREADS = 256;

// A grid-stride loop over words of codes.
template <typename T, int BITS>
__global__ void __launch_bounds__(UNPACK_THREADS)
    unpack_kernel(agk_packed weight, T* out, unsigned words_per_row, int64_t words) {
    const auto* codes = static_cast<const uint32_t*>(weight.codes);
    const auto block_inputs = static_cast<unsigned>(weight.block);
    const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < words; at += step) {
        const int64_t row = at / words_per_row;
        const CodeOffset<BITS> place(static_cast<unsigned>(at - row * words_per_row), block_inputs);
        float value[CODES<BITS>];
        decode<BITS>(codes[at], value);
        const float scale = weight.scales[row * (weight.inputs / weight.block) + place.block];
#pragma unroll
        for (int part = 0; part < CODES<BITS>; part += 4) {
            float four[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) four[i] = value[part + i] * scale;
            store(out + row * weight.inputs + place.input + (part ? place.second : 0), four);
        }
    }
}

}  // namespace
}  // namespace agk

extern "C" int agk_unpack(const agk_unpack_args* args, void* stream) {
    if (const int code = agk::check(args)) return code;
    return agk::with_activations(args->dtype, [&](auto element) {
        using T = decltype(element);
        return agk::with_bits(args->weight.bits, [&](auto bits) {
            const auto kernel = agk::unpack_kernel<T, decltype(bits)::value>;
            const auto words_per_row = static_cast<unsigned>(args->weight.inputs / agk::CODES<decltype(bits)::value>);
            const int64_t words = args->weight.outputs * words_per_row;
            int64_t blocks = 0;
            if (const int code = agk::cuda_result("unpack", agk::resident_blocks(kernel, agk::UNPACK_THREADS, blocks))) return code;
            const int64_t grid = std::min(blocks, agk::divide_up(words, agk::UNPACK_THREADS));
            kernel<<<static_cast<unsigned>(grid), agk::UNPACK_THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
                args->weight, static_cast<T*>(args->out), words_per_row, words);
            return agk::launch_result("unpack");
        });
    });
}
