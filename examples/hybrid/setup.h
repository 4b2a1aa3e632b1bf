/* SPDX-License-Identifier: MIT
 *
 * setup.h: a cache for a hybrid, of a size and shape that a seed decides: small, so that requests
 * wait, are preempted, and lose what was cached of them. */
#ifndef HYBRID_SETUP_H
#define HYBRID_SETUP_H

#include "hybrid.h"

#include "pagedkv/cache.h"

/* The groups, in order. */
enum { GROUP_FULL, GROUP_WINDOW, GROUP_STATE, NUM_GROUPS };

struct setup {
    struct pkv_group_config groups[NUM_GROUPS];
    struct pkv_layer_config layers[HYBRID_LAYERS];
    struct pkv_cache_config config;
    int32_t max_rewind;
    bool has_trees;
    int32_t window, kept_prefix;
};

/* Everything but what the model decides; max_len is the longest text. */
void setup_draw(uint64_t seed, int32_t max_len, bool has_trees, struct setup *setup);

/* Creates the cache of a model with this setup's window. */
bool setup_create(struct setup *setup, const struct hybrid *hybrid, pkv_cache **cache);

#endif
