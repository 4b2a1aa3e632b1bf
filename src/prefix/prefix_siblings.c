/* SPDX-License-Identifier: MIT
 *
 * A treap: in order of contents from left to right, and no node above one of a higher rank. */
#include "prefix/prefix_siblings.h"

#include "base/error.h"
#include "base/minmax.h"

static int32_t *root_of(struct prefix_node_table *table, struct prefix_ref parent)
{
    return parent.index == PREFIX_NONE ? &table->first_siblings
                                       : &table->nodes[parent.index].first_siblings;
}

static int32_t first_of(const struct prefix_node_table *table, struct prefix_ref parent)
{
    return parent.index == PREFIX_NONE ? table->first_siblings
                                       : table->nodes[parent.index].first_siblings;
}

/* Random as far as contents go. */
static uint64_t rank_of(const struct prefix_node_table *table, int32_t node)
{
    const struct pkv_block_key key = table->nodes[node].key;
    const uint64_t mixed = (key.high ^ table->seed) * 0x9e3779b97f4a7c15u;
    return (mixed ^ (mixed >> 32) ^ key.low) * 0xbf58476d1ce4e5b9u;
}

static int sign_of(bool is_less)
{
    return is_less ? -1 : 1;
}

/* How many first tokens a node has in common with `start`; *order is below 0 when start comes
 * before the node, or is the beginning of it. */
static int32_t compare(const struct prefix_node_table *table, const struct prefix_start *start,
                       int32_t at, int *order)
{
    const struct prefix_node *node = &table->nodes[at];
    const int32_t *tokens = prefix_node_tokens(table, at);
    const uint64_t *extra = node->has_extra ? prefix_node_extra(table, at) : NULL;
    if (start->namespace_id != node->namespace_id) {
        *order = sign_of(start->namespace_id < node->namespace_id);
        return 0;
    }
    const int32_t num_tokens = min_i32(start->num_tokens, node->num_tokens);
    for (int32_t i = 0; i < num_tokens; i++) {
        const uint64_t own = start->extra != NULL ? start->extra[i] : 0;
        const uint64_t other = extra != NULL ? extra[i] : 0;
        if (start->tokens[i] != tokens[i] || own != other) {
            *order =
                sign_of(start->tokens[i] != tokens[i] ? start->tokens[i] < tokens[i] : own < other);
            return i;
        }
    }
    *order = sign_of(start->num_tokens <= node->num_tokens);
    return num_tokens;
}

static struct prefix_start start_of(const struct prefix_node_table *table, int32_t at)
{
    const struct prefix_node *node = &table->nodes[at];
    return (struct prefix_start){
        .parent = node->parent,
        .namespace_id = node->namespace_id,
        .tokens = prefix_node_tokens(table, at),
        .extra = node->has_extra ? prefix_node_extra(table, at) : NULL,
        .num_tokens = node->num_tokens,
    };
}

/* Equal contents, of which all but one were flushed, are in the order of their indices. */
static bool is_before(const struct prefix_node_table *table, const struct prefix_start *start,
                      int32_t node, int32_t other)
{
    int order = 0;
    const int32_t common = compare(table, start, other, &order);
    const bool is_equal = common == start->num_tokens && common == table->nodes[other].num_tokens;
    return is_equal ? node < other : order < 0;
}

/* The link under a node behind which whatever comes before it, or after it, is. */
static int32_t *link_under(struct prefix_node_table *table, int32_t at, bool is_before_it)
{
    struct prefix_node *node = &table->nodes[at];
    return is_before_it ? &node->sibling_before : &node->sibling_behind;
}

