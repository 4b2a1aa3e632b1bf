/* SPDX-License-Identifier: MIT
 *
 * Finding: from content to key, from key to candidates, from candidates to the one that is equal.
 *
 * What is hashed for a block, integers little-endian:
 *
 *   | fingerprint 16 | block_size 4 | num_fields 4 | per field: tag 4, length 4, bytes |   the head
 *   | has_parent 4 | has_extra 4 | parent's key 16 | tokens 4 each | extras 8 each |
 *
 * Each field's length comes before its bytes and all that follows has a size which was told before,
 * so different contents are different strings. The head is written once for a run of blocks of one
 * namespace.
 *
 * Everything that enters the key is compared again at a candidate: the parent by identity (which
 * stands for all that came before), the namespace by its interned id, tokens and extras byte by
 * byte. */
#include "prefix/prefix_table.h"

#include <string.h>

#include "base/minmax.h"
#include "base/window.h"
#include "prefix/prefix_hash.h"

/* --- keys */

/* A constant to every compiler: where it is true, integers are copied as they lie. */
static bool is_little_endian(void)
{
    const union {
        uint32_t value;
        unsigned char bytes[4];
    } one = {1};
    return one.bytes[0] == 1;
}

/* An integer of `bytes` bytes, lowest first. */
static unsigned char *put(unsigned char *to, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        to[i] = (unsigned char)(value >> (8 * i));
    }
    return to + bytes;
}

static unsigned char *put_u32(unsigned char *to, uint32_t value)
{
    if (!is_little_endian()) {
        return put(to, value, sizeof value);
    }
    memcpy(to, &value, sizeof value);
    return to + sizeof value;
}

static unsigned char *put_u64(unsigned char *to, uint64_t value)
{
    if (!is_little_endian()) {
        return put(to, value, sizeof value);
    }
    memcpy(to, &value, sizeof value);
    return to + sizeof value;
}

/* The tokens of a block in one piece: the hash reads words of eight bytes, and such a word waits
 * for two stores of four. */
static unsigned char *put_tokens(unsigned char *to, const int32_t *tokens, size_t count)
{
    if (is_little_endian()) {
        memcpy(to, tokens, count * sizeof tokens[0]);
        return to + count * sizeof tokens[0];
    }
    for (size_t i = 0; i < count; i++) {
        to = put_u32(to, (uint32_t)tokens[i]);
    }
    return to;
}

static unsigned char *put_key(unsigned char *to, struct prefix_key key)
{
    return put_u64(put_u64(to, key.low), key.high);
}

size_t prefix_write_head(struct prefix_index *index, int32_t namespace_id)
{
    struct pkv_namespace_field fields[PKV_MAX_NAMESPACE_FIELDS];
    const int32_t num_fields = prefix_namespace_fields(index, namespace_id, fields);
    unsigned char *to = put_key(index->buffer, index->config.fingerprint);
    to = put_u32(to, (uint32_t)index->config.block_size);
    to = put_u32(to, (uint32_t)num_fields);
    for (int32_t i = 0; i < num_fields; i++) {
        to = put_u32(to, (uint32_t)fields[i].tag);
        to = put_u32(to, (uint32_t)fields[i].length);
        memcpy(to, fields[i].bytes, (size_t)fields[i].length);
        to += fields[i].length;
    }
    return (size_t)(to - index->buffer);
}

/* extra, or NULL when it says nothing. */
static const uint64_t *extra_of(const uint64_t *extra, int32_t count)
{
    uint64_t any = 0;
    for (int32_t i = 0; extra != NULL && i < count; i++) {
        any |= extra[i];
    }
    return any == 0 ? NULL : extra;
}

/* Content of one block behind one with key *above, NULL for none; its parent is not set. */
static struct prefix_content content_behind(struct prefix_index *index,
                                            const struct prefix_key *above, int32_t namespace_id,
                                            const int32_t *tokens, const uint64_t *extra,
                                            size_t head_bytes)
{
    const int32_t block_size = index->config.block_size;
    struct prefix_content content = {
        .namespace_id = namespace_id, .tokens = tokens, .extra = extra_of(extra, block_size)};
    unsigned char *to = index->buffer + head_bytes;
    to = put_u64(to, (uint64_t)(above != NULL) | (uint64_t)(content.extra != NULL) << 32);
    to = put_key(to, above != NULL ? *above : (struct prefix_key){0, 0});
    to = put_tokens(to, tokens, (size_t)block_size);
    for (int32_t i = 0; content.extra != NULL && i < block_size; i++) {
        to = put_u64(to, content.extra[i]);
    }
    content.key = prefix_hash_bytes(index->buffer, (size_t)(to - index->buffer));
    return content;
}

