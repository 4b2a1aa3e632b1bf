/* SPDX-License-Identifier: MIT
 *
 * A block gets its node in prefix_index_attach and loses it in part, the two places that keep both
 * directions of the relation, count, and call the observer. */
#include "prefix/prefix_blocks.h"

#include "base/error.h"
#include "prefix/prefix_decay.h"
#include "prefix/prefix_siblings.h"

/* Nodes with a block in every group are in order among their siblings. */
static bool is_sibling(const struct prefix_index *index, const struct prefix_node *node)
{
    return index->config.finds_partial && node->num_blocks == index->nodes.num_groups;
}

static void observe(struct prefix_index *index, enum prefix_change change, int32_t node)
{
    if (index->config.observer != NULL &&
        !prefix_node_is_tail(&index->nodes, &index->nodes.nodes[node])) {
        index->config.observer(index->config.observer_context, change,
                               prefix_node_ref(&index->nodes, node));
    }
}

int32_t prefix_blocks_class(const struct prefix_index *index, int32_t group, int32_t block)
{
    const struct prefix_use *use = &index->block_uses[group][block];
    const int32_t node = index->block_nodes[group][block] - 1;
    const int32_t priority = index->nodes.nodes[node].priority;
    if (priority == PREFIX_EVICT_FIRST ||
        prefix_node_is_tail(&index->nodes, &index->nodes.nodes[node])) {
        return PREFIX_CLASS_OUT_OF_WINDOW;
    }
    return PREFIX_CLASS_PRIORITY + PREFIX_NUM_STANDINGS * (use->is_decayed ? 0 : priority) +
           use->standing;
}

bool prefix_blocks_is_out_of_window(const struct prefix_index *index, int32_t group, int32_t block)
{
    return index->block_uses[group][block].is_out_of_window &&
           !prefix_index_covers(index, group, index->block_nodes[group][block] - 1);
}

/* A free block comes into the class of its priority, or is about to. */
static int32_t start_use(struct prefix_index *index, int32_t group, int32_t block)
{
    struct prefix_use *use = &index->block_uses[group][block];
    const struct prefix_node *node = &index->nodes.nodes[index->block_nodes[group][block] - 1];
    const bool decays = node->priority > 0 && node->retention_ns != 0 &&
                        node->retention_ns < UINT64_MAX - index->now_ns;
    use->is_decayed = false;
    use->is_out_of_window = false;
    prefix_order_stamp(index, group, block);
    if (decays || use->heap_at != 0) {
        prefix_decay_set(index, group, block, decays ? index->now_ns + node->retention_ns : 0);
    }
    return prefix_blocks_class(index, group, block);
}

static void requeue(struct prefix_index *index, int32_t group, int32_t block)
{
    block_pool_move(index->pools[group], block, start_use(index, group, block));
}

static void decay(struct prefix_index *index, int32_t group, int32_t block)
{
    struct prefix_use *use = &index->block_uses[group][block];
    if (block_pool_class(index->pools[group], block) >=
        PREFIX_CLASS_PRIORITY + PREFIX_NUM_STANDINGS) {
        use->is_decayed = true;
        prefix_order_stamp(index, group, block);
        block_pool_move(index->pools[group], block, prefix_blocks_class(index, group, block));
    }
}

void prefix_index_set_time(struct prefix_index *index, uint64_t now_ns)
{
    index->now_ns = now_ns;
    for (int32_t group = 0; group < index->nodes.num_groups; group++) {
        int32_t block = prefix_decay_next(index, group, now_ns);
        while (block != NO_BLOCK) {
            decay(index, group, block);
            block = prefix_decay_next(index, group, now_ns);
        }
    }
}

