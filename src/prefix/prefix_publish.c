/* SPDX-License-Identifier: MIT
 *
 * Insertion searches first, so that equal content has one node, whichever sequence computes it.
 */
#include "prefix/prefix_publish.h"

#include <string.h>

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

uint32_t prefix_index_prefetch_bucket(const struct prefix_index *index, struct prefix_ref parent,
                                      int32_t namespace_id, const int32_t *tokens,
                                      const uint64_t *extra)
{
    const struct prefix_content content =
        prefix_index_content(index, parent, namespace_id, tokens, extra);
    const uint32_t bucket = prefix_node_bucket(&index->nodes, content.key);
    PKV_PREFETCH(&index->nodes.buckets[bucket]);
    return bucket;
}

void prefix_index_prefetch_found(const struct prefix_index *index, uint32_t bucket)
{
    const int32_t at = index->nodes.buckets[bucket] - 1;
    if (at != PREFIX_NONE) {
        prefix_node_prefetch(&index->nodes, at);
    }
}

/* The content of a tail, filled up with zeros in the index's scratch. */
static struct prefix_content tail_content(struct prefix_index *index,
                                          const struct prefix_start *start)
{
    const size_t block_size = (size_t)index->nodes.block_size;
    const size_t count = (size_t)start->num_tokens;
    memset(index->tail_tokens, 0, block_size * sizeof index->tail_tokens[0]);
    memset(index->tail_extra, 0, block_size * sizeof index->tail_extra[0]);
    memcpy(index->tail_tokens, start->tokens, count * sizeof index->tail_tokens[0]);
    if (start->extra != NULL) {
        memcpy(index->tail_extra, start->extra, count * sizeof index->tail_extra[0]);
    }
    struct prefix_content content = prefix_index_content(index, start->parent, start->namespace_id,
                                                         index->tail_tokens, index->tail_extra);
    content.key = prefix_node_tail_key(content.key, start->num_tokens);
    return content;
}

struct prefix_ref prefix_index_insert_tail(struct prefix_index *index,
                                           const struct prefix_start *start, uint64_t epoch)
{
    int32_t num_common = 0;
    if (!prefix_index_is_current(index, start->namespace_id, epoch) ||
        (start->parent.index != PREFIX_NONE &&
         !prefix_node_is_live(&index->nodes, start->parent))) {
        return PREFIX_ROOT;
    }
    (void)prefix_siblings_nearest(&index->nodes, start, &num_common);
    if (num_common == start->num_tokens) {
        return PREFIX_ROOT;
    }
    const struct prefix_content content = tail_content(index, start);
    const int32_t made = prefix_node_make(&index->nodes, &content);
    if (made == PREFIX_NONE) {
        return PREFIX_ROOT;
    }
    struct prefix_node *node = &index->nodes.nodes[made];
    prefix_node_count_child(&index->nodes, node, -1);
    node->num_tokens = start->num_tokens;
    node->priority = PREFIX_EVICT_FIRST; /* no claim keeps a tail, and its parent may have none */
    return prefix_node_ref(&index->nodes, made);
}

static bool is_free(const struct prefix_index *index, int32_t node)
{
    const int32_t *blocks = prefix_node_blocks(&index->nodes, node);
    bool is_held = false;
    for (int32_t group = 0; group < index->nodes.num_groups; group++) {
        is_held =
            is_held || block_pool_class(index->pools[group], blocks[group]) == BLOCK_POOL_HELD;
    }
    return !is_held;
}

void prefix_index_supersede(struct prefix_index *index, struct prefix_ref ref)
{
    const struct prefix_node *node = prefix_node_at(&index->nodes, ref);
    struct prefix_swept swept = {0};
    if (node == NULL || !index->config.finds_partial ||
        node->num_blocks < index->nodes.num_groups) {
        return;
    }
    const int32_t covered = prefix_siblings_covered(&index->nodes, ref.index);
    if (covered != PREFIX_NONE && is_free(index, covered)) {
        prefix_blocks_detach_all(index, covered, &swept);
    }
}
