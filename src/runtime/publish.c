/* SPDX-License-Identifier: MIT
 *
 * A sequence holds its newest node, under which its next full block goes. The chain of nodes above
 * that one is what it published or adopted, so a sequence that is cut walks up the chain.
 *
 * Commit publishes block by block: the index finds or makes the node; a node that has no block in a
 * group gets the sequence's own; one that has another is the same content computed twice, and the
 * table is rewritten to that block before the sequence's own is dropped. */
#include "runtime/publish.h"

#include "base/minmax.h"
#include "base/window.h"
#include "prefix/prefix_blocks.h"
#include "prefix/prefix_claim.h"
#include "prefix/prefix_order.h"
#include "prefix/prefix_publish.h"
#include "prefix/prefix_retain.h"
#include "runtime/match.h"
#include "runtime/state_publish.h"

/* The sequence's newest node is `node`, the last of num_published. */
static void move_newest(struct prefix_index *index, struct seq_reuse *reuse, struct prefix_ref node,
                        int32_t num_published)
{
    prefix_index_hold(index, node);
    prefix_index_release(index, reuse->newest);
    reuse->newest = node;
    reuse->num_published = num_published;
}

static void adopt_in_group(const struct reuse *reuse, struct group *group, int32_t seq,
                           int32_t num_blocks, enum prefix_standing standing)
{
    struct prefix_index *index = reuse->index;
    const struct seq_table *table = &group->tables.at[seq];
    const bool slides = seq_table_slides(table);
    seq_table_set(&group->tables, seq, table->end);
    for (int32_t i = 0; i < table->end; i++) {
        if (seq_table_maps(table, i)) {
            const struct prefix_ref node =
                match_node(reuse, group_node_of_entry(group, i), num_blocks);
            const int32_t block = prefix_index_block(index, node, group->index);
            block_adopt(&group->blocks, block, slides);
            prefix_index_settle(index, group->index, block, standing);
            seq_table_put(&group->tables, seq, i, block);
        }
    }
}

void publish_adopt(pkv_cache *cache, int32_t seq, int32_t num_blocks, int32_t num_copied)
{
    struct prefix_index *index = cache->reuse.index;
    struct seq_reuse *reuse = &cache->seqs.at[seq].reuse;
    if (num_blocks == 0 && num_copied == 0) {
        return;
    }
    const enum prefix_standing standing =
        reuse->growth == SEQ_GROWS_HIT ? PREFIX_SETTLED : PREFIX_SHARED;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        adopt_in_group(&cache->reuse, &cache->groups[g], seq, num_blocks, standing);
    }
    if (num_blocks > 0) {
        const struct prefix_ref node = cache->reuse.matched[num_blocks - 1];
        state_publish_adopt(cache, seq, num_blocks * cache->reuse.block_size, node, standing);
        move_newest(index, reuse, node, num_blocks);
        reuse->num_tried = num_blocks;
        if (!reuse->no_publish) {
            prefix_index_claim(index, reuse->newest, reuse->priority, reuse->retention_ns);
        }
    }
    cache->seqs.at[seq].length = num_blocks * cache->reuse.block_size + num_copied;
}

/* A block that another holder keeps does not become free for the one that is held instead. */
static bool may_merge(const struct group *group, int32_t own, int32_t canonical)
{
    return pkv_pool_ref_count(group->blocks.pool, own) == 1 ||
           !block_costs_spare(&group->blocks, canonical) || seq_table_num_spare(&group->tables) > 0;
}

/* Makes the sequence's own block that of the node, and returns the node's then. A free one that may
 * not be merged with makes room: it would be evicted before what goes on from it, which is held. */
static int32_t attach_own(struct group *group, int32_t own, struct prefix_ref node)
{
    struct prefix_index *index = group->blocks.context->index;
    const int32_t canonical = prefix_index_attach(index, node, group->index, own);
    if (canonical == NO_BLOCK || canonical == own || may_merge(group, own, canonical) ||
        pkv_pool_ref_count(group->blocks.pool, canonical) > 0) {
        return canonical;
    }
    block_uncache(&group->blocks, canonical);
    block_scrub_uncached(&group->blocks, canonical, 1);
    return prefix_index_attach(index, node, group->index, own);
}

/* The entry of one table that ends with node i of a prefix, if one does, and that node become one.
 */
