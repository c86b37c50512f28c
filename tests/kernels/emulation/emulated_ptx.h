// Emulates the instructions of kernels/csrc/ptx.cuh. An asynchronous copy is made when its thread waits for it; until then its
// destination holds NaNs.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

namespace emulation {

[[noreturn]] inline void fail(const char* what) {
    std::fprintf(stderr, "emulation: %s\n", what);
    std::abort();
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

inline void cp_async(void* shared, const void* global, bool valid) {
    if (emulation::bits(shared) % 16 != 0 || (valid && emulation::bits(global) % 16 != 0)) {
        emulation::fail("cp.async not aligned to 16 bytes");
    }
    std::memset(shared, 0xff, 16);
    emulation::copies[threadIdx.x].push_back({shared, global, valid, emulation::copy_groups[threadIdx.x]});
}

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
