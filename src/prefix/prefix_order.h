/* SPDX-License-Identifier: MIT
 *
 * prefix_order.h: which cached block of a pool is evicted next, and what a group learns from
 * prompts that come again.
 *
 * To evict what was unused longest is right while most prompts come again before it is their turn.
 * When most come later, as chats strictly in turn do whose ends do not all fit, it finds nothing:
 * each is evicted shortly before its turn. Then a part of them must stay while the others
 * come and go. So each priority has three classes, and of their blocks the one that counts as freed
 * first is taken:
 *
 *   shared    an admission adopted it that went another way from there than those before it: counts
 *             as freed after as many blocks more had become free as twice the pool has
 *   settled   likewise after half the pool; while most prompts come late, twice the pool
 *   passing   as it is
 *
 * So prompts that are used once do not push out what many use, and nothing is kept for ever.
 *
 * Settled are other blocks that an admission adopts, and all that a sequence holds when it ends
 *
 *   that went on from the end of what another had held (a chat's next turn), and adopted that
 *   that went on from such an end and found it lost, if there is room
 *   any, if there is room and most prompts come late
 *
 * There is room while settled and shared blocks are no more than all that were cached when one of
 * these had to be evicted last, or a settled one is overdue: counts as freed by now. So what stays
 * is what was there first, until it is not used for the time that it is given. A sequence settles
 * whole, for no block may outlive one that comes before it.
 *
 * Each admission votes, in each group, with the interval since the last node of its prompt that is
 * known was used there, counted in blocks that became free: late when that is more than were cached
 * when one had to be evicted last. A vote for soon counts twice. No clock and no chance: the same
 * calls make the same order. O(1). */
#ifndef PKV_PREFIX_ORDER_H
#define PKV_PREFIX_ORDER_H

#include "prefix/prefix_index.h"

/* Classes of free blocks; the lowest is taken first: blocks without a node; those with one that
 * left a window and that no retention point covers; the others, by priority. */
enum {
    PREFIX_CLASS_UNINDEXED = 0,
    PREFIX_CLASS_OUT_OF_WINDOW = 1, /* and those of tails, and of nodes to evict first */
    PREFIX_CLASS_PRIORITY = 2       /* + that of the node * PREFIX_NUM_STANDINGS + standing */
};
_Static_assert(PREFIX_CLASS_PRIORITY + PREFIX_NUM_STANDINGS * PKV_NUM_PRIORITIES ==
                   BLOCK_POOL_NUM_CLASSES,
               "a pool has as many classes as the index uses");

/* Blocks of a pool that are free and have a node. */
static inline int32_t prefix_num_cached(const pkv_pool *pool)
{
    return pkv_pool_num_free(pool) - block_pool_num_free(pool, PREFIX_CLASS_UNINDEXED);
}

/* Do most prompts come again late? */
static inline bool prefix_order_is_late(const struct prefix_index *index, int32_t group)
{
    return index->eviction[group].lateness >= 0;
}

/* The class that is taken from next; and that of the cached block that is evicted next, which is
 * PREFIX_CLASS_UNINDEXED when none is cached. */
int32_t prefix_order_next_class(const struct prefix_index *index, int32_t group);
int32_t prefix_order_next_cached(const struct prefix_index *index, int32_t group);

/* A block is about to come into a class of priority: now is when it was freed. */
void prefix_order_stamp(struct prefix_index *index, int32_t group, int32_t block);

/* A block is about to be taken from a class of priority. */
void prefix_order_evicts(struct prefix_index *index, int32_t group);

/* An admission found `node`, and no node of its prompt below it. Stale refs and the root are
 * ignored. O(groups). */
void prefix_index_meet(struct prefix_index *index, struct prefix_ref node);

/* Is there room for so many more settled blocks of a priority? */
bool prefix_index_has_room(const struct prefix_index *index, int32_t group, int32_t priority,
                           int32_t num_blocks);

/* A block, which is held, is of this standing from now on, if its own is lower. It is passing again
 * when it is published anew. */
void prefix_index_settle(struct prefix_index *index, int32_t group, int32_t block,
                         enum prefix_standing standing);

#endif
