/* SPDX-License-Identifier: MIT
 *
 * What a sequence knows of itself: its token ids, kept since the index compares content and not
 * hashes, and its newest node, under which the next full block goes. The chain of nodes above that
 * one is what it published or adopted, so a sequence that is cut walks up the chain.
 *
 * Commit publishes block by block: the index finds or makes the node; a node that has no block in a
 * group gets the sequence's own; one that has another is the same content computed twice, and the
 * table is rewritten to that block before the own one is given back. */
#include "runtime/prefix.h"

#include <string.h>

#include "base/error.h"
#include "base/little_endian.h"
#include "base/minmax.h"
#include "prefix/prefix_blocks.h"
#include "prefix/prefix_flush.h"
#include "prefix/prefix_publish.h"
#include "runtime/blocks.h"
#include "runtime/seq_table.h"

/* No caller's: those begin at 1. */
#define KEPT_PREFIX_TAG 0

static int32_t *tokens_of(const pkv_cache *cache, int32_t index)
{
    return cache->prefix.tokens + (size_t)index * cache->prefix.token_stride;
}

static uint64_t *extra_of(const pkv_cache *cache, int32_t index)
{
    return cache->prefix.extra + (size_t)index * cache->prefix.extra_stride;
}

enum pkv_status prefix_require(const pkv_cache *cache)
{
    if (cache == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "cache is NULL");
    }
    return cache_has_prefix(cache)
               ? PKV_OK
               : refuse(PKV_UNSUPPORTED, "the cache was created without prefix_cache");
}

enum pkv_status prefix_name_of(const struct pkv_namespace_field *fields, int32_t num_fields,
                               struct prefix_name *name)
{
    if (num_fields < 0 || num_fields > PKV_MAX_NAMESPACE_FIELDS ||
        (fields == NULL && num_fields > 0)) {
        return refuse(PKV_INVALID_ARGUMENT, "num_namespace_fields = %d, fields %s", num_fields,
                      fields == NULL ? "NULL" : "given");
    }
    for (int32_t i = 0; i < num_fields; i++) {
        const struct pkv_namespace_field *from = &fields[i];
        if (from->tag < 1 || from->begins_at < 0 || from->length < 0 ||
            from->length > PKV_MAX_NAMESPACE_BYTES || (from->bytes == NULL && from->length > 0)) {
            return refuse(PKV_INVALID_ARGUMENT,
                          "namespace field %d: tag %d, length %d, begins_at %d, bytes %s", i,
                          from->tag, from->length, from->begins_at,
                          from->bytes == NULL ? "NULL" : "given");
        }
        name->fields[i] = *from;
    }
    name->count = num_fields;
    return PKV_OK;
}

enum pkv_status prefix_name_kept(const pkv_cache *cache, const struct seq *model,
                                 struct prefix_name *name)
{
    bool matters = false;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        const struct pkv_group_config *group = cache->groups[g].config;
        matters = matters || (group->sliding_window > 0 && model->kept_prefix >= 0 &&
                              model->kept_prefix != group->kept_prefix);
    }
    if (!matters || !cache_has_prefix(cache)) {
        return PKV_OK;
    }
    if (name->count == PKV_MAX_NAMESPACE_FIELDS) {
        return refuse(PKV_INVALID_ARGUMENT,
                      "a kept_prefix of its own takes one of the %d namespace fields",
                      PKV_MAX_NAMESPACE_FIELDS);
    }
    (void)put_u32(name->kept_bytes, (uint32_t)model->kept_prefix);
    name->fields[name->count++] = (struct pkv_namespace_field){
        .tag = KEPT_PREFIX_TAG, .length = sizeof name->kept_bytes, .bytes = name->kept_bytes};
    return PKV_OK;
}

enum pkv_status prefix_join(pkv_cache *cache, const struct prefix_name *name, struct seq *model)
{
    struct seq_prefix *prefix = &model->prefix;
    if (!cache_has_prefix(cache)) {
        return PKV_OK;
    }
    prefix->newest = PREFIX_ROOT;
    prefix->epoch = prefix_index_epoch(cache->prefix.index);
    return prefix_scope_open(cache->prefix.index, name->fields, name->count, &prefix->scope);
}

