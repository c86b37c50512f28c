// Checks of the VAE's operators.
#include <cinttypes>

#include "check.h"
#include "check_parts.h"

namespace agk {

int check(const agk_pixels_args* args) {
    const char* name = "pixels";
    if (const int code = check_struct(name, args)) return code;
    if (const int code = check_activations(name, args->dtype)) return code;
    if (const int code = check_array(name, "x", args->x)) return code;
    if (const int code = check_array(name, "out", args->out)) return code;
    if (args->frames <= 0 || args->height <= 0 || args->width <= 0) {
        return fail(AGK_BAD_SHAPE, "%s: frames %" PRId64 ", height %" PRId64 ", width %" PRId64
                    ": expected positive sizes", name, args->frames, args->height, args->width);
    }
    if (args->width % PIXELS_PER_THREAD != 0) {
        return fail(AGK_UNALIGNED_WIDTH, "%s: width %" PRId64 ": expected a multiple of %d", name, args->width,
                    PIXELS_PER_THREAD);
    }
    if (args->out_channels != 3 && args->out_channels != 4) {
        return fail(AGK_BAD_SHAPE, "%s: out_channels %d: expected 3 or 4", name, args->out_channels);
    }
    for (int i = 0; i < args->out_channels; ++i) {
        if (args->order[i] < 0 || args->order[i] > 3) {
            return fail(AGK_BAD_SHAPE, "%s: order[%d] is %d: expected 0 (R) to 3 (A)", name, i, args->order[i]);
        }
    }
    return AGK_OK;
}

int check(const agk_spatial_norm_args* args) {
    const char* name = "spatial_norm";
    if (const int code = check_struct(name, args)) return code;
    if (const int code = check_activations(name, args->dtype)) return code;
    const int64_t sizes[] = {args->frames, args->height, args->width, args->channels, args->groups,
                             args->latent_frames, args->latent_height, args->latent_width};
    for (const int64_t size : sizes) {
        if (size <= 0) return fail(AGK_BAD_SHAPE, "%s: size of %" PRId64 ": expected positive sizes", name, size);
    }
    const int64_t bytes = args->channels * dtype_bytes(args->dtype);
    if (bytes % VECTOR_BYTES != 0 || args->channels % (4 * args->groups) != 0) {
        return fail(AGK_UNALIGNED_WIDTH, "%s: %" PRId64 " channels in %" PRId64
                    " groups: expected a multiple of 16 bytes and of 4 channels per group", name, args->channels,
                    args->groups);
    }
    if (bytes > MAX_ROW_BYTES) {
        return fail(AGK_TOO_WIDE, "%s: channels %" PRId64 " are %" PRId64 " bytes: expected at most %" PRId64, name,
                    args->channels, bytes, MAX_ROW_BYTES);
    }
    const bool lone = args->frames > 1 && args->frames % 2 == 1;
    const int64_t frames = args->frames - lone, latent_frames = args->latent_frames - lone;
    if (latent_frames <= 0 || frames % latent_frames != 0 || args->height % args->latent_height != 0 ||
        args->width % args->latent_width != 0) {
        return fail(AGK_BAD_SHAPE, "%s: frames %" PRId64 ", height %" PRId64 ", width %" PRId64
                    ": expected multiples of the latent's (%" PRId64 ", %" PRId64 ", %" PRId64
                    "), without the first frame if the number is odd", name, args->frames, args->height, args->width,
                    args->latent_frames, args->latent_height, args->latent_width);
    }
    // Positions are counted in 32 bits, and the loops overrun the last.
    const int64_t positions = args->frames * args->height * args->width;
    if (positions > INT32_MAX / 2) {
        return fail(AGK_BAD_SHAPE, "%s: %" PRId64 " positions: expected fewer than 2^30", name, positions);
    }
    const struct { const char* what; const void* array; } arrays[] = {
        {"x", args->x},           {"scale", args->scale}, {"shift", args->shift}, {"weight", args->weight},
        {"bias", args->bias},     {"out", args->out},     {"workspace", args->workspace},
    };
    for (const auto& each : arrays) {
        if (const int code = check_array(name, each.what, each.array)) return code;
    }
    if (args->x_bias != nullptr) {
        if (const int code = check_array(name, "x_bias", args->x_bias)) return code;
    }
    if (!(args->epsilon > 0.0f)) return fail(AGK_BAD_SHAPE, "%s: epsilon %g: expected above 0", name, args->epsilon);
    const int64_t needed = args->groups * AGK_GROUP_WORKSPACE;
    if (args->workspace_bytes >= needed) return AGK_OK;
    return fail(AGK_SMALL_WORKSPACE, "%s: workspace_bytes %" PRId64 ": expected %" PRId64, name, args->workspace_bytes, needed);
}

}  // namespace agk
