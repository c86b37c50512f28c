// Runs blocks of fibers, one context per thread.
#include <cuda_runtime.h>
#include <ucontext.h>

#include <cstdio>
#include <memory>
#include <vector>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

extern "C" {
const char* cudaGetErrorString(cudaError_t) { return "an error that the emulation does not produce"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
// A very small GPU, so that a block handles several rows.
cudaError_t cudaDeviceGetAttribute(int* count, cudaDeviceAttr, int) { return *count = 3, cudaSuccess; }
}

namespace emulation {
namespace {

constexpr std::size_t STACK_BYTES = 64 * 1024;
constexpr unsigned WARP = 32;

enum class State { Ready, AtBarrier, AtExchange, Polling, Done };

struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack{new char[STACK_BYTES]};
    State state;
    unsigned exchanges;
};

struct Warp {
    // Double buffer: a thread may write its next value while another still reads the last ones.
    uint64_t values[2][WARP];
};

std::vector<Fiber> fibers;
std::vector<Warp> warps;
ucontext_t scheduler;
unsigned running, count;
bool progress;
const std::function<void()>* body;

[[noreturn]] void stop(const char* what) {
    std::fprintf(stderr, "emulation: block %u, %u, %u: %s\n", blockIdx.x, blockIdx.y, blockIdx.z, what);
    std::abort();
}

void run_body() {
    (*body)();
    fibers[running].state = State::Done;
    progress = true;
}

void wait(State state) {
    Fiber& fiber = fibers[running];
    fiber.state = state;
    progress = progress || state != State::Polling;
    swapcontext(&fiber.context, &scheduler);
}

void resume(unsigned index) {
    running = index;
    threadIdx = {index % blockDim.x, index / blockDim.x % blockDim.y, index / blockDim.x / blockDim.y};
    fibers[index].state = State::Ready;
    swapcontext(&scheduler, &fibers[index].context);
}

// Whether the `size` threads from `begin` on are all in this state.
bool all(unsigned begin, unsigned size, State state) {
    for (unsigned i = begin; i < begin + size; ++i) {
        if (i >= count || fibers[i].state != state) return false;
    }
    return true;
}

// Runs a warp until its threads wait for other warps or are done.
void run_warp(unsigned begin, bool backwards) {
    const unsigned end = std::min(begin + WARP, count);
    for (;;) {
        for (unsigned i = begin; i < end; ++i) {
            const unsigned index = backwards ? end - 1 - (i - begin) : i;
            if (fibers[index].state == State::Ready) resume(index);
        }
        if (!all(begin, WARP, State::AtExchange)) return;
        for (unsigned i = begin; i < end; ++i) fibers[i].state = State::Ready;
    }
}

void run_block(bool backwards) {
    for (unsigned i = 0; i < count; ++i) {
        Fiber& fiber = fibers[i];
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = STACK_BYTES;
        fiber.context.uc_link = &scheduler;
        fiber.state = State::Ready;
        fiber.exchanges = 0;
        makecontext(&fiber.context, run_body, 0);
    }
    const unsigned last = (count - 1) / WARP * WARP;
    for (;;) {
        progress = false;
        for (unsigned begin = 0; begin < count; begin += WARP) run_warp(backwards ? last - begin : begin, backwards);
        if (all(0, count, State::Done)) return;
        const State over = all(0, count, State::AtBarrier) ? State::AtBarrier : State::Polling;
        bool any = false;
        for (unsigned i = 0; i < count; ++i) {
            if (fibers[i].state == over) fibers[i].state = State::Ready, any = true;
        }
        if (!any || !progress) stop("deadlock: a barrier or warp operation that some threads do not reach");
    }
}

}  // namespace

unsigned lane() { return running % WARP; }

void block_barrier() { wait(State::AtBarrier); }

void yield() { wait(State::Polling); }

void note_progress() { progress = true; }

const uint64_t* warp_exchange(uint64_t value) {
    uint64_t* values = warps[running / WARP].values[fibers[running].exchanges++ % 2];
    values[lane()] = value;
    wait(State::AtExchange);
    return values;
}

void launch(const std::function<void()>& thread, dim3 grid, dim3 block, std::size_t, void*) {
    body = &thread;
    gridDim = grid;
    blockDim = block;
    count = block.x * block.y * block.z;
    if (count == 0 || count > 1024 || grid.y > 65535 || grid.z > 65535) stop("invalid launch configuration");
    if (fibers.size() < count) fibers = std::vector<Fiber>(count);
    warps.resize((count + WARP - 1) / WARP);
    unsigned number = 0;
    for (unsigned z = 0; z < grid.z; ++z) {
        for (unsigned y = 0; y < grid.y; ++y) {
            for (unsigned x = 0; x < grid.x; ++x) {
                blockIdx = {x, y, z};
                run_block(number++ % 2 == 1);
            }
        }
    }
}

}  // namespace emulation
