/* SPDX-License-Identifier: MIT
 *
 * The numbers that only grow are in struct counters; what grows and shrinks is counted at each
 * call. */
#include "runtime/stats.h"

#include "base/error.h"
#include "base/sized.h"

static void add_group(const struct group *group, struct pkv_stats *stats)
{
    const int32_t num_free = block_num_free(&group->blocks);
    stats->num_blocks += group->config->num_blocks;
    stats->free_blocks += num_free;
    stats->held_blocks += group->config->num_blocks - num_free;
    stats->cached_blocks += block_num_cached(&group->blocks);
    stats->pinned_blocks += group->blocks.num_pinned;
    stats->table_runs += group->tables.num_runs;
}

/* Cells of a sequence's table, and those that hold committed tokens. */
static void add_table(const struct group *group, int32_t seq, int32_t length,
                      struct pkv_stats *stats)
{
    const struct seq_table *table = &group->tables.at[seq];
    const int64_t block_size = group->config->block_size;
    const int32_t full = (int32_t)(length / block_size);
    const int32_t tail_cells = (int32_t)(length % block_size);
    const int32_t full_end = full < table->end ? full : table->end;
    const int64_t num_mapped = seq_table_num_mapped(table, table->end);
    stats->table_blocks += num_mapped;
    stats->table_cells += num_mapped * block_size;
    stats->used_cells += seq_table_num_mapped(table, full_end) * block_size;
    stats->used_cells += seq_table_maps(table, full) ? tail_cells : 0;
}

static void read_index(const pkv_cache *cache, struct pkv_stats *stats)
{
    const struct prefix_index *index = cache->reuse.index;
    const struct prefix_counters counters = prefix_index_counters(index);
    stats->evicted_blocks = counters.evictions;
    stats->collisions = counters.collisions;
    stats->num_nodes = prefix_index_num_used(index);
    stats->max_nodes = prefix_index_num_nodes(index);
    stats->num_pins = cache->pins.num_used;
    stats->num_events = cache->events.next - 1;
    stats->lost_events = cache->events.total_lost;
    stats->index_bytes = cache->reuse.index_bytes;
}

static struct pkv_stats counted(const struct counters *counters)
{
    return (struct pkv_stats){
        .num_admissions = counters->num_admissions,
        .queried_tokens = counters->queried_tokens,
        .hit_tokens = counters->hit_tokens,
        .readmitted_tokens = counters->readmitted_tokens,
        .rehit_tokens = counters->rehit_tokens,
        .copied_hit_tokens = counters->copied_hit_tokens,
        .stored_blocks = counters->stored_blocks,
        .deduplicated_blocks = counters->deduplicated_blocks,
        .unpublished_blocks = counters->unpublished_blocks,
        .evicted_age_ns = counters->evicted_age_ns,
        .copied_blocks = counters->copied_blocks,
        .expired_pins = counters->expired_pins,
        .attention_bytes = counters->attention_bytes,
        .swap_outs = counters->swap_outs,
        .swap_ins = counters->swap_ins,
        .swap_out_bytes = counters->swap_out_bytes,
        .swap_in_bytes = counters->swap_in_bytes,
    };
}

void stats_read(const pkv_cache *cache, struct pkv_stats *stats)
{
    *stats = counted(&cache->counters);
    stats->swap_units = cache->swap.num_units;
    stats->used_swap_units = cache->swap.num_units - cache->swap.num_free;
    if (cache_has_reuse(cache)) {
        read_index(cache, stats);
    }
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        if (group_is_paged(&cache->groups[g])) {
            add_group(&cache->groups[g], stats);
        }
    }
    for (int32_t i = 0; i < cache->config.max_seqs; i++) {
        const struct seq *seq = &cache->seqs.at[i];
        stats->num_seqs += seq->state == SEQ_LIVE;
        stats->swapped_seqs += seq->state == SEQ_LIVE && seq->is_swapped;
        for (int32_t g = 0; seq->state != SEQ_FREE && g < cache->config.num_groups; g++) {
            if (group_is_paged(&cache->groups[g])) {
                add_table(&cache->groups[g], i, seq->length, stats);
            }
        }
    }
}

enum pkv_status pkv_cache_stats(pkv_cache *cache, struct pkv_stats *stats)
{
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    const enum pkv_status status = sized_check("stats", stats, struct pkv_stats, index_bytes);
    if (status != PKV_OK) {
        return status;
    }
    struct pkv_stats found;
    cache_lock(cache);
    stats_read(cache, &found);
    cache_unlock(cache);
    sized_fill(stats, &found);
    return PKV_OK;
}
