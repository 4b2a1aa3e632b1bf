/* SPDX-License-Identifier: MIT
 *
 * The checker recomputes every count, link and key from what is nearest to the truth, and compares.
 * Walks end even where links were broken into rings: none is longer than the number of records that
 * it could visit. */
#include "prefix/prefix_check.h"

#include "base/report.h"
#include "prefix/prefix_blocks.h"
#include "prefix/prefix_siblings.h"

/* --- nodes */

/* Counts in scratch how often a node is met in the bucket of its own key. */
static void walk_buckets(struct report *report, struct prefix_node_table *nodes)
{
    int64_t budget = nodes->num_used;
    for (uint32_t bucket = 0; bucket < nodes->num_buckets; bucket++) {
        for (int32_t link = nodes->buckets[bucket]; link != 0;) {
            const int32_t at = link - 1;
            if (!report_expect(report, at >= 0 && at < nodes->num_touched && --budget >= 0,
                               "the links of bucket %d are broken", (int)bucket)) {
                return;
            }
            struct prefix_node *node = &nodes->nodes[at];
            node->scratch += prefix_node_bucket(nodes, node->key) == bucket ? 1 : 2;
            link = node->next;
        }
    }
}

static void clear_scratch(struct prefix_node_table *nodes)
{
    for (int32_t i = 0; i < nodes->num_touched; i++) {
        nodes->nodes[i].scratch = 0;
    }
}

static void check_buckets(struct report *report, struct prefix_node_table *nodes)
{
    int32_t num_used = 0;
    clear_scratch(nodes);
    walk_buckets(report, nodes);
    for (int32_t i = 0; i < nodes->num_touched; i++) {
        const struct prefix_node *node = &nodes->nodes[i];
        report_expect(report, node->scratch == (node->is_used ? 1 : 0),
                      "a node is not once in its bucket (node %d)", i);
        num_used += node->is_used;
    }
    report_expect(report, num_used == nodes->num_used, "%d nodes are used, but num_used is %d",
                  num_used, nodes->num_used);
}

static void check_free_list(struct report *report, const struct prefix_node_table *nodes)
{
    const int32_t num_free = nodes->num_touched - nodes->num_used;
    int32_t length = 0;
    int32_t last = 0;
    for (int32_t link = nodes->free_head; link != 0; link = nodes->nodes[link - 1].next) {
        const bool is_free = link >= 1 && link <= nodes->num_touched && length < num_free &&
                             !nodes->nodes[link - 1].is_used;
        if (!report_expect(report, is_free, "the list of free nodes is broken (node %d)",
                           link - 1)) {
            return;
        }
        last = link;
        length++;
    }
    report_expect(report, length == num_free, "%d free nodes are listed, but there are %d", length,
                  num_free);
    report_expect(report, last == nodes->free_tail, "the list of free nodes ends before its tail");
}

/* The blocks of a node, and that each names it in turn. */
static void check_node_blocks(struct report *report, const struct prefix_index *index, int32_t at)
{
    int32_t count = 0;
    for (int32_t group = 0; group < index->nodes.num_groups; group++) {
        const int32_t block = prefix_node_blocks(&index->nodes, at)[group];
        const bool is_block = block >= 0 && block < pkv_pool_num_blocks(index->pools[group]);
        report_expect(report, is_block || block == NO_BLOCK,
                      "a block that the pool does not have (node %d)", at);
        report_expect(report,
                      block == NO_BLOCK ||
                          prefix_index_ends_block(index, group, index->nodes.nodes[at].depth),
                      "a block that does not end at its node (node %d)", at);
        report_expect(report, !is_block || index->block_nodes[group][block] == at + 1,
                      "a node's block names another node (node %d)", at);
        count += block != NO_BLOCK;
    }
    report_expect(report, count == index->nodes.nodes[at].num_blocks,
                  "a node's blocks are miscounted (node %d)", at);
}

static void check_node_key(struct report *report, const struct prefix_index *index, int32_t at)
{
    const struct prefix_node *node = &index->nodes.nodes[at];
    const uint64_t *extra = node->has_extra ? prefix_node_extra(&index->nodes, at) : NULL;
    const struct prefix_content content = prefix_index_content(
        index, node->parent, node->namespace_id, prefix_node_tokens(&index->nodes, at), extra);
    const struct pkv_block_key key = prefix_node_is_tail(&index->nodes, node)
                                         ? prefix_node_tail_key(content.key, node->num_tokens)
                                         : content.key;
    report_expect(report, prefix_key_equals(key, node->key),
                  "a node's key is not that of its content (node %d)", at);
}

