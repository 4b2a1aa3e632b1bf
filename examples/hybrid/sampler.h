/* SPDX-License-Identifier: MIT
 *
 * sampler.h: the next token by the Gumbel-max rule (Maddison et al., arXiv:1411.0030): the largest
 * of logit + temperature * noise, whose noise is a function of seed, position and id. So a choice
 * is as certain as its lead over the second is above the rounding of logits, with temperature 0
 * (the largest logit) and others alike. */
#ifndef HYBRID_SAMPLER_H
#define HYBRID_SAMPLER_H

#include <stdint.h>

struct sampler {
    float temperature; /* >= 0 */
    uint64_t seed;
};

/* The token at `position` after one whose logits [count] these are; *lead is by how much it is
 * before the second. A logit that is not finite makes the lead NaN. */
int32_t sampler_choose(const struct sampler *sampler, const float *logits, int32_t count,
                       int32_t position, float *lead);

#endif
