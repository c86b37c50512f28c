// LayerNorm and modulation with the shot's or the image's shift and scale, written in the activations' dtype, FP8 or INT8.
#include "rows.cuh"

extern "C" int agk_norm_modulate(const agk_norm_modulate_args* args, void* stream) {
    if (const int code = agk::check(args)) return code;
    return agk::with_activations(args->shape.dtype, [&](auto element) {
        using T = decltype(element);
        return agk::with_output<T>(args->norm.out_dtype, [&](auto out) {
            return agk::launch_rows<T, decltype(out), false>("norm_modulate", args->shape, args->x, nullptr, nullptr,
                                                             nullptr, args->norm, static_cast<cudaStream_t>(stream));
        });
    });
}
