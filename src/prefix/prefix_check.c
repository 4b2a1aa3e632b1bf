/* SPDX-License-Identifier: MIT
 *
 * The checker of the prefix index: recomputes every count, link and key from what stands nearest to
 * the truth, and compares. Walks end even where links were broken into rings: none is longer than
 * the number of records that it could visit. Scratch fields of records are written; nothing else.
 */
#include "prefix/prefix_table.h"

/* 1, and a line in the log, when an invariant does not hold. */
static int32_t expect(const struct prefix_index *index, bool holds, const char *what, int32_t which)
{
    if (!holds) {
        hooks_log(&index->hooks, PKV_LOG_ERROR, "prefix index: %s (%d)", what, which);
    }
    return holds ? 0 : 1;
}

/* --- nodes */

/* Counts in scratch how often a node is met in the bucket of its own key. */
static int32_t check_buckets(struct prefix_index *index)
{
    int64_t budget = index->num_used;
    for (int32_t i = 0; i < index->num_touched; i++) {
        index->nodes[i].scratch = 0;
    }
    for (uint32_t bucket = 0; bucket < index->num_buckets; bucket++) {
        for (int32_t link = index->buckets[bucket]; link != 0;) {
            const int32_t at = link - 1;
            if (at < 0 || at >= index->num_touched || --budget < 0) {
                return expect(index, false, "a bucket's links are broken", (int32_t)bucket);
            }
            struct prefix_node *node = &index->nodes[at];
            node->scratch += prefix_bucket(index, node->key) == bucket ? 1 : 2;
            link = node->next;
        }
    }
    int32_t faults = 0;
    int32_t used = 0;
    for (int32_t i = 0; i < index->num_touched; i++) {
        const struct prefix_node *node = &index->nodes[i];
        faults += expect(index, node->scratch == (node->is_used ? 1 : 0),
                         "a node is not once in its bucket", i);
        used += node->is_used;
    }
    return faults + expect(index, used == index->num_used, "the used nodes are not num_used", used);
}

static int32_t check_free_list(const struct prefix_index *index)
{
    const int32_t num_free = index->num_touched - index->num_used;
    int32_t length = 0;
    int32_t last = 0;
    for (int32_t link = index->free_head; link != 0; link = index->nodes[link - 1].next) {
        if (link < 1 || link > index->num_touched || length == num_free ||
            index->nodes[link - 1].is_used) {
            return expect(index, false, "the list of free nodes is broken", link - 1);
        }
        last = link;
        length++;
    }
    return expect(index, length == num_free, "a free node is not on the list", length) +
           expect(index, last == index->free_tail, "the list of free nodes ends before its tail",
                  last - 1);
}

/* The blocks of a node, and that each names it back. */
static int32_t check_node_blocks(const struct prefix_index *index, int32_t at)
{
    int32_t faults = 0;
    int32_t count = 0;
    for (int32_t group = 0; group < index->config.num_groups; group++) {
        const int32_t block = prefix_blocks_at(index, at)[group];
        const bool is_block = block >= 0 && block < pkv_pool_num_blocks(index->pools[group]);
        faults += expect(index, is_block || block == PREFIX_NONE, "a node's block is no block", at);
        faults += expect(index, !is_block || index->block_nodes[group][block] == at + 1,
                         "a node's block names another node", at);
        count += block != PREFIX_NONE;
    }
    return faults + expect(index, count == index->nodes[at].num_blocks,
                           "a node's blocks are miscounted", at);
}

static int32_t check_node(struct prefix_index *index, int32_t at)
{
    struct prefix_node *node = &index->nodes[at];
    const struct prefix_node *parent = prefix_node_at(index, node->parent);
    const uint64_t *extra = node->has_extra ? prefix_extra_at(index, at) : NULL;
    int32_t faults =
        expect(index, node->num_blocks > 0 || node->num_children > 0 || node->num_holders > 0,
               "a node is needed by nobody", at);
    faults += expect(index, node->num_holders >= 0, "a node's holders are negative", at);
    faults += expect(index, node->priority < PKV_NUM_PRIORITIES, "a node's class is none", at);
    faults += expect(index, parent != NULL || node->parent.index == PREFIX_NONE,
                     "a node's parent is stale", at);
    faults += expect(index, node->depth == (parent == NULL ? 0 : parent->depth + 1),
                     "a node's depth is not its parent's and one", at);
    faults += expect(index, parent == NULL || parent->priority >= node->priority,
                     "a parent is in a lower class than its child", at);
    const bool has_namespace =
        node->namespace_id >= 0 && node->namespace_id < index->namespace_list.num_touched;
    faults += expect(index, has_namespace, "a node's namespace is none", at);
    if (!has_namespace || (parent == NULL && node->parent.index != PREFIX_NONE)) {
        return faults;
    }
    const struct prefix_content content =
        prefix_content_of(index, node->parent, node->namespace_id, prefix_tokens_at(index, at),
                          extra, prefix_write_head(index, node->namespace_id));
    return faults + check_node_blocks(index, at) +
           expect(index, content.key.low == node->key.low && content.key.high == node->key.high,
                  "a node's key is not that of its content", at);
}