static void check_node(struct report *report, const struct prefix_index *index, int32_t at)
{
    const struct prefix_node *node = &index->nodes.nodes[at];
    const struct prefix_node *parent = prefix_node_at(&index->nodes, node->parent);
    report_expect(report, node->num_blocks > 0 || node->num_children > 0 || node->num_holders > 0,
                  "a node without block, child and holder is used (node %d)", at);
    report_expect(report,
                  node->num_tokens == index->nodes.block_size ||
                      (node->num_tokens > 0 && node->num_tokens < index->nodes.block_size &&
                       node->num_children == 0 && index->config.finds_partial),
                  "a tail of %d tokens (node %d)", node->num_tokens, at);
    report_expect(
        report, node->num_tokens == index->nodes.block_size || node->priority == PREFIX_EVICT_FIRST,
        "a tail has a priority (node %d)", at);
    report_expect(report, node->num_holders >= 0, "a node's holders are negative (node %d)", at);
    report_expect(report,
                  node->priority >= PREFIX_EVICT_FIRST && node->priority < PKV_NUM_PRIORITIES,
                  "a node's priority is out of range (node %d)", at);
    report_expect(report, node->depth == (parent == NULL ? 0 : parent->depth + 1),
                  "a node's depth is not its parent's and one (node %d)", at);
    report_expect(report, parent == NULL || parent->priority >= node->priority,
                  "a parent has a lower priority than its child (node %d)", at);
    report_expect(report,
                  parent == NULL || node->distance >= index->max_window_nodes - 1 ||
                      parent->distance <= node->distance + 1,
                  "a retention point does not reach a parent (node %d)", at);
    const bool has_parent =
        report_expect(report, parent != NULL || node->parent.index == PREFIX_NONE,
                      "a node's parent is stale (node %d)", at);
    const bool has_namespace = report_expect(
        report, node->namespace_id >= 0 && node->namespace_id < index->namespaces.num_touched,
        "a node's namespace is out of range (node %d)", at);
    if (has_parent && has_namespace) {
        check_node_blocks(report, index, at);
        check_node_key(report, index, at);
    }
}

/* Counts children in scratch. */
static void check_children(struct report *report, struct prefix_node_table *nodes)
{
    clear_scratch(nodes);
    for (int32_t i = 0; i < nodes->num_touched; i++) {
        struct prefix_node *parent = prefix_node_at(nodes, nodes->nodes[i].parent);
        if (nodes->nodes[i].is_used && parent != NULL) {
            parent->scratch++;
        }
    }
    for (int32_t i = 0; i < nodes->num_touched; i++) {
        const struct prefix_node *node = &nodes->nodes[i];
        report_expect(report, !node->is_used || node->scratch == node->num_children,
                      "a node's children are miscounted (node %d)", i);
    }
}

/* Counts children of one priority in scratch. */
static void check_priorities(struct report *report, struct prefix_node_table *nodes,
                             int32_t priority)
{
    clear_scratch(nodes);
    for (int32_t i = 0; i < nodes->num_touched; i++) {
        struct prefix_node *parent = prefix_node_at(nodes, nodes->nodes[i].parent);
        if (nodes->nodes[i].is_used && parent != NULL) {
            parent->scratch += nodes->nodes[i].priority == priority &&
                               !prefix_node_is_tail(nodes, &nodes->nodes[i]);
        }
    }
    for (int32_t i = 0; i < nodes->num_touched; i++) {
        const struct prefix_node *node = &nodes->nodes[i];
        report_expect(report, !node->is_used || node->scratch == node->children_at[priority],
                      "a node's children of priority %d are miscounted (node %d)", priority, i);
    }
}

/* Each link to a sibling is from exactly one place: as many as there are nodes to be in order. */
static void check_siblings(struct report *report, const struct prefix_index *index)
{
    const struct prefix_node_table *nodes = &index->nodes;
    int32_t num_ordered = 0;
    int32_t num_links = nodes->first_siblings != 0;
    for (int32_t i = 0; i < nodes->num_touched; i++) {
        const struct prefix_node *node = &nodes->nodes[i];
        const bool is_ordered =
            node->is_used && index->config.finds_partial && node->num_blocks == nodes->num_groups;
        num_ordered += is_ordered;
        num_links += node->is_used && node->first_siblings != 0;
        num_links += node->is_used && node->sibling_before != 0;
        num_links += node->is_used && node->sibling_behind != 0;
        report_expect(report, !is_ordered || prefix_siblings_has(nodes, i, nodes->num_used),
                      "a node is not in order among its siblings (node %d)", i);
    }
    report_expect(report, num_links == num_ordered,
                  "%d nodes are in order among siblings, but there are %d links to such",
                  num_ordered, num_links);
}