void prefix_leave(pkv_cache *cache, struct seq *seq)
{
    if (cache_has_prefix(cache)) {
        prefix_index_release(cache->prefix.index, seq->prefix.newest);
        prefix_scope_close(cache->prefix.index, &seq->prefix.scope);
        seq->prefix = (struct seq_prefix){.newest = PREFIX_ROOT};
    }
}

/* What each group's queries see, for sequences like `model`. */
static const struct prefix_window *windows_of(pkv_cache *cache, const struct seq *model)
{
    struct prefix_window *windows = cache->prefix.windows;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        const int64_t window = cache->groups[g].config->sliding_window;
        windows[g] = (struct prefix_window){
            .window = window > 0 ? window + model->max_rewind : 0,
            .kept_prefix = group_kept_prefix(&cache->groups[g], model),
        };
    }
    return windows;
}

int32_t prefix_adoptable(const pkv_cache *cache, const struct pkv_prompt *prompt,
                         int32_t max_cached)
{
    const int32_t most = min_i32(prompt->num_tokens - 1, max_cached);
    return cache_has_prefix(cache)
               ? min_i32(max_i32(most, 0), cache->config.max_seq_len) / cache->prefix.block_size
               : 0;
}

int32_t prefix_match(pkv_cache *cache, const struct seq *model, const struct pkv_prompt *prompt,
                     int32_t max_blocks)
{
    struct prefix_cache *prefix = &cache->prefix;
    if (max_blocks == 0) {
        return 0;
    }
    const int32_t count = prefix_index_match(prefix->index, &model->prefix.scope, prompt->token_ids,
                                             prompt->token_extra, max_blocks, prefix->matched);
    return prefix_index_resident(prefix->index, prefix->matched, count, windows_of(cache, model));
}

static bool extra_is_equal(const uint64_t *a, const uint64_t *b, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        if ((a != NULL ? a[i] : 0) != (b != NULL ? b[i] : 0)) {
            return false;
        }
    }
    return true;
}

/* Leading blocks of a prompt that a sequence has, or will have, in the same namespaces. */
static int32_t shared_blocks(const pkv_cache *cache, const struct seq *model,
                             const struct pkv_prompt *prompt, int32_t seq, int32_t max_blocks)
{
    const int32_t block_size = cache->prefix.block_size;
    const struct seq_prefix *other = &cache->seqs[seq].prefix;
    const int32_t *tokens = tokens_of(cache, seq);
    const uint64_t *extra = other->has_extra ? extra_of(cache, seq) : NULL;
    const int32_t most = min_i32(max_blocks, other->num_known / block_size);
    int32_t count = 0;
    while (count < most) {
        const size_t at = (size_t)count * (size_t)block_size;
        const int32_t namespace_id = prefix_scope_at(&model->prefix.scope, count);
        if (namespace_id == PREFIX_NONE || namespace_id != prefix_scope_at(&other->scope, count) ||
            !prefix_index_is_current(cache->prefix.index, namespace_id, other->epoch) ||
            memcmp(prompt->token_ids + at, tokens + at, (size_t)block_size * sizeof *tokens) != 0 ||
            !extra_is_equal(prompt->token_extra != NULL ? prompt->token_extra + at : NULL,
                            extra != NULL ? extra + at : NULL, block_size)) {
            break;
        }
        count++;
    }
    return count;
}

int32_t prefix_pending(pkv_cache *cache, const struct seq *model, const struct pkv_prompt *prompt,
                       int32_t num_cached, int32_t max_cached)
{
    int32_t most = 0;
    if (!cache_has_prefix(cache)) {
        return 0;
    }
    const int32_t max_blocks = prefix_adoptable(cache, prompt, max_cached);
    for (int32_t i = 0; i < cache->config.max_seqs; i++) {
        const struct seq *seq = &cache->seqs[i];
        if (seq->state != SEQ_LIVE || seq->prefix.no_publish) {
            continue;
        }
        const int32_t shared = shared_blocks(cache, model, prompt, i, max_blocks);
        if (shared > seq->prefix.num_published) {
            most = max_i32(most, shared);
        }
    }
    return max_i32(most * cache->prefix.block_size - num_cached, 0);
}

/* The sequence's newest node is `node`, the last of num_published. */
static void move_newest(pkv_cache *cache, struct seq_prefix *prefix, struct prefix_ref node,
                        int32_t num_published)
{
    prefix_index_hold(cache->prefix.index, node);
    prefix_index_release(cache->prefix.index, prefix->newest);
    prefix->newest = node;
    prefix->num_published = num_published;
}

