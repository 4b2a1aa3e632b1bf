/* SPDX-License-Identifier: MIT
 *
 * By comparing the tokens of every node of the index with those of the prompt, and then asking of
 * every key that is seen whether its block is there. */
#include "reuse_oracle.h"

#include <string.h>

#include "prefix/prefix_case.h"
#include "runtime/cache.h"

/* The fields of a sequence that count in a block, against those of a node. */
static bool has_fields(const struct runtime_case *c, const struct prefix_seq *seq, int32_t block,
                       int32_t namespace_id)
{
    struct pkv_namespace_field of_node[PKV_MAX_NAMESPACE_FIELDS];
    const int32_t count = prefix_index_fields(c->cache->reuse.index, namespace_id, of_node);
    int32_t expected = 0;
    bool has_own_kept_prefix = false; /* a field of tag 0 then, with 4 bytes */
    for (int32_t g = 0; g < c->config.num_groups; g++) {
        has_own_kept_prefix =
            has_own_kept_prefix ||
            (c->groups[g].sliding_window > 0 && seq->options.kept_prefix != NULL &&
             *seq->options.kept_prefix != c->groups[g].kept_prefix);
    }
    if (has_own_kept_prefix) {
        expected++;
        if (count == 0 || of_node[0].tag != 0 ||
            ((const unsigned char *)of_node[0].bytes)[0] != *seq->options.kept_prefix) {
            return false;
        }
    }
    for (int32_t f = 0; f < seq->options.num_namespace_fields; f++) {
        const struct pkv_namespace_field *field = &seq->fields[f];
        bool is_there = false;
        if (field->begins_at / prefix_node_size(c) > block) {
            continue;
        }
        expected++;
        for (int32_t i = 0; i < count; i++) {
            is_there =
                is_there || (of_node[i].tag == field->tag && of_node[i].length == field->length &&
                             memcmp(of_node[i].bytes, field->bytes, (size_t)field->length) == 0);
        }
        if (!is_there) {
            return false;
        }
    }
    return count == expected;
}

static bool has_tokens(const struct runtime_case *c, const struct prefix_seq *seq, int32_t block,
                       struct prefix_ref ref)
{
    const struct prefix_index *index = c->cache->reuse.index;
    const int32_t block_size = prefix_node_size(c);
    const int32_t *ids = prefix_index_tokens(index, ref);
    const uint64_t *extra = prefix_index_extra(index, ref);
    for (int32_t i = 0; i < block_size; i++) {
        const int32_t at = block * block_size + i;
        if (ids[i] != seq->ids[at] ||
            (extra != NULL ? extra[i] : 0) != (seq->has_extra ? seq->extra[at] : 0)) {
            return false;
        }
    }
    return true;
}

static struct prefix_ref find_node(const struct runtime_case *c, const struct prefix_seq *seq,
                                   int32_t block, struct prefix_ref parent)
{
    const struct prefix_index *index = c->cache->reuse.index;
    struct prefix_ref ref = prefix_case_next(index, 0);
    for (; ref.index != PREFIX_NONE; ref = prefix_case_next(index, ref.index + 1)) {
        const struct prefix_node *node = prefix_index_node(index, ref);
        if (node->parent.index == parent.index && node->parent.generation == parent.generation &&
            prefix_index_is_live(index, ref) && !prefix_index_is_tail(index, ref) &&
            has_tokens(c, seq, block, ref) && has_fields(c, seq, block, node->namespace_id)) {
            return ref;
        }
    }
    return PREFIX_ROOT;
}

bool reuse_ends_in_all(const struct runtime_case *c, int32_t length)
{
    int32_t g = 0;
    while (g < c->config.num_groups && length % c->groups[g].block_size == 0) {
        g++;
    }
    return g == c->config.num_groups;
}

/* Every key that a query at `length`, or max_rewind before it, sees has its block, at the node that
 * ends it. */
static bool is_resident(const struct runtime_case *c, const struct prefix_seq *seq,
                        const struct prefix_ref *nodes, int32_t length)
{
    const int32_t node_size = prefix_node_size(c);
    const int32_t rewind = seq->options.max_rewind;
    const int32_t query = length > rewind ? length - rewind : 0;
    for (int32_t g = 0; g < c->config.num_groups; g++) {
        const struct pkv_group_config *group = &c->groups[g];
        const int64_t kept =
            seq->options.kept_prefix != NULL ? *seq->options.kept_prefix : group->kept_prefix;
        for (int32_t j = 0; j < length; j++) {
            const bool is_seen =
                group->sliding_window == 0 || j > query - group->sliding_window || j < kept;
            const int32_t end = (j / group->block_size + 1) * group->block_size;
            if (is_seen && prefix_index_block(c->cache->reuse.index, nodes[end / node_size - 1],
                                              g) == PREFIX_NONE) {
                return false;
            }
        }
    }
    return true;
}

