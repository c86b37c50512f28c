// Gate (the shot's or the image's) and residual, fused with the next LayerNorm, modulation and quantisation.
#include "rows.cuh"

extern "C" int agk_gate_residual(const agk_gate_residual_args* args, void* stream) {
    if (const int code = agk::check(args)) return code;
    return agk::with_activations(args->shape.dtype, [&](auto element) {
        using T = decltype(element);
        const int out_dtype = args->norm.out == nullptr ? args->shape.dtype : args->norm.out_dtype;
        return agk::with_output<T>(out_dtype, [&](auto out) {
            return agk::launch_rows<T, decltype(out), true>("gate_residual", args->shape, args->x, args->branch,
                                                            args->image_gate, args->shot_gate, args->x_next, args->norm,
                                                            static_cast<cudaStream_t>(stream));
        });
    });
}
