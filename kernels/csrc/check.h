// Argument checks, shared by kernel and reference: AGK_OK, or a status code with a text for agk_last_error().
//
// The checks read addresses and never dereference them, so they work for device and host memory.
#pragma once

#include "animegamer_kernels.h"

namespace agk {

// Bytes per access of a thread, and per row of a block: 512 threads hold 32 bytes each, or 1024 hold 16.
constexpr int64_t VECTOR_BYTES = 16;
constexpr int64_t MAX_ROW_BYTES = 1024 * VECTOR_BYTES;
// Patches of the latent are 2 x 2 (MODEL.md section 4).
constexpr int64_t PATCH = 2;
// Blocks of the statistics. The workspace holds mean and sum of squares per group and block, and mean and 1 / deviation per group.
constexpr int64_t STATISTICS_BLOCKS = 512;
static_assert(AGK_GROUP_WORKSPACE == (STATISTICS_BLOCKS + 1) * 2 * sizeof(float));
// Attention is written for heads of 64.
constexpr int ATTENTION_WIDTH = 64;
// Noise: table values from a block of Philox.
constexpr int64_t NOISE_VALUES = 16;
// 16 bytes of each channel with 16-bit inputs; the output is a whole number of 8-byte stores.
constexpr int PIXELS_PER_THREAD = 8;

// Stores the text for agk_last_error() and returns the code. Format as printf.
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
int fail(int code, const char* format, ...);

int64_t dtype_bytes(int dtype);

int check(const agk_norm_modulate_args* args);
int check(const agk_gate_residual_args* args);
int check(const agk_epilogue_args* args);
int check(const agk_unpack_args* args);
int check(const agk_packed_product_args* args);
int check(const agk_guided_step_args* args);
int check(const agk_noise_args* args);
int check(const agk_head_norm_args* args);
int check(const agk_attention_args* args);
int check(const agk_pixels_args* args);
int check(const agk_spatial_norm_args* args);

}  // namespace agk
