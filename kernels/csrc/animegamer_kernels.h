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
    AGK_TOO_WIDE = 7,          /* a row of more than 16 KiB, which is what a block holds */
    AGK_NO_CUDA = 8,           /* this library was built without a CUDA compiler */
    AGK_SMALL_WORKSPACE = 9,   /* less working memory than the operator's _workspace() says */
    AGK_BAD_OPTION = 10,       /* a choice that the operator does not have */
    AGK_CUDA_ERROR = 1000      /* plus the CUDA runtime's own code */
};

/* What a code means, for any code; never NULL, valid for ever. */
AGK_API const char* agk_error_text(int code);
/* What was wrong with this thread's last failing call: operator, argument, found, expected. Valid until the next one. */
AGK_API const char* agk_last_error(void);
/* Whether the operators for CUDA are in this library (1) or only their references (0). */
AGK_API int agk_has_cuda(void);
/* Whether they run on the current CUDA device: there is one, its driver is new enough, and they were built for it. */
AGK_API int agk_runs_here(void);

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

/* What follows a product and goes before the next one. x are its rows [rows, D] in dtype; or, with row_scales [rows],
 * column_scales [D] and bias [D] (all three or none), the sums of an INT8 product, int32 [rows, D], which stand for
 * x * row_scale * column_scale + bias. Then GELU (by tanh) if `gelu`, then `out`, written as agk_norm's: in dtype, or as
 * AGK_E4M3 or AGK_I8 with out_scales [rows]. Without sums and in dtype, out may be x. */
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

/* A linear layer's weight [outputs, inputs] in 4 or 8 bits, two's complement, with a scale for each block of inputs:
 * weight = code * scale. codes: in 8 bits int8 [outputs, inputs]; in 4 bits [outputs, inputs / block, block / 2] bytes, whose
 * low halves are the block's first half and whose high halves are its second. block: divides inputs, a multiple of 32 / bits. */
typedef struct agk_packed {
    int64_t outputs, inputs, block;
    int32_t bits;
    const void* codes;
    const float* scales; /* [outputs, inputs / block] */
} agk_packed;

/* The weight as numbers of dtype, each rounded once. */
typedef struct agk_unpack_args {
    uint32_t struct_bytes;
    int32_t dtype; /* AGK_F32, AGK_F16, AGK_BF16 */
    agk_packed weight;
    void* out; /* [outputs, inputs] */
} agk_unpack_args;

AGK_API int agk_unpack(const agk_unpack_args* args, void* stream);
AGK_API int agk_unpack_host(const agk_unpack_args* args);

/* x weight^T for 1 to AGK_FEW_ROWS rows, sums in float32 of weights that are not rounded. */
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

/* LayerNorm of every head of the queries and of the keys, and where they go. qkv is three contiguous blocks a token. */
typedef struct agk_heads {
    int64_t batch, tokens, heads, head_width;
    const void* qkv; /* [batch, tokens, 3, heads, head_width] */
    const float *query_weight, *query_bias, *key_weight, *key_bias; /* [head_width] */
    float epsilon;
    int32_t dtype; /* of qkv; head_width * its size: 16 bytes times 1, 2, 4, 8, 16 or 32 */
} agk_heads;

/* Element (entry, token, head, i) of query, key and value goes to entry * batch_stride + token * token_stride +
 * head * head_stride + i; strides in elements, rows of 16 bytes. value NULL: it stays where it is. With the strides of
 * qkv itself, query and key may be the places they came from. */
typedef struct agk_head_norm_args {
    uint32_t struct_bytes;
    agk_heads shape;
    void *query, *key, *value; /* in qkv's dtype */
    int64_t batch_stride, token_stride, head_stride;
} agk_head_norm_args;

AGK_API int agk_head_norm(const agk_head_norm_args* args, void* stream);
AGK_API int agk_head_norm_host(const agk_head_norm_args* args);

/* The same in INT8 for 8-bit attention: value = int8 * scale, one scale for `query_group` (`key_group`) consecutive
 * tokens of a head. Keys are smoothed first: their mean over the tokens, which softmax does not see, is taken off them
 * and written to key_mean. Keys are written unsmoothed nowhere. workspace: agk_head_norm_int8_workspace() bytes. */
typedef struct agk_head_norm_int8_args {
    uint32_t struct_bytes;
    agk_heads shape;
    int8_t *query, *key;              /* [batch, heads, tokens, head_width] */
    float *query_scales, *key_scales; /* [batch, heads, ceil(tokens / group)] */
    float* key_mean;                  /* [batch, heads, head_width] */
    void* workspace;
    int64_t workspace_bytes;
    int64_t query_group, key_group;
} agk_head_norm_int8_args;