static void publish_entry(pkv_cache *cache, struct group *group, int32_t seq, int32_t i,
                          struct prefix_ref node)
{
    struct prefix_index *index = cache->reuse.index;
    const int32_t entry = group_entry_of_node(group, i);
    const int32_t own = entry >= 0 ? seq_table_block(&group->tables, seq, entry) : NO_BLOCK;
    if (own == NO_BLOCK || prefix_index_node_of(index, group->index, own).index != PREFIX_NONE) {
        return; /* none ends here; out of the window; or published by a sequence that shares it */
    }
    const int32_t canonical = attach_own(group, own, node);
    if (canonical == own) {
        block_freeze(&group->blocks, own);
        cache->counters.stored_blocks++;
        if (!cache->config.no_write_behind) {
            offload_store(&cache->offload, node, group->index, own);
        }
    } else if (canonical != NO_BLOCK && may_merge(group, own, canonical)) {
        const bool slides = seq_table_slides(&group->tables.at[seq]);
        block_adopt(&group->blocks, canonical, slides);
        seq_table_put(&group->tables, seq, entry, canonical);
        block_drop(&group->blocks, own, seq, slides);
        cache->counters.deduplicated_blocks++;
    }
}

/* Is the node that ends num_blocks of what was matched one that nothing went on from? */
static bool is_end(const pkv_cache *cache, int32_t num_blocks)
{
    return num_blocks > 0 &&
           prefix_index_node(cache->reuse.index, cache->reuse.matched[num_blocks - 1])
                   ->num_continued == 0;
}

void publish_met(pkv_cache *cache, int32_t seq, int32_t num_adopted)
{
    const int32_t num_known = cache->reuse.num_known;
    if (num_known > 0) {
        prefix_index_meet(cache->reuse.index, cache->reuse.matched[num_known - 1]);
    }
    const bool is_whole = num_adopted > 0 && /* as much as a hit can have of it */
                          num_known - num_adopted < cache->reuse.index->hit_nodes;
    cache->seqs.at[seq].reuse.growth = is_end(cache, num_adopted)  ? SEQ_GROWS_HIT
                                       : !is_end(cache, num_known) ? SEQ_GROWS_NOT
                                       : is_whole                  ? SEQ_GROWS_HIT
                                                                   : SEQ_GROWS;
}

void publish_missed(pkv_cache *cache, const struct seq *prototype, struct prefix_ref furthest)
{
    prefix_index_retain(cache->reuse.index, furthest, prototype->max_rewind);
}

/* Has the sequence a block of its own at entry i in every group, which is in no node? */
static bool owns_entry(const pkv_cache *cache, int32_t seq, int32_t i)
{
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        const struct group *group = &cache->groups[g];
        if (!seq_table_maps(&group->tables.at[seq], i)) {
            return false;
        }
        const int32_t block = seq_table_entries(&group->tables, seq)[i];
        if (pkv_pool_ref_count(group->blocks.pool, block) != 1 ||
            prefix_index_node_of(cache->reuse.index, g, block).index != PREFIX_NONE) {
            return false;
        }
    }
    return true;
}

/* The sequence ends: what it has behind its last whole block becomes a tail, which later prompts
 * copy from. Only when all before it is published, and no other sequence holds the block. */
static void publish_tail(pkv_cache *cache, int32_t seq)
{
    struct prefix_index *index = cache->reuse.index;
    const struct seq *of = &cache->seqs.at[seq];
    const int32_t block_size = cache->reuse.block_size;
    const int32_t length = max_i32(of->length - of->max_rewind, 0);
    const int32_t i = length / block_size;
    const int32_t num_tokens = length % block_size;
    if (cache->config.no_partial_hits || num_tokens == 0 || i != of->reuse.num_published ||
        !owns_entry(cache, seq, i)) {
        return;
    }
    const struct pkv_prompt tokens =
        seq_tokens_at(&cache->reuse.tokens, seq, &of->tokens, i * block_size, num_tokens);
    const struct prefix_start start = {.parent = of->reuse.newest,
                                       .namespace_id = prefix_scope_at(&of->reuse.scope, i),
                                       .tokens = tokens.token_ids,
                                       .extra = tokens.token_extra,
                                       .num_tokens = num_tokens};
    const struct prefix_ref node = prefix_index_insert_tail(index, &start, of->reuse.epoch);
    if (node.index == PREFIX_NONE) {
        return;
    }
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        const int32_t block = seq_table_entries(&group->tables, seq)[i];
        (void)prefix_index_attach(index, node, g, block);
        block_freeze(&group->blocks, block);
    }
    prefix_index_supersede(index, node);
    prefix_index_release(index, node);
}