/* Unlinks a block from its node, which then may be freed. */
static void unlink_block(struct prefix_index *index, int32_t group, int32_t block)
{
    const int32_t at = index->block_nodes[group][block] - 1;
    struct prefix_node *node = &index->nodes.nodes[at];
    if (is_sibling(index, node)) {
        prefix_siblings_remove(&index->nodes, at);
    }
    prefix_node_blocks(&index->nodes, at)[group] = NO_BLOCK;
    index->block_nodes[group][block] = 0;
    prefix_namespace_count(&index->namespaces, node->namespace_id, -1);
    node->num_blocks--;
    observe(index, PREFIX_REMOVED, at);
    if (node->num_blocks == 0) {
        prefix_node_free_unneeded(&index->nodes, at);
    }
}

/* The same, and a free block changes its class. True when it was free. */
static bool unlink_and_reclass(struct prefix_index *index, int32_t group, int32_t block)
{
    const bool is_free = block_pool_class(index->pools[group], block) != BLOCK_POOL_HELD;
    unlink_block(index, group, block);
    if (is_free) {
        block_pool_move(index->pools[group], block, PREFIX_CLASS_UNINDEXED);
    }
    return is_free;
}

int32_t prefix_index_block(const struct prefix_index *index, struct prefix_ref node, int32_t group)
{
    return prefix_node_at(&index->nodes, node) == NULL
               ? NO_BLOCK
               : prefix_node_blocks(&index->nodes, node.index)[group];
}

struct prefix_ref prefix_index_node_of(const struct prefix_index *index, int32_t group,
                                       int32_t block)
{
    const int32_t node = index->block_nodes[group][block] - 1;
    return node == PREFIX_NONE ? PREFIX_ROOT : prefix_node_ref(&index->nodes, node);
}

int32_t prefix_index_attach(struct prefix_index *index, struct prefix_ref ref, int32_t group,
                            int32_t block)
{
    if (!prefix_node_is_live(&index->nodes, ref)) {
        return NO_BLOCK;
    }
    struct prefix_node *node = &index->nodes.nodes[ref.index];
    int32_t *own = &prefix_node_blocks(&index->nodes, ref.index)[group];
    if (*own != NO_BLOCK) {
        return *own;
    }
    pkv_assert(prefix_index_ends_block(index, group, node->depth));
    pkv_assert(index->block_nodes[group][block] == 0);
    pkv_assert(block_pool_class(index->pools[group], block) == BLOCK_POOL_HELD);
    *own = block;
    index->block_uses[group][block].standing = PREFIX_PASSING;
    index->block_nodes[group][block] = ref.index + 1;
    prefix_namespace_count(&index->namespaces, node->namespace_id, 1);
    node->num_blocks++;
    if (is_sibling(index, node)) {
        prefix_siblings_add(&index->nodes, ref.index);
    }
    observe(index, PREFIX_STORED, ref.index);
    return block;
}

/* A group with windows, if one has a cached block: there a few blocks keep a whole chain of nodes
 * that have none. Of several, the one that has most. */
static int32_t group_to_evict_from(const struct prefix_index *index)
{
    int32_t best = 0;
    bool best_slides = false;
    for (int32_t group = 0; group < index->nodes.num_groups; group++) {
        const int32_t num_cached = prefix_num_cached(index->pools[group]);
        const bool slides = index->window_nodes[group] > 0 && num_cached > 0;
        if (slides > best_slides ||
            (slides == best_slides && num_cached > prefix_num_cached(index->pools[best]))) {
            best = group;
            best_slides = slides;
        }
    }
    return best;
}

/* The next block of a class of cached ones, which stays free. */
static int32_t evict(struct prefix_index *index, int32_t group, int32_t class)
{
    const int32_t block = block_pool_head(index->pools[group], class);
    const struct prefix_ref node = prefix_index_node_of(index, group, block);
    index->num_evictions += prefix_node_is_live(&index->nodes, node); /* else it was flushed */
    (void)unlink_and_reclass(index, group, block);
    return block;
}

bool prefix_blocks_evict(struct prefix_index *index)
{
    const int32_t group = group_to_evict_from(index);
    const int32_t class = prefix_order_next_cached(index, group);
    return class != PREFIX_CLASS_UNINDEXED && evict(index, group, class) != NO_BLOCK;
}