/* --- blocks */

static void check_block(struct report *report, const struct prefix_index *index, int32_t group,
                        int32_t block)
{
    const int32_t class = block_pool_class(index->pools[group], block);
    const int32_t at = index->block_nodes[group][block] - 1;
    if (at == PREFIX_NONE) {
        report_expect(report, class == BLOCK_POOL_HELD || class == PREFIX_CLASS_UNINDEXED,
                      "a free block without a node is in class %d (group %d, block %d)", class,
                      group, block);
        return;
    }
    const bool is_its_node = at >= 0 && at < index->nodes.num_touched &&
                             index->nodes.nodes[at].is_used &&
                             prefix_node_blocks(&index->nodes, at)[group] == block;
    if (report_expect(report, is_its_node,
                      "a block names a node that does not have it (group %d, block %d)", group,
                      block)) {
        report_expect(report,
                      class == BLOCK_POOL_HELD ||
                          (class == PREFIX_CLASS_OUT_OF_WINDOW &&
                           prefix_blocks_is_out_of_window(index, group, block)) ||
                          class == prefix_blocks_class(index, group, block),
                      "a cached block is in class %d (group %d, block %d)", class, group, block);
    }
}

static void check_heap(struct report *report, const struct prefix_index *index, int32_t group)
{
    const struct prefix_use *uses = index->block_uses[group];
    const int32_t *heap = index->heaps[group];
    for (int32_t i = 0; i < index->heap_lengths[group]; i++) {
        report_expect(report,
                      uses[heap[i]].heap_at == i + 1 &&
                          uses[heap[(i - 1) / 2]].deadline_ns <= uses[heap[i]].deadline_ns,
                      "the heap of deadlines is broken (group %d, place %d)", group, i);
    }
}

/* The blocks of a class were freed one after the other: the order that its queue has. */
static void check_class(struct report *report, const struct prefix_index *index, int32_t group,
                        int32_t class)
{
    const struct prefix_use *uses = index->block_uses[group];
    const struct block_pool_record *records = index->pools[group]->records;
    int64_t newest = 0;
    int32_t budget = block_pool_num_free(index->pools[group], class);
    for (int32_t block = block_pool_head(index->pools[group], class);
         block != NO_BLOCK && --budget >= 0; block = records[block].next) {
        report_expect(report, uses[block].stamp > newest,
                      "a class is not in the order of its stamps (group %d, block %d)", group,
                      block);
        newest = uses[block].stamp;
    }
}

static void check_order(struct report *report, const struct prefix_index *index, int32_t group)
{
    const struct prefix_eviction *order = &index->eviction[group];
    report_expect(report,
                  order->capacity >= 0 &&
                      order->capacity <= pkv_pool_num_blocks(index->pools[group]) &&
                      order->lateness >= -PREFIX_ORDER_MAX_LATENESS &&
                      order->lateness <= PREFIX_ORDER_MAX_LATENESS,
                  "what a group learned of its order is out of range (group %d)", group);
    for (int32_t class = PREFIX_CLASS_PRIORITY; class < BLOCK_POOL_NUM_CLASSES; class ++) {
        check_class(report, index, group, class);
    }
}

static void check_blocks(struct report *report, const struct prefix_index *index)
{
    for (int32_t group = 0; group < index->nodes.num_groups; group++) {
        const int32_t num_blocks = pkv_pool_num_blocks(index->pools[group]);
        for (int32_t block = 0; block < num_blocks; block++) {
            check_block(report, index, group, block);
        }
        check_heap(report, index, group);
        check_order(report, index, group);
    }
}

/* --- namespaces */

/* Are exactly the fields with references in the buckets? */
static void check_field_buckets(struct report *report, const struct prefix_field_table *fields)
{
    int32_t num_used = 0;
    int32_t num_met = 0;
    for (int32_t i = 0; i < fields->num_touched; i++) {
        num_used += fields->records[i].refs > 0;
    }
    for (uint32_t bucket = 0; bucket < fields->num_buckets; bucket++) {
        for (int32_t link = fields->buckets[bucket]; link != 0;
             link = fields->records[link - 1].next) {
            if (!report_expect(report,
                               link >= 1 && link <= fields->num_touched && num_met < num_used,
                               "the links of field bucket %d are broken", (int)bucket)) {
                return;
            }
            num_met++;
        }
    }
    report_expect(report, num_met == num_used, "%d fields are in buckets, but %d are used", num_met,
                  num_used);
}