AGK_API int agk_head_norm_int8(const agk_head_norm_int8_args* args, void* stream);
AGK_API int agk_head_norm_int8_host(const agk_head_norm_int8_args* args);
AGK_API int64_t agk_head_norm_int8_workspace(const agk_heads* shape);

/* AGK_WARPS: mma.sync, on every GPU. AGK_HALF_SUMS: the same with weights, values (a 64th of them) and the sums of each 64
 * keys in float16, which GeForce multiplies at twice the rate; exact for values from 0.004 on, and below to 2e-6.
 * AGK_WARPGROUPS: wgmma, on sm_90 alone; an error of the CUDA runtime elsewhere. */
typedef enum agk_products { AGK_WARPS = 0, AGK_HALF_SUMS = 1, AGK_WARPGROUPS = 2 } agk_products;

/* Attention over all tokens, softmax(query key^T / 8) value, of queries and keys as agk_head_norm_int8 writes them (with a
 * key_group that is a multiple of 64), and of values wherever they lie: element (entry, token, head, i) at
 * entry * batch_stride + token * token_stride + head * head_stride + i, strides in elements, rows of 16 bytes. Scores are
 * exact integers times their scales, softmax and sums float32, weights rounded to dtype. A NaN scale makes NaN of what
 * it reaches. products: by which instructions, all with these numbers but AGK_HALF_SUMS. */
typedef struct agk_attention_int8_args {
    uint32_t struct_bytes;
    int32_t dtype; /* of value and out: AGK_F16 or AGK_BF16 */
    int64_t batch, tokens, heads, head_width;       /* head_width: 64 */
    const int8_t *query, *key;                      /* [batch, heads, tokens, head_width] */
    const float *query_scales, *key_scales;         /* [batch, heads, ceil(tokens / group)] */
    int64_t query_group, key_group;
    const void* value;
    int64_t batch_stride, token_stride, head_stride; /* of value */
    void* out;                                      /* [batch, tokens, heads, head_width] */
    int32_t products; /* agk_products */
} agk_attention_int8_args;

AGK_API int agk_attention_int8(const agk_attention_int8_args* args, void* stream);
AGK_API int agk_attention_int8_host(const agk_attention_int8_args* args);

/* Decoded frames, about -1..1, to bytes: clamp((x + 1) / 2) * 255, cut off. order [out_channels]: which of R, G, B and A
 * (0..3, A always 255) each byte is. flip: the bottom row first. interleaved 0: x is [3, frames, height, width];
 * 1: [frames, height, width, 3]. width: a multiple of 8. */
typedef struct agk_pixels_args {
    uint32_t struct_bytes;
    int32_t dtype;
    int64_t frames, height, width;
    const void* x;
    uint8_t* out; /* [frames, height, width, out_channels] */
    int32_t interleaved, flip, out_channels;
    int32_t order[4];
} agk_pixels_args;

AGK_API int agk_pixels(const agk_pixels_args* args, void* stream);
AGK_API int agk_pixels_host(const agk_pixels_args* args);

/* The vae's spatial norm with its activation, channels last: silu(GroupNorm(x) * scale + shift), statistics over all of
 * x. scale and shift are the projections of the chunk's latent, read at the nearest latent place, whose sizes divide
 * x's; where x has an odd number of frames above 1, its first frame takes the latent's first, and the rest the rest.
 * channels / groups: a multiple of 4. out may be x. workspace: agk_spatial_norm_workspace() bytes. */
typedef struct agk_spatial_norm_args {
    uint32_t struct_bytes;
    int32_t dtype; /* of x, scale, shift and out */
    int64_t frames, height, width, channels, groups;
    int64_t latent_frames, latent_height, latent_width;
    const void* x;              /* [frames, height, width, channels] */
    const void *scale, *shift;  /* [latent_frames, latent_height, latent_width, channels] */
    const float *weight, *bias; /* [channels] of the GroupNorm */
    void* out;                  /* as x */
    void* workspace;
    int64_t workspace_bytes;
    float epsilon;
} agk_spatial_norm_args;

AGK_API int agk_spatial_norm(const agk_spatial_norm_args* args, void* stream);
AGK_API int agk_spatial_norm_host(const agk_spatial_norm_args* args);
AGK_API int64_t agk_spatial_norm_workspace(const agk_spatial_norm_args* args);

#ifdef __cplusplus
}
#endif
#endif
