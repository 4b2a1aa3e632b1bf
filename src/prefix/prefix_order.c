/* SPDX-License-Identifier: MIT
 *
 * Where prompts come at random, a longest unused order loses little, and one that keeps a part can
 * lose much: a vote for the former outweighs one against it. Where they come in turn, all agree. */
#include "prefix/prefix_order.h"

#include "base/error.h"
#include "base/minmax.h"

static int64_t num_blocks_of(const struct prefix_index *index, int32_t group)
{
    return pkv_pool_num_blocks(index->pools[group]);
}

/* So much later a block counts as freed. */
static int64_t hold_of(const struct prefix_index *index, int32_t group, int32_t standing)
{
    const int64_t num_blocks = num_blocks_of(index, group);
    if (standing == PREFIX_PASSING) {
        return 0;
    }
    const bool is_long = standing == PREFIX_SHARED || prefix_order_is_late(index, group);
    return is_long ? 2 * num_blocks : num_blocks / 2;
}

/* --- taking */

/* When a block of a class counts as freed; INT64_MAX for an empty class. */
static int64_t oldest_in(const struct prefix_index *index, int32_t group, int32_t class)
{
    const int32_t block = block_pool_head(index->pools[group], class);
    const struct prefix_use *uses = index->block_uses[group];
    if (block == NO_BLOCK) {
        return INT64_MAX;
    }
    return uses[block].stamp + hold_of(index, group, uses[block].standing);
}

int32_t prefix_order_next_class(const struct prefix_index *index, int32_t group)
{
    const bool has_plain = block_pool_head(index->pools[group], PREFIX_CLASS_UNINDEXED) != NO_BLOCK;
    return has_plain ? PREFIX_CLASS_UNINDEXED : prefix_order_next_cached(index, group);
}

int32_t prefix_order_next_cached(const struct prefix_index *index, int32_t group)
{
    if (block_pool_head(index->pools[group], PREFIX_CLASS_OUT_OF_WINDOW) != NO_BLOCK) {
        return PREFIX_CLASS_OUT_OF_WINDOW;
    }
    for (int32_t class = PREFIX_CLASS_PRIORITY; class < BLOCK_POOL_NUM_CLASSES;
         class += PREFIX_NUM_STANDINGS) {
        int32_t best = PREFIX_PASSING;
        int64_t oldest = oldest_in(index, group, class);
        for (int32_t standing = PREFIX_SETTLED; standing < PREFIX_NUM_STANDINGS; standing++) {
            const int64_t other = oldest_in(index, group, class + standing);
            best = other < oldest ? standing : best;
            oldest = min_i64(oldest, other);
        }
        if (oldest != INT64_MAX) {
            return class + best;
        }
    }
    return PREFIX_CLASS_UNINDEXED;
}

void prefix_order_evicts(struct prefix_index *index, int32_t group)
{
    const pkv_pool *pool = index->pools[group];
    index->eviction[group].capacity =
        prefix_num_cached(pool) - block_pool_num_free(pool, PREFIX_CLASS_OUT_OF_WINDOW);
}

/* --- settling */

void prefix_order_stamp(struct prefix_index *index, int32_t group, int32_t block)
{
    const int32_t node = index->block_nodes[group][block] - 1;
    const int64_t stamp = index->eviction[group].clock++;
    index->block_uses[group][block].stamp = stamp;
    prefix_node_used(&index->nodes, node)[group] = (uint32_t)stamp;
}

bool prefix_index_has_room(const struct prefix_index *index, int32_t group, int32_t priority,
                           int32_t num_blocks)
{
    const struct prefix_eviction *order = &index->eviction[group];
    const int32_t first = PREFIX_CLASS_PRIORITY + PREFIX_NUM_STANDINGS * priority;
    int64_t num_settled = num_blocks;
    for (int32_t class = PREFIX_CLASS_PRIORITY; class < BLOCK_POOL_NUM_CLASSES; class ++) {
        const bool is_passing = (class - first) % PREFIX_NUM_STANDINGS == PREFIX_PASSING;
        num_settled += is_passing ? 0 : block_pool_num_free(index->pools[group], class);
    }
    return num_settled <= order->capacity ||
           oldest_in(index, group, first + PREFIX_SETTLED) < order->clock;
}

void prefix_index_settle(struct prefix_index *index, int32_t group, int32_t block,
                         enum prefix_standing standing)
{
    struct prefix_use *use = &index->block_uses[group][block];
    pkv_assert(block_pool_class(index->pools[group], block) == BLOCK_POOL_HELD);
    use->standing = (uint8_t)max_i32(use->standing, (int32_t)standing);
}

/* --- voting */

/* Does a hit that ends here need this block of the group itself, whatever follows? */
static bool is_end_in(const struct prefix_index *index, int32_t group,
                      const struct prefix_node *node)
{
    return index->window_nodes[group] == 0 || node->distance <= 0 || node->num_continued == 0;
}

static void vote(struct prefix_eviction *order, uint32_t used)
{
    const uint32_t interval = (uint32_t)order->clock - used;
    order->lateness = (int8_t)(interval > (uint32_t)order->capacity
                                   ? min_i32(order->lateness + 1, PREFIX_ORDER_MAX_LATENESS)
                                   : max_i32(order->lateness - 2, -PREFIX_ORDER_MAX_LATENESS));
}

void prefix_index_meet(struct prefix_index *index, struct prefix_ref ref)
{
    const struct prefix_node *node = prefix_node_at(&index->nodes, ref);
    for (int32_t group = 0; node != NULL && group < index->nodes.num_groups; group++) {
        const int32_t block = prefix_node_blocks(&index->nodes, ref.index)[group];
        const uint32_t used = prefix_node_used(&index->nodes, ref.index)[group];
        const bool is_held =
            block != NO_BLOCK && block_pool_class(index->pools[group], block) == BLOCK_POOL_HELD;
        if (used != 0 && !is_held && is_end_in(index, group, node)) {
            vote(&index->eviction[group], used);
        }
    }
}