struct prefix_content prefix_content_of(struct prefix_index *index, struct prefix_ref parent,
                                        int32_t namespace_id, const int32_t *tokens,
                                        const uint64_t *extra, size_t head_bytes)
{
    const bool has_parent = parent.index != PREFIX_NONE;
    const struct prefix_key *above = has_parent ? &index->nodes[parent.index].key : NULL;
    struct prefix_content content =
        content_behind(index, above, namespace_id, tokens, extra, head_bytes);
    content.parent = parent;
    return content;
}

/* --- candidates */

/* The seed is this index's own, so nobody can choose contents that share a bucket here without
 * sharing a key. */
uint32_t prefix_bucket(const struct prefix_index *index, struct prefix_key key)
{
    uint64_t mixed = (key.low & index->mask.low) ^ index->config.seed;
    mixed = (mixed ^ (mixed >> 32)) * 0x9e3779b97f4a7c15u;
    mixed ^= key.high & index->mask.high;
    mixed = (mixed ^ (mixed >> 29)) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(mixed >> 32) & (index->num_buckets - 1);
}

static bool has_key(const struct prefix_node *node, struct prefix_key key, struct prefix_key mask)
{
    return (((node->key.low ^ key.low) & mask.low) | ((node->key.high ^ key.high) & mask.high)) ==
           0;
}

static bool has_content(const struct prefix_index *index, int32_t at,
                        const struct prefix_content *content)
{
    const size_t block_size = (size_t)index->config.block_size;
    const struct prefix_node *node = &index->nodes[at];
    if (node->parent.index != content->parent.index ||
        node->parent.generation != content->parent.generation ||
        node->namespace_id != content->namespace_id ||
        node->has_extra != (content->extra != NULL) ||
        memcmp(prefix_tokens_at(index, at), content->tokens,
               block_size * sizeof content->tokens[0]) != 0) {
        return false;
    }
    return !node->has_extra || memcmp(prefix_extra_at(index, at), content->extra,
                                      block_size * sizeof content->extra[0]) == 0;
}

int32_t prefix_search(struct prefix_index *index, const struct prefix_content *content,
                      bool *is_colliding)
{
    const struct prefix_key all = {UINT64_MAX, UINT64_MAX};
    for (int32_t link = index->buckets[prefix_bucket(index, content->key)]; link != 0;) {
        const int32_t at = link - 1;
        const struct prefix_node *node = &index->nodes[at];
        link = node->next;
        if (!has_key(node, content->key, index->mask) ||
            !prefix_index_is_current(index, node->namespace_id, node->epoch)) {
            continue;
        }
        if (has_content(index, at, content)) {
            return at;
        }
        index->counters.collisions++;
        *is_colliding = *is_colliding || has_key(node, content->key, all);
    }
    return PREFIX_NONE;
}

/* --- lookups */

struct prefix_ref prefix_index_find(struct prefix_index *index, struct prefix_ref parent,
                                    int32_t namespace_id, const int32_t *tokens,
                                    const uint64_t *extra)
{
    if (namespace_id == PREFIX_NONE ||
        (parent.index != PREFIX_NONE && prefix_node_at(index, parent) == NULL)) {
        return PREFIX_ROOT;
    }
    bool is_colliding = false;
    const struct prefix_content content = prefix_content_of(
        index, parent, namespace_id, tokens, extra, prefix_write_head(index, namespace_id));
    const int32_t at = prefix_search(index, &content, &is_colliding);
    return at == PREFIX_NONE ? PREFIX_ROOT : prefix_ref_of(index, at);
}

/* A key needs the content of the blocks before it, not their nodes. So the keys of some blocks are
 * made at once and what may be theirs is asked for, and the memory's answers overlap. The first
 * time for one block, then for twice as many each time: a prompt that nothing is known of costs one
 * hash. */
#define MOST_AHEAD 8

/* Where in a prompt the keys have come to. */
struct key_walk {
    const struct prefix_scope *scope;
    const int32_t *tokens;
    const uint64_t *extra;
    int32_t block;
    int32_t namespace_id; /* whose head lies in the buffer, of head_bytes */
    size_t head_bytes;
    struct prefix_key above;
};

