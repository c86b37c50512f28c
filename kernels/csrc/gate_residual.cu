// Gate (the shot's or the image's) and residual, fused with the next LayerNorm, modulation and quantisation.
#include "rows.cuh"

extern "C" int agk_gate_residual(const agk_gate_residual_args* args, void* stream) {
    if (const int code = agk::check(args)) return code;
    return agk::with_activations(args->shape.dtype, [&](auto element) {
        using T = decltype(element);
        return agk::with_output<T>(args->norm.out_dtype, [&](auto out) {
            return agk::launch_rows<T, decltype(out), true>("gate_residual", args->shape, args->x, args->branch,
                                                            args->image_gate, args->shot_gate, args->norm,
                                                            static_cast<cudaStream_t>(stream));
        });
    });
}
