/* The C interface of the kernels: operators of the denoiser, the predictor and the VAE, with plain CPU references.
 *
 * Every operator is two functions of one argument struct:
 *   agk_NAME(const agk_NAME_args*, void* stream)   the kernel, on device memory; asynchronous on the stream
 *   agk_NAME_host(const agk_NAME_args*)            the plain reference, on host memory; one thread, slow
 * Both return AGK_OK or a status code; agk_last_error() describes this thread's last error. No operator allocates memory
 * or synchronises, so every call can be captured in a CUDA graph. Arrays are contiguous in row-major order and aligned to
 * 16 bytes. D is the width of a row. Mathematics: MODEL.md sections 2, 4, 5 and 6.
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
    AGK_BAD_STRUCT = 1,        /* struct_bytes is wrong: header and library are of different versions */
    AGK_NULL_POINTER = 2,      /* a required array is NULL */
    AGK_UNALIGNED_POINTER = 3, /* an array is not aligned to 16 bytes */
    AGK_BAD_DTYPE = 4,
    AGK_BAD_SHAPE = 5,         /* sizes are not positive or do not match */
    AGK_UNALIGNED_WIDTH = 6,   /* a row is not a multiple of 16 bytes */
    AGK_TOO_WIDE = 7,          /* a row is larger than 16 KiB, the most that a block holds */
    AGK_NO_CUDA = 8,           /* this library was built without a CUDA compiler */
    AGK_SMALL_WORKSPACE = 9,   /* the workspace is too small */
    AGK_CUDA_ERROR = 1000      /* plus the CUDA runtime's own code */
};

/* Text of a status code. Never NULL; the string is static. */
AGK_API const char* agk_error_text(int code);
/* This thread's last error: operator, argument, found, expected. Valid until this thread's next failed call. */
AGK_API const char* agk_last_error(void);
/* 1 if this library has the CUDA kernels, 0 if it has the references only. */
AGK_API int agk_has_cuda(void);
/* 1 if the kernels run on the current CUDA device: one exists, they were built for it, and its driver is new enough. */
AGK_API int agk_runs_here(void);

/* Rows of width D. Each batch entry has `tokens` rows: first `shot_tokens` of the shot, then the image's. */
typedef struct agk_rows {
    int64_t rows, tokens, shot_tokens, width;
    int32_t dtype; /* of the activations: AGK_F32, AGK_F16, AGK_BF16 */
} agk_rows;

/* y = LayerNorm(row) * weight + bias, then y * (1 + scale) + shift, written as `out_dtype`. Statistics in float32.
 * image, shot [2, D]: shift and scale, the shot's if there are shot rows, the image's if there are image rows; or none at all.
 * out [rows, D]: in the activations' dtype; or AGK_E4M3 or AGK_I8 with out_scales [rows], value = out * out_scale, the largest
 * magnitude of a row at 448 or 127. A NaN in a row makes its scale NaN. */
