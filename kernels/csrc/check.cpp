// Checks of the denoiser's row operators, of the guided step and of noise.
#include "check.h"

#include <cinttypes>

#include "check_parts.h"

namespace agk {

int64_t dtype_bytes(int dtype) {
    switch (dtype) {
        case AGK_F32: return 4;
        case AGK_F16:
        case AGK_BF16: return 2;
        default: return 1;
    }
}

namespace {

int check_width(const char* name, int64_t width, int dtype) {
    const int64_t bytes = width * dtype_bytes(dtype);
    if (bytes % VECTOR_BYTES != 0) {
        return fail(AGK_UNALIGNED_WIDTH, "%s: width %" PRId64 " is %" PRId64 " bytes: expected a multiple of 16", name, width,
                    bytes);
    }
    if (bytes > MAX_ROW_BYTES) {
        return fail(AGK_TOO_WIDE, "%s: width %" PRId64 " is %" PRId64 " bytes: expected at most %" PRId64, name, width, bytes,
                    MAX_ROW_BYTES);
    }
    return AGK_OK;
}

int check_rows(const char* name, const agk_rows& shape) {
    if (const int code = check_activations(name, shape.dtype)) return code;
    if (shape.rows <= 0 || shape.tokens <= 0 || shape.width <= 0 || shape.rows % shape.tokens != 0) {
        return fail(AGK_BAD_SHAPE, "%s: rows %" PRId64 ", tokens %" PRId64 ", width %" PRId64
                    ": expected positive sizes and rows a multiple of tokens", name, shape.rows, shape.tokens, shape.width);
    }
    if (shape.shot_tokens < 0 || shape.shot_tokens > shape.tokens) {
        return fail(AGK_BAD_SHAPE, "%s: shot_tokens %" PRId64 ": expected 0 to tokens (%" PRId64 ")", name,
                    shape.shot_tokens, shape.tokens);
    }
    return check_width(name, shape.width, shape.dtype);
}

// Requires the image's array if there are image tokens, the shot's if there are shot tokens.
int check_shot_and_image(const char* name, const char* what, const agk_rows& shape, const void* image, const void* shot) {
    if (shape.shot_tokens < shape.tokens) {
        if (const int code = check_array(name, what, image)) return code;
    }
    return shape.shot_tokens > 0 ? check_array(name, what, shot) : AGK_OK;
}

int check_output(const char* name, int dtype, int out_dtype, const float* out_scales) {
    if (out_dtype == AGK_E4M3 || out_dtype == AGK_I8) return check_array(name, "out_scales", out_scales);
    if (out_dtype == dtype) return AGK_OK;
    return fail(AGK_BAD_DTYPE, "%s: out_dtype %d: expected the activations' (%d), AGK_E4M3 or AGK_I8", name, out_dtype, dtype);
}

int check_norm(const char* name, const agk_rows& shape, const agk_norm& norm) {
    if (const int code = check_array(name, "norm.out", norm.out)) return code;
    if (const int code = check_array(name, "norm.weight", norm.weight)) return code;
    if (const int code = check_array(name, "norm.bias", norm.bias)) return code;
    if (norm.image || norm.shot) {
        if (const int code = check_shot_and_image(name, "norm.image or norm.shot", shape, norm.image, norm.shot)) return code;
    }
    if (!(norm.epsilon > 0.0f)) return fail(AGK_BAD_SHAPE, "%s: norm.epsilon %g: expected above 0", name, norm.epsilon);
    return check_output(name, shape.dtype, norm.out_dtype, norm.out_scales);
}

}  // namespace

int check(const agk_norm_modulate_args* args) {
    const char* name = "norm_modulate";
    if (const int code = check_struct(name, args)) return code;
    if (const int code = check_rows(name, args->shape)) return code;
    if (const int code = check_array(name, "x", args->x)) return code;
    return check_norm(name, args->shape, args->norm);
}

int check(const agk_gate_residual_args* args) {
    const char* name = "gate_residual";
    if (const int code = check_struct(name, args)) return code;
    if (const int code = check_rows(name, args->shape)) return code;
    if (const int code = check_array(name, "x", args->x)) return code;
    if (const int code = check_array(name, "branch", args->branch)) return code;
    if (const int code = check_shot_and_image(name, "*_gate", args->shape, args->image_gate, args->shot_gate)) return code;
    return check_norm(name, args->shape, args->norm);
}

int check(const agk_epilogue_args* args) {
    const char* name = "epilogue";
    if (const int code = check_struct(name, args)) return code;
    if (const int code = check_activations(name, args->dtype)) return code;
    if (args->rows <= 0 || args->width <= 0) {
        return fail(AGK_BAD_SHAPE, "%s: rows %" PRId64 ", width %" PRId64 ": expected positive sizes", name, args->rows,
                    args->width);
    }
    if (const int code = check_width(name, args->width, args->dtype)) return code;
    if (const int code = check_array(name, "x", args->x)) return code;
    if (args->row_scales || args->column_scales || args->bias) {
        if (const int code = check_array(name, "row_scales", args->row_scales)) return code;
        if (const int code = check_array(name, "column_scales", args->column_scales)) return code;
        if (const int code = check_array(name, "bias", args->bias)) return code;
    }
    if (const int code = check_array(name, "out", args->out)) return code;
    return check_output(name, args->dtype, args->out_dtype, args->out_scales);
}

int check(const agk_guided_step_args* args) {
    const char* name = "guided_step";
    if (const int code = check_struct(name, args)) return code;
    if (const int code = check_activations(name, args->dtype)) return code;
    if (args->batch != 1 && args->batch != 2) {
        return fail(AGK_BAD_SHAPE, "%s: batch %" PRId64 ": expected 1 or 2", name, args->batch);
    }
    const bool whole = args->height > 0 && args->width > 0 && args->height % PATCH == 0 && args->width % PATCH == 0;
    if (args->frames <= 0 || args->channels <= 0 || !whole) {
        return fail(AGK_BAD_SHAPE, "%s: frames %" PRId64 ", channels %" PRId64 ", height %" PRId64 ", width %" PRId64
                    ": expected positive sizes, height and width even", name, args->frames, args->channels, args->height,
                    args->width);
    }
    const struct { const char* what; const void* array; } arrays[] = {
        {"patches", args->patches}, {"latent", args->latent}, {"x0", args->x0}, {"difference", args->difference},
        {"noise", args->noise},     {"coefficients", args->coefficients},
    };
    for (const auto& each : arrays) {
        if (const int code = check_array(name, each.what, each.array)) return code;
    }
    return AGK_OK;
}

int check(const agk_noise_args* args) {
    const char* name = "noise";
    if (const int code = check_struct(name, args)) return code;
    if (args->draws < 0 || args->draws > AGK_MOST_DRAWS) {
        return fail(AGK_BAD_SHAPE, "%s: draws %d: expected 0 to %d", name, static_cast<int>(args->draws), AGK_MOST_DRAWS);
    }
    if (args->count <= 0 || args->first < 0) {
        return fail(AGK_BAD_SHAPE, "%s: count %" PRId64 ", first %" PRId64 ": expected a positive count, first 0 or more", name,
                    args->count, args->first);
    }
    if (args->draws > 0 && args->weights == nullptr) return fail(AGK_NULL_POINTER, "%s: weights is missing", name);
    if (const int code = check_array(name, "turn", args->turn)) return code;
    if (const int code = check_array(name, "table", args->table)) return code;
    return check_array(name, "out", args->out);
}

}  // namespace agk
