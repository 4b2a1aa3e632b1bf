/* SPDX-License-Identifier: MIT
 *
 * tile_mask.h: queries against one tile of keys under the layer's mask. */
#ifndef PKV_ATTN_TILE_MASK_H
#define PKV_ATTN_TILE_MASK_H

#include "attn/run.h"
#include "attn/scratch.h"

/* Queries [q0, q1) of the task against keys [from, to) of a tile, each query head with the keys
 * that the mask leaves to it. */
void tile_mask_attend(const struct run *run, const struct plan_task *task, int32_t from, int32_t to,
                      const struct scratch *s);

#endif
