/* SPDX-License-Identifier: MIT
 *
 * layers.h: the layers of a hybrid on a managed cache: attention by the library, the recurrence by
 * its view of the states (struct pkv_state_view). */
#ifndef HYBRID_LAYERS_H
#define HYBRID_LAYERS_H

#include "forward.h"
#include "hybrid.h"
#include "whole.h"

#include "pagedkv/step.h"

/* An open step. */
struct layers {
    const struct hybrid *hybrid;
    const struct activations *activations;
    pkv_cache *cache;
    pkv_step step;
    struct pkv_state_view states;
    float *state; /* [state_bytes]: at hand */
};

bool layers_create(const struct hybrid *hybrid, const struct activations *activations,
                   pkv_cache *cache, struct layers *layers);
void layers_free(struct layers *layers);

/* A step was opened; state_group is the group of the recurrent layers. */
bool layers_open(struct layers *layers, pkv_step step, int32_t state_group);

/* The states that row `row` begins with, before any layer has run. */
struct whole_entry layers_reads(const struct layers *layers, int32_t row);

/* An attend_fn with struct layers as its context. */
bool layers_attend(void *context, int32_t layer, const float *q, const float *k, const float *v,
                   float *out);

#endif