void prefix_adopt(pkv_cache *cache, int32_t index, int32_t num_blocks)
{
    struct seq *seq = &cache->seqs[index];
    const struct prefix_ref *nodes = cache->prefix.matched;
    if (num_blocks == 0) {
        return;
    }
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        const struct seq_table *table = &group->seq_tables[index];
        int32_t *entries = seq_table_entries(group, index);
        for (int32_t i = 0; i < num_blocks; i++) {
            if (seq_table_maps(table, i)) {
                entries[i] = prefix_index_block(cache->prefix.index, nodes[i], g);
                blocks_adopt(group, entries[i]);
            }
        }
    }
    move_newest(cache, &seq->prefix, nodes[num_blocks - 1], num_blocks);
    seq->prefix.num_tried = num_blocks;
    if (!seq->prefix.no_publish) {
        prefix_index_raise(cache->prefix.index, seq->prefix.newest, seq->prefix.priority);
    }
    seq->length = num_blocks * cache->prefix.block_size;
}

/* Writes tokens [first, ..) into a sequence's row. */
static void remember(pkv_cache *cache, int32_t index, int32_t first,
                     const struct pkv_prompt *tokens)
{
    struct seq_prefix *prefix = &cache->seqs[index].prefix;
    const size_t count = (size_t)tokens->num_tokens;
    if (count == 0) {
        return;
    }
    memcpy(tokens_of(cache, index) + first, tokens->token_ids, count * sizeof *tokens->token_ids);
    uint64_t *extra = extra_of(cache, index);
    if (tokens->token_extra != NULL && !prefix->has_extra) {
        memset(extra, 0, (size_t)cache->config.max_seq_len * sizeof *extra);
        prefix->has_extra = true;
    }
    if (tokens->token_extra != NULL) {
        memcpy(extra + first, tokens->token_extra, count * sizeof *extra);
    } else if (prefix->has_extra) {
        memset(extra + first, 0, count * sizeof *extra);
    }
}

void prefix_note_prompt(pkv_cache *cache, int32_t index, const struct pkv_prompt *prompt)
{
    struct seq_prefix *prefix = &cache->seqs[index].prefix;
    if (cache_has_prefix(cache)) {
        prefix->has_extra = false;
        remember(cache, index, 0, prompt);
        prefix->num_prompt = prompt->num_tokens;
        prefix->num_known = prompt->num_tokens;
    }
}

void prefix_note_step(pkv_cache *cache, int32_t index, int32_t first,
                      const struct pkv_prompt *tokens)
{
    struct seq_prefix *prefix = &cache->seqs[index].prefix;
    const int32_t end = first + tokens->num_tokens;
    if (!cache_has_prefix(cache) || tokens->num_tokens == 0) {
        return;
    }
    const int32_t known = min_i32(prefix->num_prompt, end) - first;
    const uint64_t *extra = prefix->has_extra ? extra_of(cache, index) + first : NULL;
    if (known > 0 && (memcmp(tokens_of(cache, index) + first, tokens->token_ids,
                             (size_t)known * sizeof *tokens->token_ids) != 0 ||
                      !extra_is_equal(extra, tokens->token_extra, known))) {
        prefix->num_prompt = first; /* it goes on otherwise than it said */
    }
    remember(cache, index, first, tokens);
    prefix->num_known = max_i32(prefix->num_prompt, end);
}

void prefix_ask_for(const pkv_cache *cache, int32_t index, int32_t at)
{
    if (cache_has_prefix(cache)) {
        PKV_PREFETCH(tokens_of(cache, index) + at);
    }
}

void prefix_end_step(pkv_cache *cache, int32_t index)
{
    struct seq *seq = &cache->seqs[index];
    seq->prefix.num_known = max_i32(seq->prefix.num_prompt, seq->length);
}

