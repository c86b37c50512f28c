// Converts decoded frames to bytes in the requested channel order and orientation.
//
// A thread handles eight pixels: with 16-bit inputs three 16-byte loads and 8-byte stores.
#include "launch.cuh"

namespace agk {
namespace {

constexpr int THREADS = 256, N = PIXELS_PER_THREAD;

__device__ __forceinline__ uint8_t to_byte(float x) {
    return static_cast<uint8_t>(fminf(fmaxf((x + 1.0f) * 0.5f, 0.0f), 1.0f) * 255.0f);
}

template <typename T, int OUT>
__global__ void __launch_bounds__(THREADS) pixel_kernel(agk_pixels_args a, int64_t runs) {
    const int64_t run = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (run >= runs) return;
    const T* x = static_cast<const T*>(a.x);
    uint8_t colours[4][N];
    float values[3 * N];
    to_floats(load<3 * N>(x + run * 3 * N), values);
#pragma unroll
    for (int i = 0; i < 3 * N; ++i) colours[i % 3][i / 3] = to_byte(values[i]);
    const int64_t runs_per_row = a.width / N;
    const int64_t line = run / runs_per_row, frame = line / a.height, row = line - frame * a.height;
    const int64_t to_line = a.flip ? frame * a.height + a.height - 1 - row : line;
    uint8_t* out = a.out + (to_line * runs_per_row + run - line * runs_per_row) * N * OUT;
    Pack<uint8_t, N> bytes[OUT];
#pragma unroll
    for (int i = 0; i < N * OUT; ++i) {
        const int pick = a.order[i % OUT];
        const uint8_t colour = pick == 0 ? colours[0][i / OUT] : pick == 1 ? colours[1][i / OUT] : colours[2][i / OUT];
        bytes[i / N].v[i % N] = pick == 3 ? 255 : colour;
    }
#pragma unroll
    for (int i = 0; i < OUT; ++i) *reinterpret_cast<Pack<uint8_t, N>*>(out + i * N) = bytes[i];
}

}  // namespace
}  // namespace agk

extern "C" int agk_pixels(const agk_pixels_args* args, void* to) {
    using namespace agk;
    if (const int code = check(args)) return code;
    const int64_t runs = args->frames * args->height * args->width / N;
    const auto stream = static_cast<cudaStream_t>(to);
    const auto blocks = static_cast<unsigned>(divide_up(runs, THREADS));
    return with_activations(args->dtype, [&](auto element) {
        using T = decltype(element);
        if (args->out_channels == 3) {
            pixel_kernel<T, 3><<<blocks, THREADS, 0, stream>>>(*args, runs);
        } else {
            pixel_kernel<T, 4><<<blocks, THREADS, 0, stream>>>(*args, runs);
        }
        return launch_result("pixels");
    });
}
