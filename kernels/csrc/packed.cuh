// Weights that lie in 4 or 8 bits with a scale for each block of inputs: four bytes of them as numbers.
//
// It does not know what is done with them. Layout: agk_packed.
#pragma once

#include "launch.cuh"

namespace agk {

// What four bytes hold: in 8 bits four codes in a row; in 4 bits four of the block's first half, low halves of the bytes,
// then the four as far into its second half.
template <int BITS>
constexpr int CODES = 32 / BITS;

// A code without its sign's offset stands in the last bits of a float32 of 2^23, whose unit is 1: faster than converting.
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

// Where four bytes of a row of codes belong: the block whose scale they have, the input of their first code, and how far
// behind it the second four are (4 bits).
template <int BITS>
struct Place {
    unsigned block, input, second;
    __device__ __forceinline__ Place(unsigned word, unsigned block_inputs) {
        const unsigned bytes = block_inputs / (8 / BITS), at = word * 4;
        block = at / bytes;
        input = block * block_inputs + (at - block * bytes);
        second = block_inputs / 2;
    }
};

// Calls visit(std::integral_constant<int, BITS>{}) with 4 or 8, which check() has seen it to be.
template <typename Visit>
int with_bits(int bits, Visit&& visit) {
    return bits == 4 ? visit(std::integral_constant<int, 4>{}) : visit(std::integral_constant<int, 8>{});
}

}  // namespace agk
