// Emulates the instructions of kernels/csrc/warpgroup.cuh, one warp of fibers at a time, from the tables of the PTX ISA. The first
// lane computes the whole product, and every lane takes its elements. Sums are rounded once, unlike a tensor core's.
//
// An MMA is computed when it is waited for, from the registers and shared memory at that time. So a kernel that reads
// accumulators or overwrites operands too early gives wrong results. Addresses of B's elements are computed from its descriptor,
// by the canonical layouts and the swizzle of address bits.
#pragma once

#include "emulated_ptx.h"

namespace emulation {

// Element i of a lane's fragment: of the accumulators, and of operand A with 16-bit elements.
struct Position {
    unsigned row, column;
};
inline Position of_sum(unsigned lane, unsigned i) { return {i < 2 ? lane / 4 : lane / 4 + 8, lane % 4 * 2 + (i & 1)}; }
inline Position of_left(unsigned lane, unsigned i) {
    const bool upper = i < 2 || (4 <= i && i < 6);
    return {upper ? lane / 4 : lane / 4 + 8, lane % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8)};
}

struct PendingMma {
    unsigned group;
    std::function<void()> run;
};
// Per thread: pending MMAs, the number of committed groups, whether a fence was executed.
struct MmaQueue {
    std::vector<PendingMma> queue;
    unsigned groups = 0;
    bool fenced = false;
};
inline MmaQueue mmas[1024];

// Addresses in shared memory have 18 bits. The last full address gives the upper bits.
inline uint64_t last_shared = 0;
inline uint8_t* from_shared(uint32_t address) {
    const int32_t offset = static_cast<int32_t>((address - static_cast<uint32_t>(last_shared)) << 14) >> 14;
    return reinterpret_cast<uint8_t*>(last_shared + static_cast<int64_t>(offset));
}

// "Matrix Descriptor Format", "Canonical Layouts": the address of element (k, n) of operand B, `bytes` an element.
struct Descriptor {
    static constexpr uint32_t SWIZZLE_BYTES = 128;
    uint32_t start, stride;

    explicit Descriptor(uint64_t bits)
        : start((bits & 0x3fff) << 4), stride((bits >> 32 & 0x3fff) << 4) {
        if (bits >> 62 != 1) fail("a descriptor with another swizzle than 128 bytes");
        if (bits >> 49 & 7) fail("a descriptor with a base offset");
        if (start % (8 * SWIZZLE_BYTES) >= SWIZZLE_BYTES) {
            fail("a matrix that does not start in the first row of its swizzle pattern");
        }
    }

    const uint8_t* at(unsigned k, unsigned n, unsigned bytes, bool n_major) const {
        // along: the contiguous index. A row is as wide as the swizzle, and 8 rows are one pattern.
        const unsigned along = (n_major ? n : k) * bytes, across = n_major ? k : n;
        if (along >= SWIZZLE_BYTES) fail("a row longer than its swizzle");
        uint32_t address = start + across / 8 * stride + across % 8 * SWIZZLE_BYTES + along;
        address ^= (address >> 7 & 7) << 4;
        return from_shared(address);
    }
};

// Queues d = a b, or d += a b, for 16 rows of a warp. Keeps references: the values at the time of the wait are used.
template <typename Element, unsigned DEPTH, bool ADD, bool N_MAJOR, std::size_t TILES>
void queue_mma(float (&d)[TILES][4], const uint32_t (&a)[4], uint64_t b) {
    constexpr unsigned LEFT = 16 / sizeof(Element), COLUMNS = 8 * TILES;
    MmaQueue& mine = mmas[threadIdx.x];
    if (!mine.fenced) fail("wgmma without wgmma_fence()");
    mine.queue.push_back({mine.groups, [&d, &a, b] {
        static double sums[32][16][COLUMNS];
        auto& product = sums[threadIdx.x / 32];
        const uint64_t* all = warp_exchange(bits<const uint32_t*>(a));
        if (lane() == 0) {
            static double rows[16][DEPTH], columns[COLUMNS][DEPTH];
            const Descriptor right(b);
            for (unsigned other = 0; other < 32; ++other) {
                Element its[LEFT];
                std::memcpy(static_cast<void*>(its), value<const uint32_t*>(all[other]), sizeof its);
                for (unsigned i = 0; i < LEFT; ++i) rows[of_left(other, i).row][of_left(other, i).column] = static_cast<float>(its[i]);
            }
            for (unsigned n = 0; n < COLUMNS; ++n) {
                for (unsigned k = 0; k < DEPTH; ++k) {
                    Element its;
                    std::memcpy(static_cast<void*>(&its), right.at(k, n, sizeof its, N_MAJOR), sizeof its);
                    columns[n][k] = static_cast<float>(its);
                }
            }
            for (unsigned row = 0; row < 16; ++row) {
                for (unsigned n = 0; n < COLUMNS; ++n) {
                    product[row][n] = 0.0;
                    for (unsigned k = 0; k < DEPTH; ++k) product[row][n] += rows[row][k] * columns[n][k];
                }
            }
        }
        warp_exchange(0);
        for (unsigned tile = 0; tile < TILES; ++tile) {
            for (unsigned i = 0; i < 4; ++i) {
                const Position at = of_sum(lane(), i);
                const double before = ADD ? static_cast<double>(d[tile][i]) : 0.0;
                d[tile][i] = static_cast<float>(before + product[at.row][8 * tile + at.column]);
            }
        }
        warp_exchange(0);
    }});
}

}  // namespace emulation

namespace agk {

inline uint32_t shared_address(const void* shared) {
    emulation::last_shared = reinterpret_cast<uint64_t>(shared);
    return static_cast<uint32_t>(emulation::last_shared & 0x3ffff);
}

inline void wgmma_fence() { emulation::mmas[threadIdx.x].fenced = true; }

inline void wgmma_commit() {
    ++emulation::mmas[threadIdx.x].groups;
    emulation::mmas[threadIdx.x].fenced = false;
}

template <int PENDING, typename... Registers>
void wgmma_wait(Registers&...) {
    emulation::MmaQueue& mine = emulation::mmas[threadIdx.x];
    std::size_t done = 0;
    while (done < mine.queue.size() && mine.queue[done].group + PENDING < mine.groups) mine.queue[done++].run();
    mine.queue.erase(mine.queue.begin(), mine.queue.begin() + static_cast<std::ptrdiff_t>(done));
}

inline void fence_async_proxy() {}

class Mbarrier {
  public:
    void init(unsigned arrivals) { *this = Mbarrier(), expected = pending = arrivals; }
    void arrive() {
        if (pending == 0) emulation::fail("an arrival at an mbarrier that was not initialised");
        emulation::note_progress();
        if (--pending == 0) pending = expected, ++phases;
    }
    void wait(unsigned parity) {
        while (phases % 2 == parity) emulation::yield();
    }

  private:
    unsigned expected = 0, pending = 0, phases = 0;
};

template <int COUNT>
void dealloc_registers() {}
template <int COUNT>
void alloc_registers() {}

#define AGK_DYNAMIC_SHARED(Type, name) static Type name

template <typename T, bool ADD, bool K_MAJOR>
void mma(float (&d)[TILES][4], const uint32_t (&a)[4], uint64_t b) {
    emulation::queue_mma<T, DEPTH, ADD, !K_MAJOR>(d, a, b);
}

}  // namespace agk
