// Plain reference of guided_step: one element of the latent at a time.
#include "../check.h"
#include "number.h"

using namespace agk::host;

extern "C" int agk_guided_step_host(const agk_guided_step_args* args) {
    if (const int code = agk::check(args)) return code;
    const int64_t rows = args->height / agk::PATCH, columns = args->width / agk::PATCH;
    const int64_t elements = args->frames * args->channels * args->height * args->width;
    const float* c = args->coefficients;
    for (int64_t at = 0; at < elements; ++at) {
        const int64_t w = at % args->width, h = at / args->width % args->height;
        const int64_t channel = at / (args->width * args->height) % args->channels;
        const int64_t frame = at / (args->width * args->height * args->channels);
        const int64_t patch = (frame * rows + h / agk::PATCH) * columns + w / agk::PATCH;
        const int64_t feature = (channel * agk::PATCH + h % agk::PATCH) * agk::PATCH + w % agk::PATCH;
        const int64_t place = patch * args->channels * agk::PATCH * agk::PATCH + feature;
        const float first = get(args->patches, args->dtype, place);
        const float last = args->batch == 1 ? first : get(args->patches, args->dtype, elements + place);
        const float difference = last - first + c[3] * args->difference[at];
        const float v = last + c[2] * difference;
        const float x0 = c[0] * args->latent[at] - c[1] * v;
        args->latent[at] = c[4] * args->latent[at] + c[5] * x0 + c[6] * args->x0[at] + c[7] * args->noise[at];
        args->x0[at] = x0;
        args->difference[at] = difference;
    }
    return AGK_OK;
}