/* Entry i of one table, and the node of its content, become one. */
static void publish_entry(pkv_cache *cache, struct group *group, int32_t index, int32_t i,
                          struct prefix_ref node)
{
    struct prefix_index *of = cache->prefix.index;
    int32_t *entry = &seq_table_entries(group, index)[i];
    const int32_t own = *entry;
    if (own == NO_BLOCK || prefix_index_node_of(of, group->index, own).index != PREFIX_NONE) {
        return; /* behind the window; or published by a sequence that shares it */
    }
    const int32_t canonical = prefix_index_attach(of, node, group->index, own);
    if (canonical == own) {
        blocks_freeze(group, own);
        cache->prefix.counts.stored_blocks++;
    } else if (canonical != NO_BLOCK) {
        blocks_adopt(group, canonical);
        *entry = canonical;
        blocks_drop(cache, group, own, index);
        cache->prefix.counts.deduplicated_blocks++;
    }
}

static bool publish_block(pkv_cache *cache, int32_t index)
{
    struct seq_prefix *prefix = &cache->seqs[index].prefix;
    const int32_t i = prefix->num_published;
    const size_t at = (size_t)i * (size_t)cache->prefix.block_size;
    const uint64_t *extra = prefix->has_extra ? extra_of(cache, index) + at : NULL;
    struct prefix_ref node;
    const enum prefix_insert result = prefix_index_insert(
        cache->prefix.index, prefix->newest, prefix_scope_at(&prefix->scope, i), prefix->epoch,
        tokens_of(cache, index) + at, extra, prefix->priority, &node);
    if (result != PREFIX_NEW && result != PREFIX_FOUND) {
        return false;
    }
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        publish_entry(cache, &cache->groups[g], index, i, node);
    }
    prefix_index_release(cache->prefix.index, prefix->newest);
    prefix->newest = node;
    prefix->num_published = i + 1;
    return true;
}

void prefix_publish(pkv_cache *cache, int32_t index)
{
    struct seq *seq = &cache->seqs[index];
    struct seq_prefix *prefix = &seq->prefix;
    if (!cache_has_prefix(cache) || prefix->no_publish) {
        return;
    }
    const int32_t limit = max_i32(seq->length - seq->max_rewind, 0) / cache->prefix.block_size;
    /* A block that could not be published is tried again when the next one is full. */
    if (limit <= prefix->num_tried) {
        return;
    }
    while (prefix->num_published < limit && publish_block(cache, index)) {
    }
    cache->prefix.counts.unpublished_blocks +=
        (uint64_t)(limit - max_i32(prefix->num_tried, prefix->num_published));
    prefix->num_tried = limit;
}

/* The ancestor of a sequence's newest node that ends num_blocks blocks. A node whose ancestors were
 * forgotten leads to the root; nothing is published under it, for its epoch is over. */
static struct prefix_ref ancestor(const pkv_cache *cache, const struct seq_prefix *prefix,
                                  int32_t num_blocks)
{
    struct prefix_ref node = prefix->newest;
    for (int32_t depth = prefix->num_published; depth > num_blocks; depth--) {
        const struct prefix_node *of = prefix_index_node(cache->prefix.index, node);
        node = of != NULL ? of->parent : PREFIX_ROOT;
    }
    return node;
}

void prefix_cut(pkv_cache *cache, int32_t index, int32_t length)
{
    struct seq_prefix *prefix = &cache->seqs[index].prefix;
    if (!cache_has_prefix(cache)) {
        return;
    }
    const int32_t num_blocks = length / cache->prefix.block_size;
    if (num_blocks < prefix->num_published) {
        move_newest(cache, prefix, ancestor(cache, prefix, num_blocks), num_blocks);
    }
    prefix->num_tried = min_i32(prefix->num_tried, num_blocks);
    prefix->num_prompt = min_i32(prefix->num_prompt, length);
    prefix->num_known = length;
}

void prefix_fork(pkv_cache *cache, int32_t parent, int32_t child, int32_t at)
{
    const struct seq_prefix *from = &cache->seqs[parent].prefix;
    struct seq_prefix *to = &cache->seqs[child].prefix;
    if (!cache_has_prefix(cache)) {
        return;
    }
    const struct pkv_prompt tokens = {
        .token_ids = tokens_of(cache, parent),
        .token_extra = from->has_extra ? extra_of(cache, parent) : NULL,
        .num_tokens = at,
    };
    remember(cache, child, 0, &tokens);
    const int32_t num_blocks = min_i32(from->num_published, at / cache->prefix.block_size);
    move_newest(cache, to, ancestor(cache, from, num_blocks), num_blocks);
    to->num_tried = num_blocks;
    to->num_known = at;
}
