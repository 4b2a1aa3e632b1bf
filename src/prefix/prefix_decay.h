/* SPDX-License-Identifier: MIT
 *
 * prefix_decay.h: when cached blocks lose their priority: for each group a heap of blocks, the
 * soonest first. A block that is used meanwhile may stay in it: what is due is looked at again.
 *
 *   deadline of a block in the heap >= deadline of the one above it
 *   block in place i of the heap  <=>  its heap_at = i + 1
 *
 * O(log blocks). */
#ifndef PKV_PREFIX_DECAY_H
#define PKV_PREFIX_DECAY_H

#include "prefix/prefix_index.h"

/* The block's deadline; 0 = none. */
void prefix_decay_set(struct prefix_index *index, int32_t group, int32_t block,
                      uint64_t deadline_ns);

/* Takes the block whose deadline is soonest out of the heap, if it is not after now_ns;
 * NO_BLOCK otherwise. */
int32_t prefix_decay_next(struct prefix_index *index, int32_t group, uint64_t now_ns);

#endif