/* Counts children in scratch. */
static int32_t check_children(struct prefix_index *index)
{
    int32_t faults = 0;
    for (int32_t i = 0; i < index->num_touched; i++) {
        index->nodes[i].scratch = 0;
    }
    for (int32_t i = 0; i < index->num_touched; i++) {
        struct prefix_node *parent = prefix_node_at(index, index->nodes[i].parent);
        if (index->nodes[i].is_used && parent != NULL) {
            parent->scratch++;
        }
    }
    for (int32_t i = 0; i < index->num_touched; i++) {
        const struct prefix_node *node = &index->nodes[i];
        faults += expect(index, !node->is_used || node->scratch == node->num_children,
                         "a node's children are miscounted", i);
    }
    return faults;
}

/* --- blocks */

static int32_t check_block(const struct prefix_index *index, int32_t group, int32_t block)
{
    const int32_t queue = block_pool_class(index->pools[group], block);
    const int32_t at = index->block_nodes[group][block] - 1;
    if (at == PREFIX_NONE) {
        return expect(index, queue <= PREFIX_CLASS_UNINDEXED,
                      "a free block without a node is on a queue of cached ones", block);
    }
    if (at < 0 || at >= index->num_touched || !index->nodes[at].is_used ||
        prefix_blocks_at(index, at)[group] != block) {
        return expect(index, false, "a block names a node that has it not", block);
    }
    return expect(index,
                  queue == BLOCK_POOL_NONE || queue == PREFIX_CLASS_OUT_OF_WINDOW ||
                      queue == PREFIX_CLASS_PRIORITY + index->nodes[at].priority,
                  "a cached block is not on the queue of its class", block);
}

static int32_t check_blocks(const struct prefix_index *index)
{
    int32_t faults = 0;
    for (int32_t group = 0; group < index->config.num_groups; group++) {
        const int32_t num_blocks = pkv_pool_num_blocks(index->pools[group]);
        for (int32_t block = 0; block < num_blocks; block++) {
            faults += check_block(index, group, block);
        }
    }
    return faults;
}

/* --- namespaces */

/* Of a table of names: are exactly those with refs in the buckets? is_field chooses the table. */
static int32_t check_list(const struct prefix_index *index, bool is_field)
{
    const struct record_list *list = is_field ? &index->field_list : &index->namespace_list;
    int32_t used = 0;
    int32_t met = 0;
    for (int32_t i = 0; i < list->num_touched; i++) {
        used += (is_field ? index->fields[i].refs : index->namespaces[i].refs) > 0;
    }
    for (uint32_t bucket = 0; bucket < index->num_name_buckets; bucket++) {
        for (int32_t link = list->buckets[bucket]; link != 0;) {
            if (link < 1 || link > list->num_touched || met == used) {
                return expect(index, false, "a bucket of names is broken", (int32_t)bucket);
            }
            met++;
            link = is_field ? index->fields[link - 1].next : index->namespaces[link - 1].next;
        }
    }
    return expect(index, met == used, "a name is not in its bucket", met);
}

/* What nodes and namespaces refer to, counted in the seen fields. */
static void count_names(struct prefix_index *index)
{
    for (int32_t i = 0; i < index->field_list.num_touched; i++) {
        index->fields[i].seen_refs = index->fields[i].quota != INT64_MAX;
        index->fields[i].seen_cached = 0;
    }
    for (int32_t i = 0; i < index->namespace_list.num_touched; i++) {
        struct namespace_record *record = &index->namespaces[i];
        record->seen_refs = 0;
        for (int32_t f = 0; record->refs > 0 && f < record->num_fields; f++) {
            index->fields[record->fields[f]].seen_refs++;
        }
    }
    for (int32_t i = 0; i < index->num_touched; i++) {
        const struct prefix_node *node = &index->nodes[i];
        if (!node->is_used || node->namespace_id < 0 ||
            node->namespace_id >= index->namespace_list.num_touched) {
            continue;
        }
        struct namespace_record *record = &index->namespaces[node->namespace_id];
        record->seen_refs++;
        for (int32_t f = 0; f < record->num_fields; f++) {
            index->fields[record->fields[f]].seen_cached += node->num_blocks;
        }
    }
}

static int32_t check_names(struct prefix_index *index)
{
    int32_t faults = check_list(index, true) + check_list(index, false);
    count_names(index);
    for (int32_t i = 0; i < index->field_list.num_touched; i++) {
        const struct field_record *field = &index->fields[i];
        if (field->refs == 0) {
            continue;
        }
        faults += expect(index, field->refs == field->seen_refs,
                         "a field's references are miscounted", i);
        faults += expect(index, field->cached == field->seen_cached,
                         "a field's cached blocks are miscounted", i);
    }
    for (int32_t i = 0; i < index->namespace_list.num_touched; i++) {
        faults += expect(index, index->namespaces[i].refs >= index->namespaces[i].seen_refs,
                         "a namespace has fewer references than nodes", i);
    }
    return faults;
}

int32_t prefix_index_check(struct prefix_index *index)
{
    int32_t faults = check_buckets(index) + check_free_list(index) + check_children(index) +
                     check_blocks(index) + check_names(index);
    for (int32_t i = 0; i < index->num_touched; i++) {
        if (index->nodes[i].is_used) {
            faults += check_node(index, i);
        }
    }
    return faults + expect(index, index->sweep_at + index->sweep_left <= index->num_touched,
                           "the sweep goes beyond the nodes", index->sweep_at);
}
