/* SPDX-License-Identifier: MIT
 *
 * prepare.c: rotary embedding, and its order beside the norm. Both work in f32 and round nothing;
 * a key is rounded by its store, once. */
#include "attn/prepare.h"

#include "attn/norm.h"

/* Channel pairs (a, b) from rotary_offset on: (t, t + R/2) half-split, (2t, 2t + 1) interleaved.
 *     a' = a cos - b sin,   b' = b cos + a sin */
static void rotate(const struct pkv_attn_constants *c, float *x, const float *cosines,
                   const float *sines)
{
    const size_t half = (size_t)c->rope_width;
    const size_t step = c->rotary_mode == PKV_ROTARY_INTERLEAVED ? 2 : 1;
    const size_t apart = c->rotary_mode == PKV_ROTARY_INTERLEAVED ? 1 : half;
    float *first = x + c->rotary_offset;
    float *second = first + apart;
    for (size_t t = 0; t < half; t++) {
        const float a = first[t * step];
        const float b = second[t * step];
        first[t * step] = a * cosines[t] - b * sines[t];
        second[t * step] = b * cosines[t] + a * sines[t];
    }
}

static void rotate_at(const struct run *run, float *x, int64_t position, float *spare)
{
    const struct pkv_attn_constants *c = run->constants;
    if (c->rope_cos == NULL) {
        return;
    }
    const size_t width = (size_t)c->rope_width;
    const size_t at = (size_t)position * width * pkv_dtype_bytes(c->rope_dtype);
    run->kernels->widen(c->rope_dtype, (const char *)c->rope_cos + at, width, spare);
    run->kernels->widen(c->rope_dtype, (const char *)c->rope_sin + at, width, spare + width);
    rotate(c, x, spare, spare + width);
}

static void norm(const struct run *run, float *x, const void *weight, enum pkv_dtype weight_dtype)
{
    if (weight != NULL) {
        norm_head(run->kernels, x, (size_t)run->plan->shape.k_width, weight, weight_dtype,
                  run->constants->qk_norm_eps);
    }
}

void prepare_head(const struct run *run, float *x, int64_t position, const void *norm_weight,
                  enum pkv_dtype weight_dtype, float *spare)
{
    if (run->constants->norm_order == PKV_NORM_BEFORE_ROPE) {
        norm(run, x, norm_weight, weight_dtype);
        rotate_at(run, x, position, spare);
    } else {
        rotate_at(run, x, position, spare);
        norm(run, x, norm_weight, weight_dtype);
    }
}
