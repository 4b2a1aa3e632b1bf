/* SPDX-License-Identifier: MIT
 *
 * The public calls that read sequences back: the numbers of one or of all, and block tables. All
 * are shown in slices that are copied under the mutex and shown without it, as visit shows blocks.
 */
#include "base/error.h"
#include "base/minmax.h"
#include "base/sized.h"
#include "runtime/resident.h"

/* Blocks that a table holds; of a continuous group, its slot. */
static int32_t num_held(const struct group *group, int32_t index)
{
    const struct seq_table *table = &group->tables.at[index];
    return group_is_paged(group) ? seq_table_num_mapped(table, table->end) : 1;
}

static void read_seq(const pkv_cache *cache, const struct seq *seq, struct pkv_seq_info *info,
                     int32_t *num_blocks)
{
    const int32_t index = sequence_index(&cache->seqs, seq);
    *info = (struct pkv_seq_info){
        .size = sizeof *info,
        .tag = seq->tag,
        .length = seq->length,
        .num_cached = seq->reuse.num_cached,
        .max_rewind = seq->max_rewind,
        .max_tokens = seq->max_tokens,
        .min_length = resident_min_length(cache, index),
        .in_step = seq->in_step,
        .is_swapped = seq->is_swapped,
    };
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        const int32_t held = num_held(&cache->groups[g], index);
        info->num_blocks += held;
        if (num_blocks != NULL) {
            num_blocks[g] = held;
        }
    }
    for (int32_t s = 0; s < cache->num_states; s++) {
        const int32_t held = cache->states[s].lists[index].count;
        info->num_blocks += held;
        if (num_blocks != NULL) {
            num_blocks[cache->states[s].index] = held;
        }
    }
}

enum pkv_status pkv_seq_describe(pkv_cache *cache, pkv_seq handle, struct pkv_seq_info *info,
                                 int32_t *num_blocks)
{
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    const enum pkv_status status = sized_check("info", info, struct pkv_seq_info, in_step);
    if (status != PKV_OK) {
        return status;
    }
    struct pkv_seq_info found;
    cache_lock(cache);
    const struct seq *seq = sequence_find(&cache->seqs, handle);
    if (seq != NULL) {
        read_seq(cache, seq, &found, num_blocks);
    }
    cache_unlock(cache);
    if (seq == NULL) {
        return sequence_refuse_stale(handle);
    }
    sized_fill(info, &found);
    return PKV_OK;
}

/* Sequences of a slice, and records that are looked at for it. */
#define SLICE 32
#define SLICE_RECORDS 512

struct seq_slice {
    pkv_seq seqs[SLICE];
    struct pkv_seq_info infos[SLICE];
    int32_t count;
};

/* Fills a slice from record `first` on; the record after its last. */
static int32_t fill_slice(pkv_cache *cache, int32_t first, struct seq_slice *slice)
{
    const int32_t end = first + min_i32(cache->config.max_seqs - first, SLICE_RECORDS);
    int32_t i = first;
    slice->count = 0;
    cache_queue(cache);
    for (; i < end && slice->count < SLICE; i++) {
        const struct seq *seq = &cache->seqs.at[i];
        if (seq->state == SEQ_LIVE) {
            slice->seqs[slice->count] = sequence_handle(&cache->seqs, i);
            read_seq(cache, seq, &slice->infos[slice->count], NULL);
            slice->count++;
        }
    }
    cache_unlock(cache);
    return i;
}

enum pkv_status pkv_cache_visit_seqs(pkv_cache *cache,
                                     bool (*visit)(void *context, pkv_seq seq,
                                                   const struct pkv_seq_info *info),
                                     void *context)
{
    if (cache == NULL || visit == NULL) {
        return INVALID("%s is NULL", cache == NULL ? "cache" : "visit");
    }
    int32_t next = 0;
    while (next < cache->config.max_seqs) {
        struct seq_slice slice;
        next = fill_slice(cache, next, &slice);
        for (int32_t i = 0; i < slice.count; i++) {
            if (!visit(context, slice.seqs[i], &slice.infos[i])) {
                return PKV_OK;
            }
        }
    }
    return PKV_OK;
}

/* The first max_entries entries of a table; how many it has. */
static int32_t copy_table(const struct group *group, int32_t index, int32_t *entries,
                          int32_t max_entries)
{
    const struct seq_table *table = &group->tables.at[index];
    const bool is_paged = group_is_paged(group);
    const int32_t *from = is_paged ? seq_table_entries(&group->tables, index) : &table->slot;
    const int32_t end = is_paged ? table->end : 1;
    for (int32_t i = 0; i < min_i32(end, max_entries); i++) {
        entries[i] = from[i];
    }
    return end;
}

enum pkv_status pkv_seq_table(pkv_cache *cache, pkv_seq handle, int32_t group, int32_t *entries,
                              int32_t max_entries, int32_t *num_entries)
{
    if (cache == NULL || num_entries == NULL) {
        return INVALID("%s is NULL", cache == NULL ? "cache" : "num_entries");
    }
    if (group < 0 || group >= cache->config.num_groups) {
        return INVALID("group = %d, outside [0, %d)", group, cache->config.num_groups);
    }
    if (max_entries < 0 || (entries == NULL && max_entries > 0)) {
        return INVALID("max_entries = %d, entries %s", max_entries,
                       entries == NULL ? "NULL" : "given");
    }
    cache_lock(cache);
    const struct seq *seq = sequence_find(&cache->seqs, handle);
    if (seq != NULL) {
        *num_entries = copy_table(&cache->groups[group], sequence_index(&cache->seqs, seq), entries,
                                  max_entries);
    }
    cache_unlock(cache);
    return seq != NULL ? PKV_OK : sequence_refuse_stale(handle);
}
