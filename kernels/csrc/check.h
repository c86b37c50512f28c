// What every operator asks of its arguments, once for kernel and reference: AGK_OK, or a code with words kept for
// agk_last_error().
//
// It does not know who is asked: pointers are looked at, never followed.
#pragma once

#include "animegamer_kernels.h"

namespace agk {

// A thread takes 16 bytes at a time; a block holds a row: 32 bytes each of 512 threads, or 16 of 1024.
constexpr int64_t VECTOR_BYTES = 16;
constexpr int64_t MAX_ROW_BYTES = 1024 * VECTOR_BYTES;
// Patches of the latent are 2 x 2 (MODEL.md section 4).
constexpr int64_t PATCH = 2;
// Tokens whose keys one block adds up, and places whose statistics one block takes: sizes of the workspaces.
constexpr int64_t KEY_CHUNK = 256;
constexpr int64_t STATISTICS_BLOCKS = 512;
// What attention_int8 is written for: heads of 64, keys 64 at a time.
constexpr int ATTENTION_WIDTH = 64, ATTENTION_KEYS = 64;
// 16 bytes of each colour of half floats; a whole number of 8-byte stores of bytes.
constexpr int PIXELS_A_THREAD = 8;

// Keeps the words for agk_last_error() and returns the code. Format as printf's.
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
int check(const agk_head_norm_args* args);
int check(const agk_head_norm_int8_args* args);
int check(const agk_attention_int8_args* args);
int check(const agk_pixels_args* args);
int check(const agk_spatial_norm_args* args);

}  // namespace agk