/* First tokens of block number `block` that a node has under parent, but for the last of count. */
static int32_t common_tokens(const struct runtime_case *c, const struct prefix_seq *seq,
                             int32_t block, struct prefix_ref ref, int32_t limit)
{
    const struct prefix_index *index = c->cache->reuse.index;
    const int32_t *ids = prefix_index_tokens(index, ref);
    const uint64_t *extra = prefix_index_extra(index, ref);
    const int32_t first = block * prefix_node_size(c);
    int32_t i = 0;
    const int32_t num_tokens = prefix_index_node(index, ref)->num_tokens;
    limit = limit < num_tokens ? limit : num_tokens;
    while (i < limit && ids[i] == seq->ids[first + i] &&
           (extra != NULL ? extra[i] : 0) == (seq->has_extra ? seq->extra[first + i] : 0)) {
        i++;
    }
    return i;
}

static bool is_everywhere(const struct runtime_case *c, struct prefix_ref ref)
{
    for (int32_t g = 0; g < c->config.num_groups; g++) {
        if (prefix_index_block(c->cache->reuse.index, ref, g) == NO_BLOCK) {
            return false;
        }
    }
    return true;
}

static bool is_mixed(const struct runtime_case *c)
{
    int32_t g = 0;
    while (g < c->config.num_groups && c->groups[g].block_size == c->groups[0].block_size) {
        g++;
    }
    return g < c->config.num_groups;
}

/* The most first tokens, of `limit`, that any block has that may follow `parent`. */
static int32_t reference_start(const struct runtime_case *c, const struct prefix_seq *seq,
                               int32_t block, struct prefix_ref parent, int32_t limit)
{
    const struct prefix_index *index = c->cache->reuse.index;
    struct prefix_ref ref = prefix_case_next(index, 0);
    int32_t longest = 0;
    for (; ref.index != PREFIX_NONE; ref = prefix_case_next(index, ref.index + 1)) {
        const struct prefix_node *node = prefix_index_node(index, ref);
        if (node->parent.index == parent.index && node->parent.generation == parent.generation &&
            prefix_index_is_live(index, ref) && is_everywhere(c, ref) &&
            has_fields(c, seq, block, node->namespace_id)) {
            const int32_t common = common_tokens(c, seq, block, ref, limit);
            longest = common > longest ? common : longest;
        }
    }
    return is_mixed(c) || c->config.no_partial_hits ? 0 : longest;
}

int32_t reuse_reference_hit(const struct runtime_case *c, const struct prefix_seq *seq,
                            int32_t num_tokens, int32_t *num_copied)
{
    struct prefix_ref nodes[CASE_MAX_LENGTH + 1];
    struct prefix_ref parent = PREFIX_ROOT;
    const int32_t block_size = prefix_node_size(c);
    int32_t count = 0;
    while ((count + 1) * block_size < num_tokens) {
        nodes[count] = find_node(c, seq, count, parent);
        if (nodes[count].index == PREFIX_NONE) {
            break;
        }
        parent = nodes[count++];
    }
    while (count > 0 && (!reuse_ends_in_all(c, count * block_size) ||
                         !is_resident(c, seq, nodes, count * block_size))) {
        count--;
    }
    if (num_copied != NULL) {
        const int32_t left = num_tokens - 1 - count * block_size;
        *num_copied = reference_start(c, seq, count, count > 0 ? nodes[count - 1] : PREFIX_ROOT,
                                      left < block_size ? left : block_size - 1);
    }
    return count * block_size;
}

/* Of a block that ends at the node: is it the first of its prompt, or is the one before indexed? */
static bool has_block_before(const struct runtime_case *c, struct prefix_ref ref, int32_t g)
{
    const struct prefix_index *index = c->cache->reuse.index;
    const int32_t span = c->groups[g].block_size / prefix_node_size(c);
    for (int32_t i = 0; i < span; i++) {
        ref = prefix_index_node(index, ref)->parent;
        if (ref.index == PREFIX_NONE) {
            return true;
        }
    }
    return prefix_index_block(index, ref, g) != NO_BLOCK;
}

void reuse_check_chains(const struct runtime_case *c, bool has_orphans)
{
    const struct prefix_index *index = c->cache->reuse.index;
    struct prefix_ref ref = prefix_case_next(index, 0);
    for (; ref.index != PREFIX_NONE; ref = prefix_case_next(index, ref.index + 1)) {
        const struct prefix_node *node = prefix_index_node(index, ref);
        const struct prefix_node *parent = prefix_index_node(index, node->parent);
        if (parent == NULL || !prefix_index_is_live(index, ref)) {
            continue;
        }
        CU_ASSERT(parent->priority >= node->priority);
        for (int32_t g = 0; g < c->config.num_groups; g++) {
            CU_ASSERT(has_orphans || c->groups[g].sliding_window > 0 ||
                      prefix_index_block(index, ref, g) == NO_BLOCK || has_block_before(c, ref, g));
        }
    }
}