/* Blocks of the sequence's that have nodes, which settle if `settles`. */
static int32_t settle(pkv_cache *cache, const struct group *group, int32_t seq, bool settles)
{
    struct prefix_index *index = cache->reuse.index;
    const struct seq_table *table = &group->tables.at[seq];
    const int32_t *entries = seq_table_entries(&group->tables, seq);
    int32_t count = 0;
    const int32_t end = cache->seqs.at[seq].reuse.num_published / group->nodes_per_block;
    for (int32_t i = 0; i < end; i++) {
        if (seq_table_maps(table, i) &&
            prefix_index_node_of(index, group->index, entries[i]).index != PREFIX_NONE) {
            count++;
            if (settles) {
                prefix_index_settle(index, group->index, entries[i], PREFIX_SETTLED);
            }
        }
    }
    return count;
}

/* What a priority that ends keeps is not to stay beyond that. */
static bool may_settle(pkv_cache *cache, const struct group *group, int32_t seq)
{
    const struct prefix_index *index = cache->reuse.index;
    const struct seq_reuse *reuse = &cache->seqs.at[seq].reuse;
    if (reuse->growth == SEQ_GROWS_HIT) {
        return true;
    }
    return (reuse->growth == SEQ_GROWS || prefix_order_is_late(index, group->index)) &&
           (reuse->retention_ns == 0 || reuse->priority == 0) &&
           prefix_index_has_room(index, group->index, reuse->priority,
                                 settle(cache, group, seq, false));
}

void publish_finish(pkv_cache *cache, int32_t seq)
{
    const struct seq *of = &cache->seqs.at[seq];
    if (cache_has_reuse(cache) && !of->reuse.no_publish) {
        publish_tail(cache, seq);
        for (int32_t g = 0; g < cache->config.num_groups; g++) {
            const struct group *group = &cache->groups[g];
            if (may_settle(cache, group, seq)) {
                settle(cache, group, seq, true);
            }
        }
        prefix_index_retain(cache->reuse.index, of->reuse.newest, of->max_rewind);
    }
}

/* Does a hit that ends at a multiple of segment_tokens need entry i of a window group? */
static bool is_in_segment(const struct group *group, int32_t i, int64_t window)
{
    const int64_t segment = group->config->segment_tokens;
    const int32_t block_size = group->config->block_size;
    const int64_t end = ((int64_t)i * block_size / segment + 1) * segment;
    return first_needed_block(end, window, block_size) <= i;
}

/* Node i was published: what only a hit that ends before it needs in a window group leaves the
 * index, but for one window a segment. */
static void thin_out(pkv_cache *cache, struct group *group, int32_t seq, int32_t i,
                     struct prefix_ref node)
{
    const struct seq *of = &cache->seqs.at[seq];
    const int32_t block_size = group->config->block_size;
    const int64_t window = group->config->sliding_window + of->max_rewind;
    const int64_t hit = (int64_t)cache->reuse.index->hit_nodes * cache->reuse.block_size;
    const int64_t length = (int64_t)(i + 1) * cache->reuse.block_size;
    if (group->config->segment_tokens == 0 || length % hit != 0) {
        return;
    }
    const int32_t kept = config_blocks_of_cells(group_kept_prefix(group, of), block_size);
    const int32_t end = first_needed_block(length, window, block_size);
    int32_t depth = i;
    for (int32_t entry = end - 1;
         entry >= max_i32(kept, first_needed_block(length - hit, window, block_size)); entry--) {
        const struct prefix_node *at = prefix_index_node(cache->reuse.index, node);
        for (; at != NULL && depth > group_node_of_entry(group, entry); depth--) {
            node = at->parent;
            at = prefix_index_node(cache->reuse.index, node);
        }
        const int32_t block = prefix_index_block(cache->reuse.index, node, group->index);
        if (block != NO_BLOCK && !is_in_segment(group, entry, window)) {
            block_forgo(&group->blocks, block);
        }
    }
}