/* Contents of the next blocks, up to `most`; fewer where the scope ends. */
static int32_t make_contents(struct prefix_index *index, struct key_walk *walk, int32_t most,
                             struct prefix_content *contents)
{
    const size_t block_size = (size_t)index->config.block_size;
    for (int32_t i = 0; i < most; i++) {
        const size_t first = (size_t)walk->block * block_size;
        const int32_t wanted = prefix_scope_at(walk->scope, walk->block);
        if (wanted == PREFIX_NONE) {
            return i;
        }
        if (wanted != walk->namespace_id) {
            walk->namespace_id = wanted;
            walk->head_bytes = prefix_write_head(index, wanted);
        }
        contents[i] = content_behind(
            index, walk->block > 0 ? &walk->above : NULL, wanted, walk->tokens + first,
            walk->extra == NULL ? NULL : walk->extra + first, walk->head_bytes);
        walk->above = contents[i].key;
        walk->block++;
        PKV_PREFETCH(&index->buckets[prefix_bucket(index, contents[i].key)]);
    }
    return most;
}

/* Asks for the first candidate of each. */
static void ask_for(const struct prefix_index *index, const struct prefix_content *contents,
                    int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        const int32_t at = index->buckets[prefix_bucket(index, contents[i].key)] - 1;
        if (at != PREFIX_NONE) {
            PKV_PREFETCH(&index->nodes[at]);
            PKV_PREFETCH(prefix_tokens_at(index, at));
            PKV_PREFETCH(prefix_blocks_at(index, at));
        }
    }
}

int32_t prefix_index_match(struct prefix_index *index, const struct prefix_scope *scope,
                           const int32_t *tokens, const uint64_t *extra, int32_t max_blocks,
                           struct prefix_ref *nodes)
{
    struct key_walk walk = {
        .scope = scope, .tokens = tokens, .extra = extra, .namespace_id = PREFIX_NONE};
    struct prefix_content contents[MOST_AHEAD];
    struct prefix_ref parent = PREFIX_ROOT;
    bool is_colliding = false;
    int32_t found = 0;
    for (int32_t most = 1; found < max_blocks; most = min_i32(2 * most, MOST_AHEAD)) {
        const int32_t wanted = min_i32(most, max_blocks - found);
        const int32_t count = make_contents(index, &walk, wanted, contents);
        ask_for(index, contents, count);
        for (int32_t i = 0; i < count; i++) {
            contents[i].parent = parent;
            const int32_t at = prefix_search(index, &contents[i], &is_colliding);
            if (at == PREFIX_NONE) {
                return found;
            }
            parent = prefix_ref_of(index, at);
            nodes[found++] = parent;
        }
        if (count < wanted) {
            return found;
        }
    }
    return found;
}

/* --- residency */

/* Adds block number `block` of a chain to a group's runs: runs[0] blocks in a row end with it and
 * runs[1] begin the chain. */
static void extend_runs(int32_t *runs, int32_t block, bool is_there)
{
    runs[0] = is_there ? runs[0] + 1 : 0;
    runs[1] += is_there && runs[1] == block;
}

/* Can a row of `count` full blocks go on in a group with these runs? */
static bool is_enough(const int32_t *runs, int32_t count, const struct prefix_window *window,
                      int32_t block_size)
{
    const int64_t length = (int64_t)count * block_size;
    const int64_t kept = window->kept_prefix < length ? window->kept_prefix : length;
    const int64_t kept_blocks = (kept + block_size - 1) / block_size;
    return runs[0] >= count - first_needed_block(length, window->window, block_size) &&
           runs[1] >= kept_blocks;
}

int32_t prefix_index_resident(struct prefix_index *index, const struct prefix_ref *nodes,
                              int32_t count, const struct prefix_window *windows)
{
    const int32_t num_groups = index->config.num_groups;
    const int32_t block_size = index->config.block_size;
    int32_t best = 0;
    memset(index->runs, 0, 2 * (size_t)num_groups * sizeof index->runs[0]);
    for (int32_t block = 0; block < count; block++) {
        bool is_resident = true;
        for (int32_t group = 0; group < num_groups; group++) {
            int32_t *runs = index->runs + 2 * (size_t)group;
            extend_runs(runs, block, prefix_index_block(index, nodes[block], group) >= 0);
            is_resident = is_enough(runs, block + 1, &windows[group], block_size) && is_resident;
        }
        best = is_resident ? block + 1 : best;
    }
    return best;
}
