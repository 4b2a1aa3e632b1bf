/* SPDX-License-Identifier: MIT
 *
 * cached.h: a model on a managed cache: a group for each kind of layer (all keys, or a window), the
 * norms of queries and keys and rope applied by the cache, and attention for forward(). */
#ifndef SUPPORT_CACHED_H
#define SUPPORT_CACHED_H

#include "model.h"

#include "pagedkv/step.h"

/* Groups of a model's cache: layers of one window and kept prefix share one, in the order in which
 * they first occur. */
enum { CACHED_MAX_GROUPS = 8 };

/* Creates a cache for the model. Layers, geometry, windows and activation dtype follow from it and
 * need not be set in group and config; everything else is the caller's, and `group` (storage, cache
 * dtype, block size, blocks) counts for every group. Complains about a model with more than
 * CACHED_MAX_GROUPS kinds of layers. */
bool cached_create(const struct model *model, const struct pkv_group_config *group,
                   const struct pkv_cache_config *config, pkv_cache **cache);

/* The blocks of all groups, slots where storage is continuous, and how many of them are held. */
bool cached_usage(pkv_cache *cache, int32_t *num_blocks, int32_t *held);

/* No sequence lives any more: complains when an invariant is broken or a block is still held. */
bool cached_check_empty(pkv_cache *cache);

/* The context of cached_attend, an attend_fn: an open step. */
struct cached_step {
    pkv_cache *cache;
    pkv_step step;
};
bool cached_attend(void *context, int32_t layer, const float *q, const float *k, const float *v,
                   float *out);

#endif
