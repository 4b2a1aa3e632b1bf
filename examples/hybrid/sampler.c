/* SPDX-License-Identifier: MIT
 *
 * sampler.c: the Gumbel-max rule. */
#include "sampler.h"

#include "dice.h"

#include <math.h>

/* -ln(-ln(u)) with u in (0, 1). */
static float noise_of(uint64_t seed, int32_t position, int32_t id)
{
    const uint64_t bits = dice_mix(dice_mix(seed, (uint64_t)position), (uint64_t)id);
    const double u = ((double)(bits >> 12) + 0.5) / 4503599627370496.0;
    return (float)-log(-log(u));
}

int32_t sampler_choose(const struct sampler *sampler, const float *logits, int32_t count,
                       int32_t position, float *lead)
{
    int32_t best = 0;
    float first = -INFINITY;
    float second = -INFINITY;
    for (int32_t id = 0; id < count; id++) {
        float x = logits[id];
        if (sampler->temperature > 0) {
            x += sampler->temperature * noise_of(sampler->seed, position, id);
        }
        if (!isfinite(x)) {
            *lead = NAN;
            return id;
        }
        if (x > first) {
            second = first;
            first = x;
            best = id;
        } else if (x > second) {
            second = x;
        }
    }
    *lead = first - second;
    return best;
}