int32_t prefix_index_evict_early(struct prefix_index *index, int32_t group)
{
    const int32_t class = prefix_order_next_cached(index, group);
    if (class == PREFIX_CLASS_UNINDEXED || class >= PREFIX_CLASS_PRIORITY + PREFIX_NUM_STANDINGS) {
        return NO_BLOCK;
    }
    if (class >= PREFIX_CLASS_PRIORITY) {
        prefix_order_evicts(index, group);
    }
    return evict(index, group, class);
}

int32_t prefix_index_take(struct prefix_index *index, int32_t group)
{
    const int32_t class = prefix_order_next_class(index, group);
    if (class >= PREFIX_CLASS_PRIORITY) {
        prefix_order_evicts(index, group);
    }
    const int32_t block = block_pool_take_from(index->pools[group], class);
    if (block != NO_BLOCK && index->block_nodes[group][block] != 0) {
        const struct prefix_ref node = prefix_index_node_of(index, group, block);
        index->num_evictions += prefix_node_is_live(&index->nodes, node); /* else it was flushed */
        unlink_block(index, group, block);
    }
    return block;
}

bool prefix_index_drop(struct prefix_index *index, int32_t group, int32_t block,
                       bool is_out_of_window)
{
    const int32_t node = index->block_nodes[group][block] - 1;
    int32_t class = PREFIX_CLASS_UNINDEXED;
    if (pkv_pool_ref_count(index->pools[group], block) > 1) {
        return block_pool_drop_to(index->pools[group], block, class);
    }
    if (node != PREFIX_NONE) {
        const bool is_worthless = is_out_of_window && !prefix_index_covers(index, group, node);
        class = is_worthless ? PREFIX_CLASS_OUT_OF_WINDOW : start_use(index, group, block);
        index->block_uses[group][block].is_out_of_window = is_worthless;
    }
    return block_pool_drop_to(index->pools[group], block, class);
}

void prefix_index_detach(struct prefix_index *index, int32_t group, int32_t block)
{
    if (index->block_nodes[group][block] != 0) {
        (void)unlink_and_reclass(index, group, block);
    }
}

void prefix_blocks_detach_all(struct prefix_index *index, int32_t node, struct prefix_swept *swept)
{
    const int32_t *blocks = prefix_node_blocks(&index->nodes, node);
    for (int32_t group = 0; group < index->nodes.num_groups; group++) {
        if (blocks[group] == NO_BLOCK) {
            continue;
        }
        if (unlink_and_reclass(index, group, blocks[group])) {
            swept->freed++;
        } else {
            swept->held++;
        }
    }
}

void prefix_blocks_protect(struct prefix_index *index, int32_t node)
{
    const int32_t *blocks = prefix_node_blocks(&index->nodes, node);
    for (int32_t group = 0; group < index->nodes.num_groups; group++) {
        if (blocks[group] != NO_BLOCK && prefix_index_covers(index, group, node) &&
            block_pool_class(index->pools[group], blocks[group]) == PREFIX_CLASS_OUT_OF_WINDOW) {
            requeue(index, group, blocks[group]);
        }
    }
}

static void reclass(struct prefix_index *index, int32_t node, bool keeps_decayed)
{
    const int32_t *blocks = prefix_node_blocks(&index->nodes, node);
    for (int32_t group = 0; group < index->nodes.num_groups; group++) {
        const int32_t class = blocks[group] == NO_BLOCK
                                  ? BLOCK_POOL_HELD
                                  : block_pool_class(index->pools[group], blocks[group]);
        if (class > PREFIX_CLASS_UNINDEXED &&
            !prefix_blocks_is_out_of_window(index, group, blocks[group]) &&
            !(keeps_decayed && index->block_uses[group][blocks[group]].is_decayed)) {
            requeue(index, group, blocks[group]);
        }
    }
}

void prefix_blocks_reclass(struct prefix_index *index, int32_t node)
{
    reclass(index, node, false);
}

void prefix_blocks_lower(struct prefix_index *index, int32_t node)
{
    reclass(index, node, true);
}
