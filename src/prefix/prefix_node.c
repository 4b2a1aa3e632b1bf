/* SPDX-License-Identifier: MIT
 *
 * Nodes are made, found and freed here.
 *
 * Everything that enters a key is compared again at a candidate: the parent by identity (it has all
 * blocks before it as ancestors), the namespace by its interned id, tokens and extras byte by byte.
 */
#include "prefix/prefix_node.h"

#include <string.h>

#include "alloc/block_table.h"
#include "base/error.h"

bool prefix_node_is_live(const struct prefix_node_table *table, struct prefix_ref ref)
{
    const struct prefix_node *node = prefix_node_at(table, ref);
    return node != NULL &&
           prefix_namespace_is_current(table->namespaces, node->namespace_id, node->epoch);
}

static bool has_content(const struct prefix_node_table *table, int32_t at,
                        const struct prefix_content *content)
{
    const size_t block_size = (size_t)table->block_size;
    const struct prefix_node *node = &table->nodes[at];
    if (node->parent.index != content->parent.index ||
        node->parent.generation != content->parent.generation ||
        node->namespace_id != content->namespace_id ||
        node->has_extra != (content->extra != NULL) ||
        memcmp(prefix_node_tokens(table, at), content->tokens,
               block_size * sizeof content->tokens[0]) != 0) {
        return false;
    }
    return !node->has_extra || memcmp(prefix_node_extra(table, at), content->extra,
                                      block_size * sizeof content->extra[0]) == 0;
}

int32_t prefix_node_search(struct prefix_node_table *table, const struct prefix_content *content,
                           bool *is_colliding)
{
    for (int32_t link = table->buckets[prefix_node_bucket(table, content->key)]; link != 0;) {
        const int32_t at = link - 1;
        const struct prefix_node *node = &table->nodes[at];
        link = node->next;
        if (!prefix_key_matches(node->key, content->key, table->mask) ||
            prefix_node_is_tail(table, node) ||
            !prefix_namespace_is_current(table->namespaces, node->namespace_id, node->epoch)) {
            continue;
        }
        if (has_content(table, at, content)) {
            return at;
        }
        table->num_collisions++;
        *is_colliding = *is_colliding || prefix_key_equals(node->key, content->key);
    }
    return PREFIX_NONE;
}

/* Loads the node that is made next. */
static void prefetch_next(const struct prefix_node_table *table)
{
    const int32_t next = table->free_head != 0 ? table->free_head - 1 : table->num_touched;
    if (next < table->max_nodes) {
        prefix_node_prefetch(table, next);
        PKV_PREFETCH(prefix_node_tokens(table, next));
        PKV_PREFETCH(prefix_node_blocks(table, next));
        PKV_PREFETCH(prefix_node_used(table, next));
    }
}

/* An unused node, its generation in place; PREFIX_NONE when there is none. */
static int32_t take_node(struct prefix_node_table *table)
{
    int32_t taken = table->free_head - 1;
    if (taken != PREFIX_NONE) {
        table->free_head = table->nodes[taken].next;
        table->free_tail = table->free_head == 0 ? 0 : table->free_tail;
    } else if (table->num_touched < table->max_nodes) {
        taken = table->num_touched++;
        memset(&table->nodes[taken], 0, sizeof table->nodes[taken]);
    }
    prefetch_next(table);
    return taken;
}

/* Links a new node with its parent, bucket and namespace. */
static void fill_node(struct prefix_node_table *table, int32_t at,
                      const struct prefix_content *content)
{
    int32_t *bucket = &table->buckets[prefix_node_bucket(table, content->key)];
    struct prefix_node *node = &table->nodes[at];
    struct prefix_node *parent = prefix_node_at(table, content->parent);
    *node = (struct prefix_node){
        .key = content->key,
        .epoch = table->namespaces->epoch,
        .parent = parent == NULL ? PREFIX_ROOT : content->parent,
        .generation = node->generation,
        .namespace_id = content->namespace_id,
        .depth = parent == NULL ? 0 : parent->depth + 1,
        .num_holders = 1,
        .distance = INT32_MAX,
        .next = *bucket,
        .is_used = true,
        .has_extra = content->extra != NULL,
        .num_tokens = table->block_size,
    };
    *bucket = at + 1;
    table->num_used++;
    prefix_namespace_hold(table->namespaces, content->namespace_id);
    if (parent != NULL) {
        parent->num_children++;
        prefix_node_count_child(table, node, 1);
    }
}

int32_t prefix_node_make(struct prefix_node_table *table, const struct prefix_content *content)
{
    const size_t block_size = (size_t)table->block_size;
    const int32_t made = take_node(table);
    if (made == PREFIX_NONE) {
        return PREFIX_NONE;
    }
    fill_node(table, made, content);
    memcpy(prefix_node_tokens(table, made), content->tokens,
           block_size * sizeof content->tokens[0]);
    if (content->extra != NULL) {
        memcpy(prefix_node_extra(table, made), content->extra,
               block_size * sizeof content->extra[0]);
    }
    for (int32_t group = 0; group < table->num_groups; group++) {
        prefix_node_blocks(table, made)[group] = NO_BLOCK;
        prefix_node_used(table, made)[group] = 0;
    }
    return made;
}

void prefix_node_hold(struct prefix_node_table *table, struct prefix_ref ref)
{
    struct prefix_node *node = prefix_node_at(table, ref);
    if (node != NULL) {
        node->num_holders++;
    }
}

void prefix_node_release(struct prefix_node_table *table, struct prefix_ref ref)
{
    struct prefix_node *node = prefix_node_at(table, ref);
    if (node != NULL) {
        pkv_assert(node->num_holders > 0);
        node->num_holders--;
        prefix_node_free_unneeded(table, ref.index);
    }
}

static void unlink_node(struct prefix_node_table *table, int32_t unlinked)
{
    int32_t *link = &table->buckets[prefix_node_bucket(table, table->nodes[unlinked].key)];
    while (*link != unlinked + 1) {
        link = &table->nodes[*link - 1].next;
    }
    *link = table->nodes[unlinked].next;
}

static void append_free(struct prefix_node_table *table, int32_t freed)
{
    table->nodes[freed].next = 0;
    if (table->free_tail == 0) {
        table->free_head = freed + 1;
    } else {
        table->nodes[table->free_tail - 1].next = freed + 1;
    }
    table->free_tail = freed + 1;
}

void prefix_node_free_unneeded(struct prefix_node_table *table, int32_t at)
{
    while (at != PREFIX_NONE) {
        struct prefix_node *node = &table->nodes[at];
        if (node->num_blocks > 0 || node->num_children > 0 || node->num_holders > 0) {
            return;
        }
        const int32_t parent = node->parent.index;
        prefix_node_count_child(table, node, -1);
        unlink_node(table, at);
        prefix_namespace_release(table->namespaces, node->namespace_id);
        node->is_used = false;
        node->generation++;
        table->num_used--;
        append_free(table, at);
        if (parent != PREFIX_NONE) {
            table->nodes[parent].num_children--;
        }
        at = parent;
    }
}
