/* SPDX-License-Identifier: MIT
 *
 * prefix_claim.h: the priority of nodes, and how long it lasts. A claim is a priority, and the time
 * after which it counts as 0 for a block that was free for so long (0 = never). A node has the
 * highest priority and the longest time of all claims above 0 on it or below, so that no block's
 * priority ends before that of what goes on from it. */
#ifndef PKV_PREFIX_CLAIM_H
#define PKV_PREFIX_CLAIM_H

#include "prefix/prefix_index.h"

/* Makes a claim on a node (a tail has none) and all its ancestors; their free blocks become the
 * last of their new class, but those out of a window stay. For keeping leaves before parents in the
 * order of eviction, hold the blocks (admit: adopt, then claim). O(nodes that change). Stale refs
 * and the root are ignored. */
void prefix_index_claim(struct prefix_index *index, struct prefix_ref node, int32_t priority,
                        uint64_t retention_ns);

/* The same for ever. */
void prefix_index_raise(struct prefix_index *index, struct prefix_ref node, int32_t priority);

/* Gives a node another priority, PREFIX_EVICT_FIRST included, for ever: a higher one to its
 * ancestors too, a lower one only as far as no child has a higher one. An ancestor's own priority
 * lasts for ever then too, if this one is above 0. True when it changed. O(nodes that change). */
bool prefix_index_set_priority(struct prefix_index *index, struct prefix_ref node,
                               int32_t priority);

/* The free blocks of a chain, from the root on, become the last of their classes, leaves before
 * parents: after priorities within it were raised, or were lowered to one above 0. O(count). */
void prefix_index_touch(struct prefix_index *index, const struct prefix_ref *nodes, int32_t count);

#endif
