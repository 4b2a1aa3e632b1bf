/* SPDX-License-Identifier: MIT
 *
 * prefix_match.h: finding: the nodes of a prompt, and how many of them every group can go on from.
 * Nothing here changes an index but its count of collisions: no order, no holder. */
#ifndef PKV_PREFIX_MATCH_H
#define PKV_PREFIX_MATCH_H

#include "prefix/prefix_run.h"
#include "prefix/prefix_scope.h"

/* The node with this content under parent, PREFIX_ROOT when there is none (or parent is stale, or
 * namespace_id is PREFIX_NONE). tokens [block_size]; extra [block_size] or NULL, and zeros are the
 * same as NULL. */
struct prefix_ref prefix_index_find(struct prefix_index *index, struct prefix_ref parent,
                                    int32_t namespace_id, const int32_t *tokens,
                                    const uint64_t *extra);

/* The longest chain of nodes for the first max_blocks full blocks of tokens [max_blocks *
 * block_size], into nodes [max_blocks]; returns its length. Stops at the first missing node,
 * whether the nodes before have blocks or not: that is for residency, below. A sequence from before
 * a flush of its namespace (prefix_index_is_current) must not be matched. */
int32_t prefix_index_match(struct prefix_index *index, const struct prefix_scope *scope,
                           const int32_t *tokens, const uint64_t *extra, int32_t max_blocks,
                           struct prefix_ref *nodes);

/* Of the block that follows the chain of nodes up to `parent` (PREFIX_ROOT for none), as number
 * `block` of a prompt: how many of its first tokens [max_tokens] some node under parent has that
 * has a block in every group, at most. *node is that node; 0 and PREFIX_ROOT when there is none.
 * For an index with config.finds_partial. O(block_size * log(nodes under parent)), expected. */
int32_t prefix_index_match_start(const struct prefix_index *index, const struct prefix_scope *scope,
                                 struct prefix_ref parent, int32_t block, const int32_t *tokens,
                                 const uint64_t *extra, int32_t max_tokens,
                                 struct prefix_ref *node);

/* How many leading nodes h of a matched chain can be adopted: the largest h <= count such that in
 * every group a block ends there, and the blocks of keys [0, min(kept_prefix, h * block_size)),
 * and of those that a query at h * block_size sees, are there. windows [num_groups]. *furthest, if
 * not NULL, is the largest h for which that is so in some group. O(count * groups). */
int32_t prefix_index_resident(struct prefix_index *index, const struct prefix_ref *nodes,
                              int32_t count, const struct prefix_window *windows,
                              int32_t *furthest);

/* The same of one group alone, whatever the others have. O(count). */
int32_t prefix_index_resident_in(const struct prefix_index *index, const struct prefix_ref *nodes,
                                 int32_t count, int32_t group, const struct prefix_window *window);

#endif
