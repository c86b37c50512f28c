// Plain references of pixels and spatial_norm: one element at a time, statistics in float64.
#include <cmath>
#include <vector>

#include "../check.h"
#include "number.h"

using namespace agk::host;

extern "C" int agk_pixels_host(const agk_pixels_args* args) {
    if (const int code = agk::check(args)) return code;
    const int64_t pixels = args->frames * args->height * args->width;
    for (int64_t position = 0; position < pixels; ++position) {
        uint8_t colours[4] = {0, 0, 0, 255};
        for (int64_t channel = 0; channel < 3; ++channel) {
            const float unit = (get(args->x, args->dtype, position * 3 + channel) + 1.0f) / 2.0f;
            colours[channel] = static_cast<uint8_t>(std::fmin(std::fmax(unit, 0.0f), 1.0f) * 255.0f);
        }
        const int64_t column = position % args->width, row = position / args->width % args->height;
        const int64_t frame = position / (args->width * args->height);
        const int64_t to = (frame * args->height + (args->flip ? args->height - 1 - row : row)) * args->width + column;
        for (int channel = 0; channel < args->out_channels; ++channel) {
            args->out[to * args->out_channels + channel] = colours[args->order[channel]];
        }
    }
    return AGK_OK;
}

extern "C" int agk_spatial_norm_host(const agk_spatial_norm_args* args) {
    if (const int code = agk::check(args)) return code;
    const int64_t channels = args->channels, positions = args->frames * args->height * args->width;
    const int64_t group_width = channels / args->groups;
    std::vector<double> mean(static_cast<size_t>(args->groups), 0.0), variance = mean;
    const double count = static_cast<double>(positions * group_width);
    const auto biased = [&](int64_t at) {
        const double bias = args->x_bias == nullptr ? 0.0 : args->x_bias[at % channels];
        return get(args->x, args->dtype, at) + bias;
    };
    for (int64_t at = 0; at < positions * channels; ++at) mean[at % channels / group_width] += biased(at) / count;
    for (int64_t at = 0; at < positions * channels; ++at) {
        const double delta = biased(at) - mean[at % channels / group_width];
        variance[at % channels / group_width] += delta * delta / count;
    }
    const int64_t lone = args->frames > 1 && args->frames % 2 == 1;
    for (int64_t position = 0; position < positions; ++position) {
        const int64_t column = position % args->width, row = position / args->width % args->height;
        const int64_t frame = position / (args->width * args->height);
        const int64_t latent_frame = frame < lone ? 0
            : lone + (frame - lone) * (args->latent_frames - lone) / (args->frames - lone);
        const int64_t latent_row = row * args->latent_height / args->height;
        const int64_t latent_column = column * args->latent_width / args->width;
        const int64_t cell = (latent_frame * args->latent_height + latent_row) * args->latent_width + latent_column;
        for (int64_t channel = 0; channel < channels; ++channel) {
            const int64_t at = position * channels + channel, group = channel / group_width;
            const double deviation = 1.0 / std::sqrt(variance[group] + args->epsilon);
            double value = (biased(at) - mean[group]) * deviation;
            value = value * args->weight[channel] + args->bias[channel];
            value = value * get(args->scale, args->dtype, cell * channels + channel) +
                    get(args->shift, args->dtype, cell * channels + channel);
            put(args->out, args->dtype, at, static_cast<float>(value / (1.0 + std::exp(-value))));
        }
    }
    return AGK_OK;
}
