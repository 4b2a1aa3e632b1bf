/* SPDX-License-Identifier: MIT
 *
 * step_select.h: a layer of the open step that reads selected blocks alone. Its lists are its own,
 * so it is planned for itself. */
#ifndef PKV_RUNTIME_STEP_SELECT_H
#define PKV_RUNTIME_STEP_SELECT_H

#include "attn/selection.h"
#include "runtime/cache.h"

/* Checks what io says of selected blocks, but for the lists' entries. PKV_INVALID_ARGUMENT;
 * PKV_UNSUPPORTED beside a tree of drafts. O(rows + tokens). */
enum pkv_status step_select_check(const pkv_cache *cache, int32_t layer,
                                  const struct pkv_layer_io *io);

/* Checks the entries and makes the cache's selected_plan that of the layer. The step has tokens.
 * PKV_INVALID_ARGUMENT, PKV_NO_MEMORY. O(blocks listed), and what splitting takes. */
enum pkv_status step_select_plan(pkv_cache *cache, int32_t layer, const struct pkv_layer_io *io);

#endif
