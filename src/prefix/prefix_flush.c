/* SPDX-License-Identifier: MIT
 *
 * The epoch is kept with the namespaces, whose fields have the epoch of their last flush. A flush
 * or reset during a sweep begins the sweep anew: nodes that were swept have no block any more. */
#include "prefix/prefix_flush.h"

#include "prefix/prefix_blocks.h"

uint64_t prefix_index_epoch(const struct prefix_index *index)
{
    return index->namespaces.epoch;
}

bool prefix_index_is_current(const struct prefix_index *index, int32_t namespace_id, uint64_t epoch)
{
    return prefix_namespace_is_current(&index->namespaces, namespace_id, epoch);
}

static void begin_sweep(struct prefix_index *index)
{
    index->sweep_at = 0;
    index->sweep_left = index->nodes.num_touched;
}

void prefix_index_flush(struct prefix_index *index, const struct pkv_namespace_field *field)
{
    struct prefix_namespace_table *namespaces = &index->namespaces;
    const int32_t id = prefix_field_find(&namespaces->fields, field);
    if (id != PREFIX_NONE) {
        namespaces->fields.records[id].flushed = ++namespaces->epoch;
        begin_sweep(index);
    }
}

void prefix_index_reset(struct prefix_index *index)
{
    index->namespaces.reset = ++index->namespaces.epoch;
    begin_sweep(index);
}

static bool is_live(const struct prefix_index *index, int32_t node)
{
    return prefix_node_is_live(&index->nodes, prefix_node_ref(&index->nodes, node));
}

bool prefix_index_sweep(struct prefix_index *index, int32_t max_nodes, struct prefix_swept *swept)
{
    swept->freed += index->retired.freed;
    swept->held += index->retired.held;
    index->retired = (struct prefix_swept){0};
    for (int32_t i = 0; i < max_nodes && index->sweep_left > 0; i++) {
        const int32_t at = index->sweep_at++;
        index->sweep_left--;
        if (index->nodes.nodes[at].is_used && !is_live(index, at)) {
            prefix_blocks_detach_all(index, at, swept);
        }
    }
    return index->sweep_left == 0;
}

void prefix_flush_retire(struct prefix_index *index, struct pkv_block_key key)
{
    const int32_t *bucket = &index->nodes.buckets[prefix_node_bucket(&index->nodes, key)];
    int32_t at = index->sweep_left > 0 ? *bucket - 1 : PREFIX_NONE;
    while (at != PREFIX_NONE) {
        const struct prefix_node *node = &index->nodes.nodes[at];
        if (prefix_key_equals(node->key, key) && node->num_blocks > 0 && !is_live(index, at)) {
            prefix_blocks_detach_all(index, at, &index->retired);
            at = *bucket - 1; /* it and its ancestors may have left the list */
        } else {
            at = node->next - 1;
        }
    }
}
