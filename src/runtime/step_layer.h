/* SPDX-License-Identifier: MIT
 *
 * step_layer.h: one layer of the open step, checked, as attention takes it. */
#ifndef PKV_RUNTIME_STEP_LAYER_H
#define PKV_RUNTIME_STEP_LAYER_H

#include "attn/gqa_layer.h"
#include "runtime/cache.h"

/* Checks all arguments of a call that runs or begins a layer, and fills *prepared; nothing else
 * changes. PKV_STALE_HANDLE, PKV_INVALID_ARGUMENT. */
enum pkv_status step_layer_prepare(pkv_cache *cache, pkv_step step, int32_t layer,
                                   const struct pkv_layer_io *given, struct gqa_layer *prepared);

/* The plan by which the layer is run, of its group. */
static inline const pkv_plan *step_layer_plan(const pkv_cache *cache, int32_t layer)
{
    return cache->groups[cache->layers[layer].group].step.plan;
}

#endif
