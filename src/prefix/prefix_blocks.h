/* SPDX-License-Identifier: MIT
 *
 * prefix_blocks.h: the blocks of nodes. The index works on the pools of the groups: a block whose
 * reference count is zero and that has a node is free and cached at once. The class that it has in
 * its pool (alloc/block_pool.h) says how much it is worth keeping, and it is found until it is
 * taken. O(1). */
#ifndef PKV_PREFIX_BLOCKS_H
#define PKV_PREFIX_BLOCKS_H

#include "prefix/prefix_order.h"

/* Does a retention point (prefix_retain.h) cover this node's block of the group? */
static inline bool prefix_index_covers(const struct prefix_index *index, int32_t group,
                                       int32_t node)
{
    return index->nodes.nodes[node].distance < index->window_nodes[group];
}

/* Block of a node in a group, NO_BLOCK when it has none or is stale. */
int32_t prefix_index_block(const struct prefix_index *index, struct prefix_ref node, int32_t group);

/* The node that names this block; PREFIX_ROOT when none does. */
struct prefix_ref prefix_index_node_of(const struct prefix_index *index, int32_t group,
                                       int32_t block);

/* Makes a held block, which has no node and ends at this one, the node's block of the group, and
 * returns it; when the
 * node has another already, changes nothing and returns that (the canonical one: the caller takes a
 * reference with block_pool_hold, rewrites its table, and drops its own). NO_BLOCK for a stale
 * or flushed node. */
int32_t prefix_index_attach(struct prefix_index *index, struct prefix_ref node, int32_t group,
                            int32_t block);

/* Loads what attaching writes of a block. */
static inline void prefix_index_prefetch_block(const struct prefix_index *index, int32_t group,
                                               int32_t block)
{
    PKV_PREFETCH(&index->block_nodes[group][block]);
    PKV_PREFETCH(&index->block_uses[group][block]);
}

/* A block of the group's pool with a count of one, the next in the order of eviction, taken from
 * its node if it had one; NO_BLOCK when none is free. */
int32_t prefix_index_take(struct prefix_index *index, int32_t group);

/* Takes the next cached block of the group, in the order of eviction, from its node, and returns
 * it: it is free as before, and cached no more. NO_BLOCK when no block of priority 0 is cached. */
int32_t prefix_index_evict_early(struct prefix_index *index, int32_t group);

/* One reference less; true when the block is free now. Its class: that of its node's priority, or,
 * when is_out_of_window (released because no query of the sequence sees it any more) and no
 * retention point covers it, out of the window. Drop a sequence's blocks last block first, so that
 * leaves are evicted before parents. */
bool prefix_index_drop(struct prefix_index *index, int32_t group, int32_t block,
                       bool is_out_of_window);

/* The clock, which never goes back: blocks that were free for as long as their claim lasts count as
 * of priority 0 from now on. O(log blocks) for each of them. */
void prefix_index_set_time(struct prefix_index *index, uint64_t now_ns);

/* Takes a block, held or free, from its node: its content is not found any more. A block without a
 * node is left alone. */
void prefix_index_detach(struct prefix_index *index, int32_t group, int32_t block);

/* For the module: takes from its node the cached block that is least worth keeping, and with it
 * nodes that nothing needs any more. False when no block is cached. */
bool prefix_blocks_evict(struct prefix_index *index);

/* For the module: the class of priority of a block that has a node. */
int32_t prefix_blocks_class(const struct prefix_index *index, int32_t group, int32_t block);

/* For the module: does a free block that has a node have the class of those that left a window,
 * whatever its priority? */
bool prefix_blocks_is_out_of_window(const struct prefix_index *index, int32_t group, int32_t block);

/* For the module: takes all blocks from a node, which may be freed then, and counts them. */
void prefix_blocks_detach_all(struct prefix_index *index, int32_t node, struct prefix_swept *swept);

/* For the module: the node's free blocks out of a window that are covered now leave that class. */
void prefix_blocks_protect(struct prefix_index *index, int32_t node);

/* For the module: the node has another priority; its free blocks change their class, but those out
 * of a window stay. */
void prefix_blocks_reclass(struct prefix_index *index, int32_t node);

/* For the module: the node's priority was above 0 and is 0 now. The same, but blocks that counted
 * as of priority 0 already keep their place before those of its ancestors. */
void prefix_blocks_lower(struct prefix_index *index, int32_t node);

#endif