/* Publishes the block after the newest; false when the index does not take it now. */
static bool publish_next(pkv_cache *cache, int32_t seq)
{
    struct seq_reuse *reuse = &cache->seqs.at[seq].reuse;
    const int32_t i = reuse->num_published;
    const int32_t block_size = cache->reuse.block_size;
    const struct pkv_prompt tokens = seq_tokens_at(
        &cache->reuse.tokens, seq, &cache->seqs.at[seq].tokens, i * block_size, block_size);
    struct prefix_ref node;
    const enum prefix_insert result =
        prefix_index_insert(cache->reuse.index, reuse->newest, prefix_scope_at(&reuse->scope, i),
                            reuse->epoch, tokens.token_ids, tokens.token_extra, 0, &node);
    if (result != PREFIX_NEW && result != PREFIX_FOUND) {
        return false;
    }
    prefix_index_claim(cache->reuse.index, node, reuse->priority, reuse->retention_ns);
    if (result == PREFIX_NEW) {
        offload_clear_origin(&cache->offload, node);
        prefix_index_continue(cache->reuse.index, reuse->newest, cache->seqs.at[seq].max_rewind);
    }
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        publish_entry(cache, &cache->groups[g], seq, i, node);
        thin_out(cache, &cache->groups[g], seq, i, node);
    }
    state_publish(cache, seq, (i + 1) * block_size, node);
    prefix_index_supersede(cache->reuse.index, node);
    prefix_index_release(cache->reuse.index, reuse->newest);
    reuse->newest = node; /* insert holds it */
    reuse->num_published = i + 1;
    return true;
}

/* Blocks of a sequence of `length` tokens that may have nodes; num_tried when there are no more of
 * them than at the last commit. */
static int32_t publish_limit(const pkv_cache *cache, const struct seq *of, int32_t length)
{
    const int32_t num_tried = of->reuse.num_tried;
    if (!cache_has_reuse(cache) || of->reuse.no_publish) {
        return num_tried;
    }
    return max_i32(max_i32(length - of->max_rewind, 0) / cache->reuse.block_size, num_tried);
}

void publish_expect(pkv_cache *cache, int32_t seq, int32_t length)
{
    struct step *step = &cache->step;
    const struct seq *of = &cache->seqs.at[seq];
    const int32_t i = of->reuse.num_published;
    if (publish_limit(cache, of, length) <= of->reuse.num_tried) {
        return;
    }
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        const int32_t entry = group_entry_of_node(group, i);
        const bool is_mapped = entry >= 0 && seq_table_maps(&group->tables.at[seq], entry);
        group->step.publishing[step->num_publishing] =
            is_mapped ? seq_table_block(&group->tables, seq, entry) : NO_BLOCK;
    }
    step->publishing[step->num_publishing++] =
        (struct step_publishing){.seq = seq, .entry = i, .above = of->reuse.newest};
}

static void prefetch_records(const pkv_cache *cache, int32_t k)
{
    const struct step_publishing *of = &cache->step.publishing[k];
    sequence_prefetch(&cache->seqs, of->seq);
    seq_tokens_prefetch(&cache->reuse.tokens, of->seq, of->entry * cache->reuse.block_size);
    prefix_index_prefetch(cache->reuse.index, of->above);
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        const struct group *group = &cache->groups[g];
        PKV_PREFETCH(&group->tables.at[of->seq]);
        if (group->step.publishing[k] != NO_BLOCK) {
            block_prefetch_publish(&group->blocks, group->step.publishing[k]);
        }
    }
}

static void prefetch_bucket(pkv_cache *cache, int32_t k)
{
    struct step_publishing *of = &cache->step.publishing[k];
    const struct seq *seq = &cache->seqs.at[of->seq];
    const int32_t block_size = cache->reuse.block_size;
    const struct pkv_prompt tokens = seq_tokens_at(&cache->reuse.tokens, of->seq, &seq->tokens,
                                                   of->entry * block_size, block_size);
    of->bucket = prefix_index_prefetch_bucket(cache->reuse.index, of->above,
                                              prefix_scope_at(&seq->reuse.scope, of->entry),
                                              tokens.token_ids, tokens.token_extra);
}

void publish_prefetch(pkv_cache *cache)
{
    const struct step *step = &cache->step;
    for (int32_t k = 0; k < step->num_publishing; k++) {
        prefetch_records(cache, k);
    }
    for (int32_t k = 0; k < step->num_publishing; k++) {
        prefetch_bucket(cache, k);
    }
    for (int32_t k = 0; k < step->num_publishing; k++) {
        prefix_index_prefetch_found(cache->reuse.index, step->publishing[k].bucket);
    }
}

