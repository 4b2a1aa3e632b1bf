/* SPDX-License-Identifier: MIT
 *
 * Insertion searches first, so that equal content has one node, whichever sequence computes it.
 */
#include "prefix/prefix_publish.h"

#include "prefix/prefix_blocks.h"
#include "prefix/prefix_claim.h"
#include "prefix/prefix_flush.h"

/* Blocks that are evicted at most for one node: a window may keep a chain of any length, but an
 * insertion must not take the time of all that is cached. The next one goes on. */
#define MAX_EVICTIONS 64

/* A new node for content that has none; PREFIX_NONE when none is free, and none became free by
 * evicting. */
static int32_t make_node(struct prefix_index *index, const struct prefix_content *content)
{
    prefix_node_hold(&index->nodes, content->parent); /* what retires may be its only child */
    prefix_flush_retire(index, content->key);
    int32_t made = prefix_node_make(&index->nodes, content);
    for (int32_t i = 0; made == PREFIX_NONE && i < MAX_EVICTIONS && prefix_blocks_evict(index);
         i++) {
        made = prefix_node_make(&index->nodes, content);
    }
    prefix_node_release(&index->nodes, content->parent);
    return made;
}

enum prefix_insert prefix_index_insert(struct prefix_index *index, struct prefix_ref parent,
                                       int32_t namespace_id, uint64_t epoch, const int32_t *tokens,
                                       const uint64_t *extra, int32_t priority,
                                       struct prefix_ref *node)
{
    if (!prefix_index_is_current(index, namespace_id, epoch) ||
        (parent.index != PREFIX_NONE && !prefix_node_is_live(&index->nodes, parent))) {
        return PREFIX_FLUSHED;
    }
    const struct prefix_content content =
        prefix_index_content(index, parent, namespace_id, tokens, extra);
    bool is_colliding = false;
    int32_t at = prefix_node_search(&index->nodes, &content, &is_colliding);
    const bool is_found = at != PREFIX_NONE;
    if (is_found) {
        index->nodes.nodes[at].num_holders++;
    } else if (!is_colliding) {
        at = make_node(index, &content);
    }
    if (at == PREFIX_NONE) {
        index->num_not_indexed++;
        return is_colliding ? PREFIX_COLLIDING : PREFIX_NOT_NOW;
    }
    *node = prefix_node_ref(&index->nodes, at);
    prefix_index_raise(index, *node, priority);
    return is_found ? PREFIX_FOUND : PREFIX_NEW;
}
