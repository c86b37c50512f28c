// Decodes weights of 4 or 8 bits, four bytes at a time. The layout is described at agk_packed in animegamer_kernels.h.
#pragma once

#include "launch.cuh"

namespace agk {

// Codes per word. 8-bit codes are consecutive. Of 4-bit codes, the low nibbles are four consecutive codes of the block's first
// half, and the high nibbles the four at the same offset in its second half.
template <int BITS>
constexpr int CODES = 32 / BITS;

// Puts the unsigned code in the low bits of the float32 2^23, whose ulp is 1, and subtracts: faster than a conversion.
template <int BITS>
__device__ __forceinline__ void decode(uint32_t word, float (&to)[CODES<BITS>]) {
    constexpr uint32_t MAGIC = 0x4b000000u, MASK = BITS == 4 ? 0xfu : 0xffu;
    constexpr float OFFSET = 8388608.0f + (BITS == 4 ? 8.0f : 128.0f);
    word ^= BITS == 4 ? 0x88888888u : 0x80808080u;
#pragma unroll
    for (int i = 0; i < CODES<BITS>; ++i) {
        const int shift = i < 4 ? 8 * i : 8 * (i - 4) + 4;
        to[i] = __uint_as_float((word >> shift & MASK) | MAGIC) - OFFSET;
    }
}

// The inputs of word `word` of a row of codes: their block (for the scale), the first input, and in 4 bits the offset from the
// first four inputs to the second four.
template <int BITS>
struct CodeOffset {
    unsigned block, input, second;
    __device__ __forceinline__ CodeOffset(unsigned word, unsigned block_inputs) {
        const unsigned bytes = block_inputs / (8 / BITS), at = word * 4;
        block = at / bytes;
        input = block * block_inputs + (at - block * bytes);
        second = block_inputs / 2;
    }
};

// Calls visit(std::integral_constant<int, BITS>{}) with 4 or 8; check() has validated `bits`.
template <typename Visit>
int with_bits(int bits, Visit&& visit) {
    return bits == 4 ? visit(std::integral_constant<int, 4>{}) : visit(std::integral_constant<int, 8>{});
}

}  // namespace agk
