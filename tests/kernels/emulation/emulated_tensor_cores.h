// Emulates the instructions of kernels/csrc/tensor_cores.cuh for a warp of fibers, from the tables of the PTX ISA.
//
// A kernel that assumes another fragment layout gives wrong results. The first lane computes the whole product, and every lane
// takes its elements. An asynchronous copy is made when its thread waits for it; until then its destination holds NaNs. Sums are
// rounded once, unlike a tensor core's.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

namespace emulation {

[[noreturn]] inline void fail(const char* what) {
    std::fprintf(stderr, "emulation: %s\n", what);
    std::abort();
}

// Element i of a lane's fragment. groupID is lane / 4 and threadID_in_group lane % 4.
struct Position {
    unsigned row, column;
};
// "Accumulators (C or D)" of m16n8k16 and m16n8k32: c0..c3.
inline Position of_sum(unsigned lane, unsigned i) { return {i < 2 ? lane / 4 : lane / 4 + 8, lane % 4 * 2 + (i & 1)}; }
// "Matrix Fragments for mma.m16n8k32", .s8: a0..a15 and b0..b7.
inline Position of_left_bytes(unsigned lane, unsigned i) {
    const bool upper = i < 4 || (8 <= i && i < 12);
    return {upper ? lane / 4 : lane / 4 + 8, lane % 4 * 4 + (i & 3) + (i < 8 ? 0 : 16)};
}
inline Position of_right_bytes(unsigned lane, unsigned i) { return {lane % 4 * 4 + (i & 3) + (i < 4 ? 0 : 16), lane / 4}; }
// "Matrix Fragments for mma.m16n8k16 with floating point type", .f16 and .bf16: a0..a7 and b0..b3.
inline Position of_left_halves(unsigned lane, unsigned i) {
    const bool upper = i < 2 || (4 <= i && i < 6);
    return {upper ? lane / 4 : lane / 4 + 8, lane % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8)};
}
inline Position of_right_halves(unsigned lane, unsigned i) { return {lane % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8), lane / 4}; }

using Layout = Position (*)(unsigned lane, unsigned i);

