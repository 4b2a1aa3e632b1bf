/* SPDX-License-Identifier: MIT
 *
 * The public call that brings a sequence back. What it published and is still cached it adopts, as
 * an admission would; the rest is copied into blocks of its own, which are given to the nodes that
 * have lost theirs. Both are judged together, with the promise that it had. */
#include "pagedkv/swap.h"

#include "base/error.h"
#include "base/sized.h"
#include "prefix/prefix_blocks.h"
#include "runtime/publish.h"
#include "runtime/quota.h"
#include "runtime/seq_life.h"
#include "runtime/shortage.h"
#include "runtime/swap.h"

/* The cached block of entry i; its node is in reuse.matched. */
static int32_t cached_block(const pkv_cache *cache, const struct group *group, int32_t seq,
                            int32_t i)
{
    const int32_t node = group_node_of_entry(group, i);
    return node < cache->seqs.at[seq].reuse.num_published
               ? prefix_index_block(cache->reuse.index, cache->reuse.matched[node], group->index)
               : NO_BLOCK;
}

/* The table with the blocks that it will have. What was to be copied on the first write is the
 * sequence's own from now on. */
static struct seq_table_demand demand_of(const pkv_cache *cache, const struct group *group,
                                         int32_t seq)
{
    struct seq_table_demand demand = {.table = *swap_table(cache, group->index, seq)};
    struct promise_set after = group->tables.promises;
    demand.table.promise.copies = 0;
    promise_add(&after, &demand.table.promise, demand.table.end);
    demand.num_spare = promise_total(&after) - promise_total(&group->tables.promises);
    for (int32_t i = 0; !seq_table_slides(&demand.table) && i < demand.table.end; i++) {
        if (seq_table_maps(&demand.table, i)) {
            const int32_t block = cached_block(cache, group, seq, i);
            demand.num_spare += block == NO_BLOCK || block_costs_spare(&group->blocks, block);
        }
    }
    return demand;
}

/* The watermark is left as admissions leave it, but for a sequence that alone needs more than
 * remains then: it came to its length by steps, which may use the watermark. */
static enum pkv_status judge_group(const pkv_cache *cache, int32_t g, enum pkv_status before,
                                   struct pkv_shortage *shortage)
{
    const struct group *group = &cache->groups[g];
    const struct seq_table *table = &group->demand.table;
    const int64_t num_mapped = seq_table_num_mapped(table, table->end);
    const int64_t promised = promise_alone(&group->tables.promises, &table->promise);
    const int64_t total = num_mapped > promised ? num_mapped : promised;
    const int64_t left = group->config->num_blocks - total;
    const int64_t watermark = min_i64(cache->config.watermark_blocks, left > 0 ? left : 0);
    const int64_t available = seq_table_num_spare(&group->tables) - watermark;
    const struct shortage_demand wanted = {
        .row = SHORTAGE_NO_ROW,
        .group = g,
        .total = total,
        .more = group->demand.num_spare,
        .limit = group->config->num_blocks,
        .available = available > 0 ? available : 0,
    };
    const enum pkv_status status = shortage_judge(before, &wanted, shortage);
    if (status != before) {
        shortage->evictable = min_i64(block_num_cached(&group->blocks), wanted.available);
    }
    return status;
}

/* The cached block of state i that is away. */
static int32_t cached_state(const pkv_cache *cache, const struct state_group *states, int32_t seq,
                            int32_t i)
{
    if (!cache_has_reuse(cache)) {
        return NO_BLOCK;
    }
    const int32_t length = state_entries(states, seq)[i].length;
    const int32_t node = length / cache->reuse.block_size - 1;
    return length % cache->reuse.block_size == 0 && node < cache->seqs.at[seq].reuse.num_published
               ? prefix_index_block(cache->reuse.index, cache->reuse.matched[node], states->index)
               : NO_BLOCK;
}

static enum pkv_status judge_states(const pkv_cache *cache, struct state_group *states, int32_t seq,
                                    enum pkv_status before, struct pkv_shortage *shortage)
{
    const struct state_group_list *list = &states->lists[seq];
    int32_t num_taken = 0;
    for (int32_t i = 0; i < list->num_away; i++) {
        const int32_t block = cached_state(cache, states, seq, i);
        num_taken += block == NO_BLOCK || block_costs_spare(&states->blocks, block);
    }
    const struct shortage_demand wanted = {
        .row = SHORTAGE_NO_ROW,
        .group = states->index,
        .total = max_i32(list->num_away, list->bound),
        .more = state_list_demand_return(states, seq, num_taken),
        .limit = states->config->num_blocks,
        .available = state_list_num_spare(states),
    };
    const enum pkv_status status = shortage_judge(before, &wanted, shortage);
    if (status != before) {
        shortage->evictable = min_i64(block_num_cached(&states->blocks), wanted.available);
    }
    return status;
}

