/* SPDX-License-Identifier: MIT
 *
 * step_layer.h: one layer of the open step, checked, as attention takes it. */
#ifndef PKV_RUNTIME_STEP_LAYER_H
#define PKV_RUNTIME_STEP_LAYER_H

#include "attn/gqa_layer.h"
#include "runtime/cache.h"

/* Checks all arguments of a call that runs or begins a layer, and fills *prepared and *plan, by
 * which the layer is run: its group's, or the cache's selected_plan, which is then planned.
 * Nothing else changes. PKV_STALE_HANDLE, PKV_INVALID_ARGUMENT; PKV_UNSUPPORTED and PKV_NO_MEMORY
 * with lists of selected blocks. */
enum pkv_status step_layer_prepare(pkv_cache *cache, pkv_step step, int32_t layer,
                                   const struct pkv_layer_io *given, struct gqa_layer *prepared,
                                   const pkv_plan **plan);

#endif