// d += a b of a whole warp. Element: as it lies in a register; Sum: of d; INNER: columns of a.
template <typename Element, typename Sum, unsigned INNER>
void mma(Sum (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Layout left, Layout right) {
    constexpr unsigned LEFT = 16 / sizeof(Element), RIGHT = 8 / sizeof(Element);
    struct Operands {
        Element a[LEFT], b[RIGHT];
    } mine;
    const uint32_t registers[] = {a[0], a[1], a[2], a[3], b0, b1};
    static_assert(sizeof mine == sizeof registers);
    std::memcpy(static_cast<void*>(&mine), registers, sizeof mine);
    // One per warp. The first lane writes it after all lanes have arrived, and all have read it before they arrive again.
    static double products[32][16][8];
    auto& product = products[threadIdx.x / 32];
    const uint64_t* all = warp_exchange(bits<const Operands*>(&mine));
    if (lane() == 0) {
        double rows[16][INNER], columns[8][INNER];
        for (unsigned other = 0; other < 32; ++other) {
            const Operands& its = *value<const Operands*>(all[other]);
            for (unsigned i = 0; i < LEFT; ++i) rows[left(other, i).row][left(other, i).column] = static_cast<float>(its.a[i]);
            for (unsigned i = 0; i < RIGHT; ++i) columns[right(other, i).column][right(other, i).row] = static_cast<float>(its.b[i]);
        }
        for (unsigned row = 0; row < 16; ++row) {
            for (unsigned column = 0; column < 8; ++column) {
                product[row][column] = 0.0;
                for (unsigned i = 0; i < INNER; ++i) product[row][column] += rows[row][i] * columns[column][i];
            }
        }
    }
    warp_exchange(0);
    for (unsigned i = 0; i < 4; ++i) {
        const Position at = of_sum(lane(), i);
        d[i] = static_cast<Sum>(static_cast<double>(d[i]) + product[at.row][at.column]);
    }
}

// "ldmatrix": lane 8 m + r passes the address of row r of matrix m; register m of lane t receives two elements.
inline void ldmatrix_x4(uint32_t (&to)[4], const void* row, bool transposed) {
    if (bits(row) % 16 != 0) fail("a row of ldmatrix that is not aligned to 16 bytes");
    const uint64_t* rows = warp_exchange(bits(row));
    for (unsigned matrix = 0; matrix < 4; ++matrix) {
        unsigned banks = 0;
        for (unsigned r = 0; r < 8; ++r) banks |= 1u << rows[8 * matrix + r] / 16 % 8;
        if (banks != 0xff) fail("a bank conflict: two rows of a matrix in the same banks of shared memory");
        uint16_t elements[2];
        for (unsigned i = 0; i < 2; ++i) {
            const unsigned across = lane() / 4, along = lane() % 4 * 2 + i;
            const auto* from = value<const uint16_t*>(rows[8 * matrix + (transposed ? along : across)]);
            elements[i] = from[transposed ? across : along];
        }
        std::memcpy(&to[matrix], elements, 4);
    }
}

struct Copy {
    void* to;
    const void* from;
    bool valid;
    unsigned group;
};
// Pending copies of every thread of a block, and the number of its committed groups.
inline std::vector<Copy> copies[1024];
inline unsigned copy_groups[1024];

// Makes the first `count` copies of this thread.
inline void make_copies(std::size_t count) {
    std::vector<Copy>& mine = copies[threadIdx.x];
    for (std::size_t i = 0; i < count; ++i) {
        mine[i].valid ? std::memcpy(mine[i].to, mine[i].from, 16) : std::memset(mine[i].to, 0, 16);
    }
    mine.erase(mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace emulation

namespace agk {

inline void mma(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    emulation::mma<int8_t, int, 32>(d, a, b0, b1, emulation::of_left_bytes, emulation::of_right_bytes);
}

template <typename T>
void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    emulation::mma<T, float, 16>(d, a, b0, b1, emulation::of_left_halves, emulation::of_right_halves);
}

// c0 and c1 in the first register, c2 and c3 in the second.
inline void mma(uint32_t (&d)[2], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    __half halves[4];
    std::memcpy(static_cast<void*>(halves), d, sizeof halves);
    float sums[4];
    for (unsigned i = 0; i < 4; ++i) sums[i] = __half2float(halves[i]);
    mma<__half>(sums, a, b0, b1);
    for (unsigned i = 0; i < 4; ++i) halves[i] = __float2half_rn(sums[i]);
    std::memcpy(d, halves, sizeof halves);
}

inline void ldmatrix_x4(uint32_t (&to)[4], const void* row) { emulation::ldmatrix_x4(to, row, false); }
inline void ldmatrix_x4_trans(uint32_t (&to)[4], const void* row) { emulation::ldmatrix_x4(to, row, true); }

inline void cp_async(void* shared, const void* global, bool valid) {
    if (emulation::bits(shared) % 16 != 0 || (valid && emulation::bits(global) % 16 != 0)) {
        emulation::fail("cp.async not aligned to 16 bytes");
    }
    std::memset(shared, 0xff, 16);
    emulation::copies[threadIdx.x].push_back({shared, global, valid, emulation::copy_groups[threadIdx.x]});
}

inline void cp_async_wait_all() { emulation::make_copies(emulation::copies[threadIdx.x].size()); }

inline void cp_async_commit() { ++emulation::copy_groups[threadIdx.x]; }

template <unsigned PENDING>
void cp_async_wait_group() {
    const std::vector<emulation::Copy>& mine = emulation::copies[threadIdx.x];
    std::size_t done = 0;
    while (done < mine.size() && mine[done].group + PENDING < emulation::copy_groups[threadIdx.x]) ++done;
    emulation::make_copies(done);
}

inline float exp2_approx(float x) { return std::exp2(x); }

}  // namespace agk
