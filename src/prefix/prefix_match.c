/* SPDX-License-Identifier: MIT
 *
 * A key needs the content of the blocks before it, not their nodes. So the keys of some blocks are
 * made first, and what they may lead to is prefetched, and the answers of the memory overlap. The
 * first time for one block, then for twice as many each time: a prompt of which nothing is indexed
 * costs one hash. */
#include "prefix/prefix_match.h"

#include <string.h>

#include "base/build.h"
#include "base/checked.h"
#include "base/minmax.h"
#include "base/window.h"
#include "prefix/prefix_blocks.h"
#include "prefix/prefix_siblings.h"

#define MAX_PREFETCHED 8

struct prefix_ref prefix_index_find(struct prefix_index *index, struct prefix_ref parent,
                                    int32_t namespace_id, const int32_t *tokens,
                                    const uint64_t *extra)
{
    bool is_colliding = false;
    if (namespace_id == PREFIX_NONE ||
        (parent.index != PREFIX_NONE && prefix_node_at(&index->nodes, parent) == NULL)) {
        return PREFIX_ROOT;
    }
    const struct prefix_content content =
        prefix_index_content(index, parent, namespace_id, tokens, extra);
    const int32_t at = prefix_node_search(&index->nodes, &content, &is_colliding);
    return at == PREFIX_NONE ? PREFIX_ROOT : prefix_node_ref(&index->nodes, at);
}

/* --- the longest chain */

/* Where in a prompt the keys have come to. */
struct key_walk {
    const struct prefix_scope *scope;
    const int32_t *tokens;
    const uint64_t *extra;
    int32_t block;
    int32_t namespace_id; /* whose head is in the writer's buffer, of head_bytes */
    size_t head_bytes;
    struct pkv_block_key above;
};

/* Contents of the next blocks, up to max_contents; fewer where the scope ends. Their buckets are
 * prefetched. */
static int32_t make_contents(struct prefix_index *index, struct key_walk *walk,
                             int32_t max_contents, struct prefix_content *contents)
{
    const size_t block_size = (size_t)index->nodes.block_size;
    for (int32_t i = 0; i < max_contents; i++) {
        const size_t first = (size_t)walk->block * block_size;
        const int32_t namespace_id = prefix_scope_at(walk->scope, walk->block);
        if (namespace_id == PREFIX_NONE) {
            return i;
        }
        if (namespace_id != walk->namespace_id) {
            walk->namespace_id = namespace_id;
            walk->head_bytes = prefix_index_head(index, namespace_id);
        }
        prefix_content_make(&index->writer, walk->head_bytes, namespace_id,
                            walk->block > 0 ? &walk->above : NULL, walk->tokens + first,
                            walk->extra == NULL ? NULL : walk->extra + first, &contents[i]);
        walk->above = contents[i].key;
        walk->block++;
        PKV_PREFETCH(&index->nodes.buckets[prefix_node_bucket(&index->nodes, contents[i].key)]);
    }
    return max_contents;
}

/* The first candidate of each. */
static void prefetch_candidates(const struct prefix_node_table *nodes,
                                const struct prefix_content *contents, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        const int32_t at = nodes->buckets[prefix_node_bucket(nodes, contents[i].key)] - 1;
        if (at != PREFIX_NONE) {
            PKV_PREFETCH(&nodes->nodes[at]);
            PKV_PREFETCH(prefix_node_tokens(nodes, at));
            PKV_PREFETCH(prefix_node_blocks(nodes, at));
        }
    }
}

/* Looks up contents one under the other, the first under parent; returns how many were found. */
static int32_t search_chain(struct prefix_node_table *nodes, struct prefix_ref parent,
                            struct prefix_content *contents, int32_t count,
                            struct prefix_ref *found)
{
    bool is_colliding = false;
    for (int32_t i = 0; i < count; i++) {
        contents[i].parent = parent;
        const int32_t at = prefix_node_search(nodes, &contents[i], &is_colliding);
        if (at == PREFIX_NONE) {
            return i;
        }
        parent = prefix_node_ref(nodes, at);
        found[i] = parent;
    }
    return count;
}

