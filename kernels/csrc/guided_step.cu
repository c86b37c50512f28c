// Unpatchify, guidance and solver update in one pass over the latent.
//
// A thread handles one channel of one patch, four values: one access to the patches, two of 8 bytes to the latent, whose rows
// (90 floats) allow no wider aligned ones. Neighbouring threads handle neighbouring patches, so accesses to the latent are
// coalesced. Each warp of a block handles one channel, so together they read whole cache lines of the patches.
#include "launch.cuh"

namespace agk {
namespace {

constexpr int CHANNELS_PER_BLOCK = 16;

template <typename T>
__global__ void __launch_bounds__(WARP * CHANNELS_PER_BLOCK) step_kernel(agk_guided_step_args a, int64_t patches) {
    const int64_t patch = static_cast<int64_t>(blockIdx.x) * WARP + threadIdx.x;
    if (patch >= patches) return;
    const int64_t columns = a.width / PATCH, rows = a.height / PATCH;
    const int64_t frame = patch / (rows * columns), place = patch % (rows * columns);
    const int64_t corner = place / columns * PATCH * a.width + place % columns * PATCH;
    const float* c = a.coefficients;
    const T* first_row = static_cast<const T*>(a.patches);
    const T* last_row = first_row + (a.batch - 1) * patches * a.channels * PATCH * PATCH;
    for (int64_t channel = threadIdx.y; channel < a.channels; channel += blockDim.y) {
        const int64_t feature = (patch * a.channels + channel) * PATCH * PATCH;
        const int64_t top = (frame * a.channels + channel) * a.height * a.width + corner;
        float last[4], first[4];
        to_floats(load<4>(last_row + feature), last);
        to_floats(load<4>(first_row + feature), first);
#pragma unroll
        for (int row = 0; row < PATCH; ++row) {
            const int64_t at = top + row * a.width;
            float latent[2], x0_prev[2], noise[2], difference[2], x0[2];
            load_floats(a.latent + at, latent);
            load_floats(a.x0 + at, x0_prev);
            load_floats(a.noise + at, noise);
            load_floats(a.difference + at, difference);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float v = last[2 * row + i];
                difference[i] = v - first[2 * row + i] + c[3] * difference[i];
                x0[i] = c[0] * latent[i] - c[1] * (v + c[2] * difference[i]);
                latent[i] = c[4] * latent[i] + c[5] * x0[i] + c[6] * x0_prev[i] + c[7] * noise[i];
            }
            store(a.difference + at, difference);
            store(a.x0 + at, x0);
            store(a.latent + at, latent);
        }
    }
}

}  // namespace
}  // namespace agk

extern "C" int agk_guided_step(const agk_guided_step_args* args, void* stream) {
    using namespace agk;
    if (const int code = check(args)) return code;
    const int64_t patches = args->frames * (args->height / PATCH) * (args->width / PATCH);
    const dim3 threads(WARP, static_cast<unsigned>(args->channels < CHANNELS_PER_BLOCK ? args->channels : CHANNELS_PER_BLOCK));
    return with_activations(args->dtype, [&](auto element) {
        step_kernel<decltype(element)><<<static_cast<unsigned>(divide_up(patches, WARP)), threads, 0,
                                         static_cast<cudaStream_t>(stream)>>>(*args, patches);
        return launch_result("guided_step");
    });
}
