/* SPDX-License-Identifier: MIT
 *
 * prefix_siblings.h: the nodes under one parent in the order of their contents, for hits that end
 * inside a block: of all blocks that may follow a prefix, the one that has the most first tokens in
 * common with a prompt is a neighbour of that prompt in this order.
 *
 * Ordered are those nodes that have a block in every group, by namespace, then by tokens and
 * extras, one after the other:
 *
 *   parent -- [5 6 7 8]  [5 6 9 1]  [7 7 7 7]       a prompt that goes on with 5 6 8 ..
 *                     ^ ^                           lies here: two tokens in common with either
 *
 * The nodes of one parent are a binary search tree whose shape follows from hashes of their keys,
 * mixed with the table's seed, so that contents cannot be chosen that make it deep; no answer
 * depends on the shape. Links are index + 1, as those of the buckets.
 *
 * O(block_size * log(siblings)), expected. */
#ifndef PKV_PREFIX_SIBLINGS_H
#define PKV_PREFIX_SIBLINGS_H

#include "prefix/prefix_node.h"

/* The first tokens of a block that a prompt goes on with. */
struct prefix_start {
    struct prefix_ref parent; /* PREFIX_ROOT for the first block */
    int32_t namespace_id;
    const int32_t *tokens; /* [num_tokens] */
    const uint64_t *extra; /* [num_tokens], NULL when it is all zeros */
    int32_t num_tokens;    /* at most block_size */
};

/* A node joins its siblings, or leaves them. Its parent is not stale. */
void prefix_siblings_add(struct prefix_node_table *table, int32_t node);
void prefix_siblings_remove(struct prefix_node_table *table, int32_t node);

/* The live node that has the most first tokens in common with `start`; of several the last before
 * it in the order, or else the first behind it. PREFIX_NONE, and *num_common 0, when none has any.
 * While a flush is under way, one beside nodes that were flushed and not swept yet may be missed.
 */
int32_t prefix_siblings_nearest(const struct prefix_node_table *table,
                                const struct prefix_start *start, int32_t *num_common);

/* The tail, just before a node in the order, that is the beginning of it: whatever is found there
 * is found in the node too. PREFIX_NONE when there is none. */
int32_t prefix_siblings_covered(const struct prefix_node_table *table, int32_t node);

/* For the checker: is the node where its order says? Looks at no more than max_steps nodes. */
bool prefix_siblings_has(const struct prefix_node_table *table, int32_t node, int32_t max_steps);

#endif
