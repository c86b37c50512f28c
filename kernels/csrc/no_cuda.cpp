// The operators of a library built without a CUDA compiler: each returns AGK_NO_CUDA.
#include "check.h"

namespace {
int no_cuda(const char* name) {
    return agk::fail(AGK_NO_CUDA, "%s: this library was built without CUDA; install nvcc and run: make kernels", name);
}
}  // namespace

extern "C" {
int agk_has_cuda(void) { return 0; }
int agk_runs_here(void) { return 0; }
int agk_norm_modulate(const agk_norm_modulate_args*, void*) { return no_cuda("norm_modulate"); }
int agk_gate_residual(const agk_gate_residual_args*, void*) { return no_cuda("gate_residual"); }
int agk_epilogue(const agk_epilogue_args*, void*) { return no_cuda("epilogue"); }
int agk_unpack(const agk_unpack_args*, void*) { return no_cuda("unpack"); }
int agk_packed_product(const agk_packed_product_args*, void*) { return no_cuda("packed_product"); }
int agk_guided_step(const agk_guided_step_args*, void*) { return no_cuda("guided_step"); }
int agk_noise(const agk_noise_args*, void*) { return no_cuda("noise"); }
int agk_head_norm(const agk_head_norm_args*, void*) { return no_cuda("head_norm"); }
int agk_attention(const agk_attention_args*, void*) { return no_cuda("attention"); }
int agk_pixels(const agk_pixels_args*, void*) { return no_cuda("pixels"); }
int agk_spatial_norm(const agk_spatial_norm_args*, void*) { return no_cuda("spatial_norm"); }
}