/* The same of namespaces. */
static void check_namespace_buckets(struct report *report,
                                    const struct prefix_namespace_table *namespaces)
{
    int32_t num_used = 0;
    int32_t num_met = 0;
    for (int32_t i = 0; i < namespaces->num_touched; i++) {
        num_used += namespaces->records[i].refs > 0;
    }
    for (uint32_t bucket = 0; bucket < namespaces->num_buckets; bucket++) {
        for (int32_t link = namespaces->buckets[bucket]; link != 0;
             link = namespaces->records[link - 1].next) {
            if (!report_expect(report,
                               link >= 1 && link <= namespaces->num_touched && num_met < num_used,
                               "the links of namespace bucket %d are broken", (int)bucket)) {
                return;
            }
            num_met++;
        }
    }
    report_expect(report, num_met == num_used, "%d namespaces are in buckets, but %d are used",
                  num_met, num_used);
}

/* Counts what namespaces and quotas refer to, in the fields' scratch. */
static void count_field_refs(struct prefix_namespace_table *namespaces)
{
    struct prefix_field *fields = namespaces->fields.records;
    for (int32_t i = 0; i < namespaces->fields.num_touched; i++) {
        fields[i].seen_refs = fields[i].quota != INT64_MAX;
        fields[i].seen_cached = 0;
    }
    for (int32_t i = 0; i < namespaces->num_touched; i++) {
        struct prefix_namespace *record = &namespaces->records[i];
        record->seen_refs = 0;
        for (int32_t f = 0; record->refs > 0 && f < record->num_fields; f++) {
            fields[record->fields[f]].seen_refs++;
        }
    }
}

/* Counts what nodes refer to, in the scratch of namespaces and fields. */
static void count_node_refs(struct prefix_index *index)
{
    struct prefix_namespace_table *namespaces = &index->namespaces;
    for (int32_t i = 0; i < index->nodes.num_touched; i++) {
        const struct prefix_node *node = &index->nodes.nodes[i];
        if (!node->is_used || node->namespace_id < 0 ||
            node->namespace_id >= namespaces->num_touched) {
            continue;
        }
        struct prefix_namespace *record = &namespaces->records[node->namespace_id];
        record->seen_refs++;
        for (int32_t f = 0; f < record->num_fields; f++) {
            namespaces->fields.records[record->fields[f]].seen_cached += node->num_blocks;
        }
    }
}

static void check_namespaces(struct report *report, struct prefix_index *index)
{
    struct prefix_namespace_table *namespaces = &index->namespaces;
    check_field_buckets(report, &namespaces->fields);
    check_namespace_buckets(report, namespaces);
    count_field_refs(namespaces);
    count_node_refs(index);
    for (int32_t i = 0; i < namespaces->fields.num_touched; i++) {
        const struct prefix_field *field = &namespaces->fields.records[i];
        const bool is_used = field->refs > 0;
        report_expect(report, !is_used || field->refs == field->seen_refs,
                      "a field's references are miscounted (field %d)", i);
        report_expect(report, !is_used || field->cached == field->seen_cached,
                      "a field's cached blocks are miscounted (field %d)", i);
    }
    for (int32_t i = 0; i < namespaces->num_touched; i++) {
        report_expect(report, namespaces->records[i].refs >= namespaces->records[i].seen_refs,
                      "a namespace has fewer references than nodes (namespace %d)", i);
    }
}

int32_t prefix_index_check(struct prefix_index *index)
{
    struct report report = {&index->hooks, "prefix index", 0};
    check_buckets(&report, &index->nodes);
    check_free_list(&report, &index->nodes);
    check_children(&report, &index->nodes);
    for (int32_t priority = 0; priority < PKV_NUM_PRIORITIES; priority++) {
        check_priorities(&report, &index->nodes, priority);
    }
    check_siblings(&report, index);
    check_blocks(&report, index);
    check_namespaces(&report, index);
    for (int32_t i = 0; i < index->nodes.num_touched; i++) {
        if (index->nodes.nodes[i].is_used) {
            check_node(&report, index, i);
        }
    }
    report_expect(&report, index->sweep_at + index->sweep_left <= index->nodes.num_touched,
                  "the sweep goes beyond the nodes (from %d, %d of them)", index->sweep_at,
                  index->sweep_left);
    return report.num_broken;
}