static enum pkv_status judge(pkv_cache *cache, int32_t index, struct pkv_shortage *shortage)
{
    const struct quota quota = quota_of_scope(cache, &cache->seqs.at[index].reuse.scope);
    enum pkv_status status = PKV_OK;
    int64_t num_charged = 0;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        if (group_is_paged(group)) {
            group->demand = demand_of(cache, group, index);
            num_charged += seq_table_charge(&group->demand.table, group->demand.table.end);
            status = judge_group(cache, g, status, shortage);
        }
    }
    for (int32_t s = 0; s < cache->num_states; s++) {
        status = judge_states(cache, &cache->states[s], index, status, shortage);
    }
    status = quota_judge(status, &quota, SHORTAGE_NO_ROW, num_charged, num_charged, shortage);
    return status == PKV_OK ? PKV_OK : shortage_refuse(&cache->config, status, shortage);
}

/* Adopts what is cached, before the rest can evict it. */
static void adopt(pkv_cache *cache, struct group *group, int32_t seq)
{
    const struct seq_table *table = &group->tables.at[seq];
    for (int32_t i = 0; i < table->end; i++) {
        const int32_t block =
            seq_table_maps(table, i) ? cached_block(cache, group, seq, i) : NO_BLOCK;
        if (block != NO_BLOCK) {
            block_adopt(&group->blocks, block, seq_table_slides(table));
            seq_table_put(&group->tables, seq, i, block);
        }
    }
}

static void adopt_states(const pkv_cache *cache, struct state_group *states, int32_t seq)
{
    state_list_return(states, seq);
    for (int32_t i = 0; i < states->lists[seq].count; i++) {
        const int32_t block = cached_state(cache, states, seq, i);
        if (block != NO_BLOCK) {
            state_list_put(states, seq, i, block);
        }
    }
}

/* Maps free blocks where nothing was adopted, as many at a time as lie side by side. */
static void fill(struct group *group, int32_t seq)
{
    const struct seq_table *table = &group->tables.at[seq];
    const int32_t *entries = seq_table_entries(&group->tables, seq);
    for (int32_t i = 0; i < table->end; i++) {
        int32_t end = i;
        while (end < table->end && seq_table_maps(table, end) && entries[end] == NO_BLOCK) {
            end++;
        }
        if (end > i) {
            seq_table_fill(&group->tables, seq, i, end);
            i = end - 1;
        }
    }
}

/* Nothing is to be copied to the entries that were adopted. */
static void mark_done(pkv_cache *cache, int32_t index)
{
    const struct swap_area *area = &cache->swap;
    int32_t at = area->chains[index].first;
    while (at != NO_UNIT) {
        struct swap_area_unit *unit = &area->units[at];
        unit->is_done = swap_block(cache, unit->group, index, unit->entry) != NO_BLOCK;
        for (int64_t i = swap_num_units(cache, unit->group, index, unit->entry); i > 0; i--) {
            at = area->units[at].next;
        }
    }
}

/* Takes what was judged. */
static void take(pkv_cache *cache, int32_t index)
{
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        if (group_is_paged(group)) {
            seq_table_admit(&group->tables, index, &group->demand.table);
            adopt(cache, group, index);
        }
    }
    for (int32_t s = 0; s < cache->num_states; s++) {
        adopt_states(cache, &cache->states[s], index);
    }
    mark_done(cache, index);
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        if (group_is_paged(&cache->groups[g])) {
            fill(&cache->groups[g], index);
        }
    }
    for (int32_t s = 0; s < cache->num_states; s++) {
        state_list_fill(&cache->states[s], index);
    }
    cache->seqs.at[index].is_swapped = false;
    quota_settle(cache, index);
}

static enum pkv_status unlink_seq(pkv_cache *cache, pkv_seq handle, int32_t *index,
                                  struct pkv_shortage *shortage)
{
    struct seq *seq = NULL;
    enum pkv_status status = sequence_find_idle(&cache->seqs, handle, &seq);
    if (status == PKV_OK && cache->is_closed) {
        status = refuse(PKV_BUSY, "the cache is closed");
    }
    if (status != PKV_OK) {
        return status;
    }
    if (!seq->is_swapped) {
        return INVALID("sequence %016llx is not swapped out", (unsigned long long)handle.id);
    }
    *index = sequence_index(&cache->seqs, seq);
    publish_list(cache, *index);
    status = judge(cache, *index, shortage);
    if (status == PKV_OK) {
        take(cache, *index);
        seq_life_begin_move(cache, *index);
    }
    return status;
}

enum pkv_status pkv_seq_swap_in(pkv_cache *cache, pkv_seq seq, struct pkv_shortage *shortage)
{
    struct pkv_shortage found = {0};
    int32_t index = 0;
    enum pkv_status status = swap_check_call(cache, shortage);
    if (status != PKV_OK) {
        return status;
    }
    cache_lock(cache);
    status = unlink_seq(cache, seq, &index, &found);
    cache_unlock(cache);
    if (shortage != NULL && shortage_is_why(status)) {
        sized_fill(shortage, &found);
    }
    if (status != PKV_OK) {
        return status;
    }
    const size_t bytes = swap_copy(cache, index, false);
    swap_scrub(cache, index);
    cache_lock(cache);
    swap_area_give(&cache->swap, index);
    const bool is_live = seq_life_end_move(cache, index);
    if (is_live) {
        publish_again(cache, index);
        cache->counters.swap_ins++;
        cache->counters.swap_in_bytes += bytes;
    }
    cache_unlock(cache);
    return is_live ? PKV_OK : sequence_refuse_stale(seq);
}
