/* SPDX-License-Identifier: MIT
 *
 * A parent's claim is never below that of its child: each claim goes up the chain until it meets a
 * node that has as much. Parents count their children by priority, so that the highest is known
 * when one is lowered. */
#include "prefix/prefix_claim.h"

#include "base/minmax.h"
#include "prefix/prefix_blocks.h"

/* 0 is the longest: one less than it wraps around. */
static bool is_longer(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns - 1 > b_ns - 1;
}

static bool is_higher(const struct prefix_node *node, int32_t priority, uint64_t retention_ns)
{
    return priority > node->priority ||
           (priority > 0 && is_longer(retention_ns, node->retention_ns));
}

/* The longer of a claim's time and the node's, which has none below priority 1. */
static uint64_t longer(const struct prefix_node *node, uint64_t retention_ns)
{
    return node->priority > 0 && is_longer(node->retention_ns, retention_ns) ? node->retention_ns
                                                                             : retention_ns;
}

static void set_claim(struct prefix_index *index, int32_t at, int32_t priority,
                      uint64_t retention_ns)
{
    struct prefix_node *node = &index->nodes.nodes[at];
    const bool is_ended = node->priority > 0 && priority == 0;
    prefix_node_count_child(&index->nodes, node, -1);
    node->priority = (int8_t)priority;
    node->retention_ns = retention_ns;
    prefix_node_count_child(&index->nodes, node, 1);
    if (node->num_blocks > 0 && is_ended) {
        prefix_blocks_lower(index, at);
    } else if (node->num_blocks > 0) {
        prefix_blocks_reclass(index, at);
    }
}

void prefix_index_claim(struct prefix_index *index, struct prefix_ref ref, int32_t priority,
                        uint64_t retention_ns)
{
    const struct prefix_node *node = prefix_node_at(&index->nodes, ref);
    if (node != NULL && prefix_node_is_tail(&index->nodes, node)) {
        ref = node->parent;
        node = prefix_node_at(&index->nodes, ref);
    }
    while (node != NULL && is_higher(node, priority, retention_ns)) {
        set_claim(index, ref.index, max_i32(priority, node->priority), longer(node, retention_ns));
        ref = node->parent;
        node = prefix_node_at(&index->nodes, ref);
    }
}

void prefix_index_raise(struct prefix_index *index, struct prefix_ref node, int32_t priority)
{
    prefix_index_claim(index, node, priority, 0);
}

static int32_t highest_child(const struct prefix_node *node)
{
    int32_t priority = PKV_NUM_PRIORITIES - 1;
    while (priority >= 0 && node->children_at[priority] == 0) {
        priority--;
    }
    return priority;
}

bool prefix_index_set_priority(struct prefix_index *index, struct prefix_ref ref, int32_t priority)
{
    const struct prefix_node *node = prefix_node_at(&index->nodes, ref);
    if (node == NULL) {
        return false;
    }
    const int32_t before = node->priority;
    const int32_t wanted = max_i32(priority, highest_child(node));
    if (wanted < before) {
        const struct prefix_ref parent = node->parent;
        const bool is_of_child = wanted > priority; /* and lasts as long as that */
        set_claim(index, ref.index, wanted, is_of_child ? node->retention_ns : 0);
        if (wanted > 0 && !is_of_child) {
            prefix_index_raise(index, parent, wanted);
        }
    } else if (wanted > before) {
        prefix_index_raise(index, ref, wanted);
    }
    return wanted != before;
}

void prefix_index_touch(struct prefix_index *index, const struct prefix_ref *nodes, int32_t count)
{
    for (int32_t i = count - 1; i >= 0; i--) {
        if (prefix_node_at(&index->nodes, nodes[i]) != NULL) {
            prefix_blocks_reclass(index, nodes[i].index);
        }
    }
}