int32_t prefix_index_match(struct prefix_index *index, const struct prefix_scope *scope,
                           const int32_t *tokens, const uint64_t *extra, int32_t max_blocks,
                           struct prefix_ref *nodes)
{
    struct key_walk walk = {
        .scope = scope, .tokens = tokens, .extra = extra, .namespace_id = PREFIX_NONE};
    struct prefix_content contents[MAX_PREFETCHED];
    int32_t length = 0;
    for (int32_t wanted = 1; length < max_blocks; wanted = min_i32(2 * wanted, MAX_PREFETCHED)) {
        const int32_t asked = min_i32(wanted, max_blocks - length);
        const int32_t made = make_contents(index, &walk, asked, contents);
        prefetch_candidates(&index->nodes, contents, made);
        const int32_t found =
            search_chain(&index->nodes, length > 0 ? nodes[length - 1] : PREFIX_ROOT, contents,
                         made, nodes + length);
        length += found;
        if (found < asked) {
            break;
        }
    }
    return length;
}

/* --- inside a block */

int32_t prefix_index_match_start(const struct prefix_index *index, const struct prefix_scope *scope,
                                 struct prefix_ref parent, int32_t block, const int32_t *tokens,
                                 const uint64_t *extra, int32_t max_tokens, struct prefix_ref *node)
{
    const struct prefix_start start = {
        .parent = parent,
        .namespace_id = prefix_scope_at(scope, block),
        .tokens = tokens,
        .extra = extra,
        .num_tokens = min_i32(max_tokens, index->nodes.block_size),
    };
    int32_t num_common = 0;
    *node = PREFIX_ROOT;
    if (start.namespace_id == PREFIX_NONE || start.num_tokens <= 0 ||
        (parent.index != PREFIX_NONE && prefix_node_at(&index->nodes, parent) == NULL)) {
        return 0;
    }
    const int32_t at = prefix_siblings_nearest(&index->nodes, &start, &num_common);
    if (at != PREFIX_NONE) {
        *node = prefix_node_ref(&index->nodes, at);
    }
    return num_common;
}

/* --- residency */

/* Adds node i of a chain to a group's run: is_there when it has a block of the group. True when a
 * row can go on behind the node in this group. */
static inline bool add_node(const struct prefix_index *index, int32_t group, struct prefix_run *run,
                            int32_t i, bool is_there, const struct prefix_window *window)
{
    const int32_t span = index->nodes_per_block[group];
    if (span == 1) {
        prefix_run_add(run, i, is_there);
        return prefix_run_suffices(run, i + 1, window, index->nodes.block_size);
    }
    if ((i + 1) % span != 0) {
        return false;
    }
    const int32_t count = (i + 1) / span;
    prefix_run_add(run, count - 1, is_there);
    return prefix_run_suffices(run, count, window, span * index->nodes.block_size);
}

int32_t prefix_index_resident(struct prefix_index *index, const struct prefix_ref *nodes,
                              int32_t count, const struct prefix_window *windows, int32_t *furthest)
{
    const struct prefix_node_table *table = &index->nodes;
    int32_t best = 0;
    int32_t best_of_some = 0;
    memset(index->runs, 0, (size_t)table->num_groups * sizeof index->runs[0]);
    for (int32_t i = 0; i < count; i++) {
        const bool is_stale = prefix_node_at(table, nodes[i]) == NULL;
        bool is_resident = true;
        bool is_in_some = false;
        for (int32_t group = 0; group < table->num_groups; group++) {
            const bool is_there =
                !is_stale && prefix_node_blocks(table, nodes[i].index)[group] >= 0;
            const bool is_in_group =
                add_node(index, group, &index->runs[group], i, is_there, &windows[group]);
            is_resident = is_resident && is_in_group;
            is_in_some = is_in_some || is_in_group;
        }
        best = is_resident ? i + 1 : best;
        best_of_some = is_in_some ? i + 1 : best_of_some;
    }
    if (furthest != NULL) {
        *furthest = best_of_some;
    }
    return best;
}

int32_t prefix_index_resident_in(const struct prefix_index *index, const struct prefix_ref *nodes,
                                 int32_t count, int32_t group, const struct prefix_window *window)
{
    struct prefix_run run = {0, 0};
    int32_t best = 0;
    for (int32_t i = 0; i < count; i++) {
        const bool is_there = prefix_index_block(index, nodes[i], group) != NO_BLOCK;
        best = add_node(index, group, &run, i, is_there, window) ? i + 1 : best;
    }
    return best;
}
