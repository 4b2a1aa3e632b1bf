/* SPDX-License-Identifier: MIT
 *
 * dense.h: one sequence's keys and values in two plain f32 arrays, with attention by plain loops in
 * double, and nothing of the library. */
#ifndef SUPPORT_DENSE_H
#define SUPPORT_DENSE_H

#include "model.h"

/* k and v are [num_layers][capacity][kv_dim]. The caller sets position, that of the token at hand;
 * positions come one after the other, from 0 on. */
struct dense_cache {
    const struct model *model;
    const struct model_layer *layer; /* at hand */
    int32_t position;
    int32_t capacity;
    float *k;
    float *v;
    double *weights; /* [capacity] */
    float *q;        /* [q_dim], the rotated query */
};

/* Complains about a model that norms heads or turns other pairs of channels than adjacent ones. */
bool dense_create(const struct model *model, int32_t capacity, struct dense_cache *cache);
void dense_free(struct dense_cache *cache);

/* Appends and attends one token at `position`: an attend_fn (forward.h) with a dense_cache as its
 * context. */
bool dense_attend(void *context, int32_t layer, const float *q, const float *k, const float *v,
                  float *out);

#endif
