/* SPDX-License-Identifier: MIT
 *
 * state_publish.h: states in the prefix index. A state of a length that is to become a snapshot is
 * the block of the node that ends there, in its group. The mutex is held. */
#ifndef PKV_RUNTIME_STATE_PUBLISH_H
#define PKV_RUNTIME_STATE_PUBLISH_H

#include "runtime/cache.h"

/* `node`, new or found, ends the first `length` tokens of the sequence: its states of that length
 * become snapshots. O(state groups), and with segment_tokens O(blocks of a segment). */
void state_publish(pkv_cache *cache, int32_t seq, int32_t length, struct prefix_ref node);

/* The sequence, which is empty, adopts the states of a node that ends `length` tokens. O(state
 * groups). */
void state_publish_adopt(pkv_cache *cache, int32_t seq, int32_t length, struct prefix_ref node,
                         enum prefix_standing standing);

#endif