typedef struct agk_norm {
    const float *weight, *bias; /* [D] */
    const float *image, *shot;
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

/* x += gate * branch with the shot's or the image's gate, rounded to the activations' dtype. Then the norm of x. */
typedef struct agk_gate_residual_args {
    uint32_t struct_bytes;
    agk_rows shape;
    void* x;                             /* [rows, D] */
    const void* branch;                  /* [rows, D] */
    const float *image_gate, *shot_gate; /* [D] */
    agk_norm norm;
} agk_gate_residual_args;

AGK_API int agk_gate_residual(const agk_gate_residual_args* args, void* stream);
AGK_API int agk_gate_residual_host(const agk_gate_residual_args* args);

/* The epilogue of a matrix product. x: its result [rows, D] in dtype; or, with row_scales [rows], column_scales [D] and bias [D]
 * (all three or none), the int32 result [rows, D] of an INT8 product, whose value is x * row_scale * column_scale + bias.
 * Then GELU (tanh approximation) if `gelu`. out as in agk_norm: in dtype, or AGK_E4M3 or AGK_I8 with out_scales [rows].
 * If x and out are both in dtype, out may be x. */
typedef struct agk_epilogue_args {
    uint32_t struct_bytes;
    int32_t dtype; /* of activations: AGK_F32, AGK_F16, AGK_BF16 */
    int64_t rows, width;
    const void* x;
    const float *row_scales, *column_scales, *bias;
    void* out; /* [rows, D] */
    float* out_scales;
    int32_t out_dtype, gelu;
} agk_epilogue_args;

AGK_API int agk_epilogue(const agk_epilogue_args* args, void* stream);
AGK_API int agk_epilogue_host(const agk_epilogue_args* args);

/* A linear layer's weight [outputs, inputs] in 4 or 8 bits, two's complement: weight = code * scale, with one scale for each
 * block of inputs. codes: in 8 bits int8 [outputs, inputs]; in 4 bits bytes [outputs, inputs / block, block / 2], where byte i
 * has element i of the block in its low nibble and element i + block / 2 in its high nibble. block: a divisor of inputs and a
 * multiple of 32 / bits. */
typedef struct agk_packed {
    int64_t outputs, inputs, block;
    int32_t bits;
    const void* codes;
    const float* scales; /* [outputs, inputs / block] */
} agk_packed;

/* Dequantises the weight to dtype; each element is rounded once. */
typedef struct agk_unpack_args {
    uint32_t struct_bytes;
    int32_t dtype; /* AGK_F32, AGK_F16, AGK_BF16 */
    agk_packed weight;
    void* out; /* [outputs, inputs] */
} agk_unpack_args;

AGK_API int agk_unpack(const agk_unpack_args* args, void* stream);
AGK_API int agk_unpack_host(const agk_unpack_args* args);

/* x weight^T for 1 to AGK_FEW_ROWS rows. Weights are not rounded, sums are float32. */
#define AGK_FEW_ROWS 4
typedef struct agk_packed_product_args {
    uint32_t struct_bytes;
    int32_t dtype; /* of x and out */
    agk_packed weight;
    int64_t rows;
    const void* x; /* [rows, inputs] */
    void* out;     /* [rows, outputs] */
} agk_packed_product_args;

AGK_API int agk_packed_product(const agk_packed_product_args* args, void* stream);
AGK_API int agk_packed_product_host(const agk_packed_product_args* args);

/* Unpatchify, guidance and the solver's update of one step. Patches are 2 x 2, in the order frame, row, column; the features of a
 * patch in the order channel, row, column. coefficients [8]: signal, sigma, guidance_minus_one, reuse, c_latent, c_x0,
 * c_x0_prev, c_noise, read when the kernel runs:
 *   d = v_last - v_first + reuse * difference;  v = v_last + guidance_minus_one * d;  x0 = signal * latent - sigma * v;
 *   latent = c_latent * latent + c_x0 * x0 + c_x0_prev * (x0 of the step before) + c_noise * noise;  difference = d.
 * latent, x0 and difference are updated in place. */
typedef struct agk_guided_step_args {
    uint32_t struct_bytes;
    int32_t dtype; /* of patches */
    int64_t batch; /* 1: the conditional row; 2: the unconditional row first */
    int64_t frames, channels, height, width;
    const void* patches;              /* [batch, frames * height/2 * width/2, channels * 4] */
    float *latent, *x0, *difference;  /* [frames, channels, height, width], as noise */
    const float *noise, *coefficients;
} agk_guided_step_args;

AGK_API int agk_guided_step(const agk_guided_step_args* args, void* stream);
AGK_API int agk_guided_step_host(const agk_guided_step_args* args);

/* Normal numbers: sum over k of weights[k] * draw first + k, where a draw has `count` numbers. Block b of a draw is Philox4x64-10
 * of the counter (b + 1, draw, turn, AGK_NOISE_VERSION), whose four words are 16 places in the table, the lowest 16 bits first.
 * Of the blocks' weighted sums x, from 0 to ceil(count / 32) - 1, and y, as many that follow: out = x + y, then x - y, cut to
 * count. Each product and sum is rounded to float32, in ascending order of draws: all implementations give the same bits. */
#define AGK_NOISE_VERSION 2
#define AGK_MOST_DRAWS 1000
typedef struct agk_noise_args {
    uint32_t struct_bytes;
    int32_t draws; /* 0 to AGK_MOST_DRAWS */
    int64_t count, first;
    const uint64_t* turn; /* [3]: the seed's low and high half, the turn; read when the kernel runs */
    const float* table;   /* [65536] */
    const float* weights; /* [draws], in host memory, copied by the call */
    float* out;           /* [count] */
} agk_noise_args;

AGK_API int agk_noise(const agk_noise_args* args, void* stream);
AGK_API int agk_noise_host(const agk_noise_args* args);

/* LayerNorm of every head of queries and keys, in place. */
typedef struct agk_head_norm_args {
    uint32_t struct_bytes;
    int32_t dtype; /* of qkv; a head is 16 bytes times a power of two, at most 512 bytes */
    int64_t batch, tokens, heads, head_width;
    void* qkv; /* [batch, tokens, 3, heads, head_width] */
    const float *query_weight, *query_bias, *key_weight, *key_bias; /* [head_width] */
    float epsilon;
} agk_head_norm_args;

AGK_API int agk_head_norm(const agk_head_norm_args* args, void* stream);
AGK_API int agk_head_norm_host(const agk_head_norm_args* args);

/* Attention over all tokens, softmax(query key^T / 8) value. Scores, softmax and sums are float32, weights are rounded to dtype.
 * wgmma, on sm_90 only; elsewhere the launch fails with a CUDA runtime error. */
typedef struct agk_attention_args {
    uint32_t struct_bytes;
    int32_t dtype; /* AGK_F16 or AGK_BF16 */
    int64_t batch, tokens, heads, head_width; /* head_width: 64 */
    const void* qkv; /* [batch, tokens, 3, heads, head_width], normalised */
    void* out;       /* [batch, tokens, heads, head_width] */
} agk_attention_args;

AGK_API int agk_attention(const agk_attention_args* args, void* stream);
AGK_API int agk_attention_host(const agk_attention_args* args);

/* Converts decoded frames, about -1..1, to bytes: clamp((x + 1) / 2) * 255, truncated. order [out_channels]: the channel of each
 * byte, 0 to 3 for R, G, B and A (always 255). flip: bottom row first. width: a multiple of 8. */
typedef struct agk_pixels_args {
    uint32_t struct_bytes;
    int32_t dtype;
    int64_t frames, height, width;
    const void* x; /* [frames, height, width, 3] */
    uint8_t* out;  /* [frames, height, width, out_channels] */
    int32_t flip, out_channels;
    int32_t order[4];
} agk_pixels_args;

AGK_API int agk_pixels(const agk_pixels_args* args, void* stream);
AGK_API int agk_pixels_host(const agk_pixels_args* args);

/* The VAE's spatial norm with its activation, channels last: silu(GroupNorm(x + x_bias) * scale + shift), statistics over all
 * frames. x_bias may be NULL; it is the bias of the preceding convolution, which then needs no pass of its own.
 * scale and shift are projections of the latent, read at the nearest latent position; the latent's sizes divide x's. If x has
 * an odd number of frames above 1, its first frame maps to the latent's first, and the others to the others.
 * channels / groups: a multiple of 4. out may be x. workspace:
 * AGK_GROUP_WORKSPACE bytes for each group. */
#define AGK_GROUP_WORKSPACE 4104
typedef struct agk_spatial_norm_args {
    uint32_t struct_bytes;
    int32_t dtype; /* of x, scale, shift and out */
    int64_t frames, height, width, channels, groups;
    int64_t latent_frames, latent_height, latent_width;
    const void* x;              /* [frames, height, width, channels] */
    const void *scale, *shift;  /* [latent_frames, latent_height, latent_width, channels] */
    const float *weight, *bias; /* [channels] of the GroupNorm */
    const float* x_bias;        /* [channels] or NULL */
    void* out;                  /* as x */
    void* workspace;
    int64_t workspace_bytes;
    float epsilon;
} agk_spatial_norm_args;

AGK_API int agk_spatial_norm(const agk_spatial_norm_args* args, void* stream);
AGK_API int agk_spatial_norm_host(const agk_spatial_norm_args* args);

#ifdef __cplusplus
}
#endif
#endif
