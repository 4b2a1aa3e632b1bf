/* SPDX-License-Identifier: MIT
 *
 * The walk goes up from the point for as long as it makes a distance smaller: where it meets one
 * that is as small already, all nodes above have theirs from there. When a point ends, no node was
 * below it, and the nodes above, up to the next branch, have no child but these: whatever distance
 * leads to it leads nowhere else. */
#include "prefix/prefix_retain.h"

#include "prefix/prefix_blocks.h"

void prefix_index_retain(struct prefix_index *index, struct prefix_ref ref, int32_t max_rewind)
{
    const int32_t block_size = index->nodes.block_size;
    int32_t distance = -(max_rewind / block_size + (max_rewind % block_size != 0));
    struct prefix_node *node = prefix_node_at(&index->nodes, ref);
    while (node != NULL && distance < index->max_window_nodes && distance < node->distance) {
        node->distance = distance++;
        prefix_blocks_protect(index, ref.index);
        ref = node->parent;
        node = prefix_node_at(&index->nodes, ref);
    }
}

static void withdraw(struct prefix_index *index, struct prefix_node *node)
{
    int32_t distance = node->distance;
    while (node != NULL && distance < index->max_window_nodes && node->distance == distance &&
           node->num_continued < 2) {
        node->distance = INT32_MAX;
        distance++;
        node = prefix_node_at(&index->nodes, node->parent);
    }
}

void prefix_index_continue(struct prefix_index *index, struct prefix_ref ref, int32_t max_rewind)
{
    struct prefix_node *node = prefix_node_at(&index->nodes, ref);
    if (node == NULL) {
        return;
    }
    if (node->num_continued == 0) {
        node->num_continued = 1;
        withdraw(index, node);
    } else {
        node->num_continued = 2;
        prefix_index_retain(index, ref, max_rewind);
    }
}