void publish_full_blocks(pkv_cache *cache, int32_t seq)
{
    const struct seq *of = &cache->seqs.at[seq];
    struct seq_reuse *reuse = &cache->seqs.at[seq].reuse;
    const int32_t limit = publish_limit(cache, of, of->length);
    /* A block that could not be published is tried again when the next one is full. */
    if (limit <= reuse->num_tried) {
        return;
    }
    while (reuse->num_published < limit && publish_next(cache, seq)) {
    }
    cache->counters.unpublished_blocks +=
        (uint64_t)(limit - max_i32(reuse->num_tried, reuse->num_published));
    reuse->num_tried = limit;
}

/* The ancestor of a sequence's newest node that ends num_blocks blocks. A node whose ancestors were
 * flushed leads to the root; nothing is published under it, for its epoch is over. */
static struct prefix_ref ancestor(const struct prefix_index *index, const struct seq_reuse *reuse,
                                  int32_t num_blocks)
{
    struct prefix_ref node = reuse->newest;
    for (int32_t depth = reuse->num_published; depth > num_blocks; depth--) {
        const struct prefix_node *of = prefix_index_node(index, node);
        node = of != NULL ? of->parent : PREFIX_ROOT;
    }
    return node;
}

void publish_list(pkv_cache *cache, int32_t seq)
{
    const struct seq_reuse *reuse = &cache->seqs.at[seq].reuse;
    struct prefix_ref node = reuse->newest;
    for (int32_t i = reuse->num_published - 1; i >= 0; i--) {
        const struct prefix_node *of = prefix_index_node(cache->reuse.index, node);
        cache->reuse.matched[i] = of != NULL ? node : PREFIX_ROOT;
        node = of != NULL ? of->parent : PREFIX_ROOT;
    }
}

void publish_again(pkv_cache *cache, int32_t seq)
{
    const struct seq_reuse *reuse = &cache->seqs.at[seq].reuse;
    if (!cache_has_reuse(cache) || reuse->no_publish) {
        return;
    }
    publish_list(cache, seq);
    for (int32_t i = 0; i < reuse->num_published; i++) {
        for (int32_t g = 0; g < cache->config.num_groups; g++) {
            publish_entry(cache, &cache->groups[g], seq, i, cache->reuse.matched[i]);
        }
        state_publish(cache, seq, (i + 1) * cache->reuse.block_size, cache->reuse.matched[i]);
        prefix_index_supersede(cache->reuse.index, cache->reuse.matched[i]);
    }
}

int32_t publish_block_of(const pkv_cache *cache, int32_t seq, int32_t group, int32_t i)
{
    const struct seq_reuse *reuse = &cache->seqs.at[seq].reuse;
    const int32_t end = group_node_of_entry(&cache->groups[group], i);
    if (!cache_has_reuse(cache) || end >= reuse->num_published) {
        return NO_BLOCK;
    }
    const struct prefix_ref node = ancestor(cache->reuse.index, reuse, end + 1);
    return prefix_index_node(cache->reuse.index, node) != NULL
               ? prefix_index_block(cache->reuse.index, node, group)
               : NO_BLOCK;
}

void publish_cut(pkv_cache *cache, int32_t seq, int32_t length)
{
    struct prefix_index *index = cache->reuse.index;
    struct seq_reuse *reuse = &cache->seqs.at[seq].reuse;
    if (!cache_has_reuse(cache)) {
        return;
    }
    const int32_t num_blocks = length / cache->reuse.block_size;
    if (num_blocks < reuse->num_published) {
        move_newest(index, reuse, ancestor(index, reuse, num_blocks), num_blocks);
    }
    reuse->num_tried = min_i32(reuse->num_tried, num_blocks);
    seq_tokens_cut(&cache->seqs.at[seq].tokens, length);
}

void publish_fork(pkv_cache *cache, int32_t parent, int32_t child, int32_t at)
{
    struct prefix_index *index = cache->reuse.index;
    const struct seq *from = &cache->seqs.at[parent];
    struct seq *to = &cache->seqs.at[child];
    if (!cache_has_reuse(cache)) {
        return;
    }
    seq_tokens_fork(&cache->reuse.tokens, parent, &from->tokens, child, &to->tokens, at);
    const int32_t num_blocks = min_i32(from->reuse.num_published, at / cache->reuse.block_size);
    move_newest(index, &to->reuse, ancestor(index, &from->reuse, num_blocks), num_blocks);
    to->reuse.num_tried = num_blocks;
    to->reuse.growth = from->reuse.growth;
}
