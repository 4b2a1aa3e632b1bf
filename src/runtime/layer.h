/* SPDX-License-Identifier: MIT
 *
 * layer.h: the layers of the model: which pages each reads, and what the open step has done. */
#ifndef PKV_RUNTIME_LAYER_H
#define PKV_RUNTIME_LAYER_H

#include "runtime/group.h"

#define LAYER_OF_STATES (-1) /* the owner of a layer that has no pages */

/* Constant after create but for the last two, which belong to the thread that drives the step.
 */
struct layer {
    int32_t group;
    int32_t num_heads;
    int32_t owner; /* the layer whose pages it reads: itself, an earlier one, or none */
    const struct pkv_attn_constants *constants;
    struct pkv_kv_view view;
    bool is_attended;       /* in the open step ... */
    uint64_t num_read_keys; /* ... and the keys read: a layer that shares pages may be again */
};

/* Fills layers [config->num_layers], and the largest number of heads of each group. The config is
 * the cache's own; its groups are built. */
enum pkv_status layer_build(struct layer *layers, const struct pkv_cache_config *config,
                            struct group *groups);

#endif