void prefix_siblings_add(struct prefix_node_table *table, int32_t node)
{
    const struct prefix_start start = start_of(table, node);
    const uint64_t rank = rank_of(table, node);
    int32_t *link = root_of(table, start.parent);
    while (*link != 0 && rank_of(table, *link - 1) >= rank) {
        link = link_under(table, *link - 1, is_before(table, &start, node, *link - 1));
    }
    int32_t rest = *link;
    int32_t *before = link_under(table, node, true);
    int32_t *behind = link_under(table, node, false);
    *link = node + 1;
    while (rest != 0) { /* what is below is divided by the node */
        const bool is_behind = is_before(table, &start, node, rest - 1);
        int32_t **end = is_behind ? &behind : &before;
        **end = rest;
        *end = link_under(table, rest - 1, is_behind);
        rest = **end;
    }
    *before = 0;
    *behind = 0;
}

void prefix_siblings_remove(struct prefix_node_table *table, int32_t node)
{
    const struct prefix_start start = start_of(table, node);
    int32_t *link = root_of(table, start.parent);
    while (*link != node + 1) {
        pkv_assert(*link != 0);
        link = link_under(table, *link - 1, is_before(table, &start, node, *link - 1));
    }
    int32_t before = table->nodes[node].sibling_before;
    int32_t behind = table->nodes[node].sibling_behind;
    while (before != 0 && behind != 0) { /* what was below is put together */
        const bool before_is_higher = rank_of(table, before - 1) >= rank_of(table, behind - 1);
        int32_t *higher = before_is_higher ? &before : &behind;
        *link = *higher;
        link = link_under(table, *higher - 1, !before_is_higher);
        *higher = *link;
    }
    *link = before != 0 ? before : behind;
    table->nodes[node].sibling_before = 0;
    table->nodes[node].sibling_behind = 0;
}

int32_t prefix_siblings_nearest(const struct prefix_node_table *table,
                                const struct prefix_start *start, int32_t *num_common)
{
    int32_t nearest[2] = {PREFIX_NONE, PREFIX_NONE}; /* before and behind */
    int32_t common[2] = {0, 0};
    int32_t link = first_of(table, start->parent);
    while (link != 0) {
        const struct prefix_node *node = &table->nodes[link - 1];
        int order = 0;
        const int32_t equal = compare(table, start, link - 1, &order);
        const int side = order < 0;
        nearest[side] = link - 1;
        common[side] = equal;
        link = order < 0 ? node->sibling_before : node->sibling_behind;
    }
    for (int side = 0; side < 2; side++) {
        if (nearest[side] != PREFIX_NONE &&
            !prefix_node_is_live(table, prefix_node_ref(table, nearest[side]))) {
            common[side] = 0;
        }
    }
    const int best = common[1] > common[0];
    *num_common = common[best];
    return common[best] > 0 ? nearest[best] : PREFIX_NONE;
}

int32_t prefix_siblings_covered(const struct prefix_node_table *table, int32_t node)
{
    const struct prefix_start start = start_of(table, node);
    int32_t link = first_of(table, start.parent);
    int32_t before = PREFIX_NONE;
    int order = 0;
    while (link != 0) {
        const int32_t at = link - 1;
        const bool is_behind = at == node || is_before(table, &start, node, at);
        before = is_behind ? before : at;
        link = is_behind ? table->nodes[at].sibling_before : table->nodes[at].sibling_behind;
    }
    return before != PREFIX_NONE && prefix_node_is_tail(table, &table->nodes[before]) &&
                   compare(table, &start, before, &order) == table->nodes[before].num_tokens
               ? before
               : PREFIX_NONE;
}

bool prefix_siblings_has(const struct prefix_node_table *table, int32_t node, int32_t max_steps)
{
    const struct prefix_start start = start_of(table, node);
    const bool has_parent =
        start.parent.index == PREFIX_NONE || prefix_node_at(table, start.parent) != NULL;
    int32_t link = has_parent ? first_of(table, start.parent) : 0;
    for (int32_t i = 0; i < max_steps && link > 0 && link <= table->num_touched; i++) {
        if (link == node + 1) {
            return true;
        }
        const struct prefix_node *at = &table->nodes[link - 1];
        link = is_before(table, &start, node, link - 1) ? at->sibling_before : at->sibling_behind;
    }
    return false;
}
