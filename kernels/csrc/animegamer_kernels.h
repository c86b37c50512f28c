/* The C interface of the kernels: operators of the denoiser and of the vae, on a CUDA stream or, as a plain reference, here.
 *
 * It knows no tensor library. Every operator is one function of one argument struct:
 *   agk_NAME(const agk_NAME_args*, void* stream)   pointers into the current CUDA device's memory; returns once queued
 *   agk_NAME_host(const agk_NAME_args*)            pointers into host memory; the plain reference, one thread, slow
 * Both return AGK_OK or a code; agk_last_error() says in words what was wrong with this thread's last failing call.
 * Nothing allocates, nothing waits, so every call can be captured in a CUDA graph. Arrays are dense, the last axis
 * contiguous, pointers aligned to 16 bytes. D is a row's width. Mathematics: MODEL.md sections 4, 5 and 6.
 */
#ifndef ANIMEGAMER_KERNELS_H
#define ANIMEGAMER_KERNELS_H

#include <stdint.h>

#if defined(_WIN32)
#define AGK_API __declspec(dllexport)
#else
#define AGK_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum agk_dtype { AGK_F32 = 0, AGK_F16 = 1, AGK_BF16 = 2, AGK_E4M3 = 3, AGK_I8 = 4 };

enum agk_code {
    AGK_OK = 0,
    AGK_BAD_STRUCT = 1,        /* struct_bytes is not this library's: header and library differ */
    AGK_NULL_POINTER = 2,      /* an array that is needed is missing */
    AGK_UNALIGNED_POINTER = 3, /* an address that is no multiple of 16 */
    AGK_BAD_DTYPE = 4,
    AGK_BAD_SHAPE = 5,         /* sizes that are not positive or do not fit each other */
    AGK_UNALIGNED_WIDTH = 6,   /* a row that is no multiple of 16 bytes */
    AGK_TOO_WIDE = 7,          /* a row of more than 16 KiB: 1024 threads hold 16 bytes each */
    AGK_NO_CUDA = 8,           /* this library was built without a CUDA compiler */
    AGK_CUDA_ERROR = 1000      /* plus the CUDA runtime's own code */
};

/* What a code means, for any code; never NULL, valid for ever. */
AGK_API const char* agk_error_text(int code);
/* What was wrong with this thread's last failing call: operator, argument, found, expected. Valid until the next one. */
AGK_API const char* agk_last_error(void);
/* Whether the operators for CUDA are in this library (1) or only their references (0). */
AGK_API int agk_has_cuda(void);

/* Rows of tokens: `rows` of width D, `tokens` to a batch entry, of which the first `shot_tokens` are the shot's.
 * `modulation_stride`: floats from one batch entry's shift (scale, gate) to the next one's; 0 if all share one. */
typedef struct agk_rows {
    int64_t rows, tokens, shot_tokens, width, modulation_stride;
    int32_t dtype; /* of the activations: AGK_F32, AGK_F16, AGK_BF16 */
} agk_rows;

/* LayerNorm(row) * weight + bias, then * (1 + scale) + shift by the row's kind, then written as `out_dtype`.
 * weight and bias [D]: both or none. The shifts and scales [batch, D] by modulation_stride: all that the rows need, or
 * none. out [rows, D]: the activations' dtype, or AGK_E4M3 or AGK_I8 with out_scales [rows]: value = out * out_scale,
 * the largest magnitude of a row at 448 or 127. A row with a NaN gets a NaN scale. Statistics in float32. */
typedef struct agk_norm {
    const float *weight, *bias;
    const float *image_shift, *image_scale, *shot_shift, *shot_scale;
    void* out;
    float* out_scales;
    float epsilon;
    int32_t out_dtype;
} agk_norm;

typedef struct agk_norm_modulate_args {
    uint32_t struct_bytes; /* sizeof(this struct), set by the caller */
    agk_rows shape;
    const void* x; /* [rows, D] */
    agk_norm norm;
} agk_norm_modulate_args;

AGK_API int agk_norm_modulate(const agk_norm_modulate_args* args, void* stream);
AGK_API int agk_norm_modulate_host(const agk_norm_modulate_args* args);

/* x_next = x + gate * branch with the gate of the row's kind, rounded to the activations' dtype; then, unless norm.out
 * is NULL, the norm of x_next. x_next may be x. */
typedef struct agk_gate_residual_args {
    uint32_t struct_bytes;
    agk_rows shape;
    const void *x, *branch;              /* [rows, D] */
    const float *image_gate, *shot_gate; /* [batch, D] by modulation_stride */
    void* x_next;                        /* [rows, D] */
    agk_norm norm;
} agk_gate_residual_args;

AGK_API int agk_gate_residual(const agk_gate_residual_args* args, void* stream);
AGK_API int agk_gate_residual_host(const agk_gate_residual_args* args);

/* Unpatchify, guidance and the solver's update of one step. The head's patches are 2 x 2, features (channel, row, column),
 * patches in frame, row, column order. coefficients [8]: signal, sigma, guidance_minus_one, reuse, c_latent, c_x0,
 * c_x0_prev, c_noise, read when the kernel runs:
 *   d = v_last - v_first + reuse * difference;  v = v_last + guidance_minus_one * d;  x0 = signal * latent - sigma * v;
 *   next_latent = c_latent * latent + c_x0 * x0 + c_x0_prev * x0_prev + c_noise * noise;  next_difference = d.
 * An output may be the input of the same meaning. next_patches, if not NULL, is next_latent as patches once more. */
typedef struct agk_guided_step_args {
    uint32_t struct_bytes;
    int32_t dtype; /* of patches and next_patches */
    int64_t batch; /* 1: the conditional row; 2: the unconditional row first */
    int64_t frames, channels, height, width;
    const void* patches;                                  /* [batch, frames * height/2 * width/2, channels * 4] */
    const float *latent, *x0_prev, *noise, *difference;   /* [frames, channels, height, width] */
    const float* coefficients;                            /* [8] */
    float *next_latent, *x0, *next_difference;            /* [frames, channels, height, width] */
    void* next_patches;                                   /* [frames * height/2 * width/2, channels * 4] or NULL */
} agk_guided_step_args;

AGK_API int agk_guided_step(const agk_guided_step_args* args, void* stream);
AGK_API int agk_guided_step_host(const agk_guided_step_args* args);

#ifdef __cplusplus
}
#endif
#endif
