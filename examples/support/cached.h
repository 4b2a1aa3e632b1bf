/* SPDX-License-Identifier: MIT
 *
 * cached.h: a model on a managed cache: one group that all its layers share, rope applied by the
 * cache, and attention for forward(). */
#ifndef SUPPORT_CACHED_H
#define SUPPORT_CACHED_H

#include "model.h"

#include "pagedkv/step.h"

/* Creates a cache for the model. Geometry, layers and activation dtype follow from it and need not
 * be set in group and config; everything else is the caller's. */
bool cached_create(const struct model *model, const struct pkv_group_config *group,
                   const struct pkv_cache_config *config, pkv_cache **cache);

/* No sequence lives any more: complains when an invariant is broken or a block still held. */
bool cached_check_empty(pkv_cache *cache);

/* The context of cached_attend, an attend_fn: an open step. */
struct cached_step {
    pkv_cache *cache;
    pkv_step step;
};
bool cached_attend(void *context, int32_t layer, const float *q, const float *k, const float *v,
                   float *out);

#endif
