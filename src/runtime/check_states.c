/* SPDX-License-Identifier: MIT
 *
 * As in check_group: first every holder of a block is counted, lists, the open step and pins, then
 * each block is compared with its tally. */
#include "runtime/check_states.h"

#include <string.h>

#include "alloc/block_pool.h"
#include "prefix/prefix_blocks.h"

static void count_block(pkv_cache *cache, const struct state_group *states, int32_t block,
                        const char *holder, int32_t of, struct report *report)
{
    if (report_expect(report, block >= 0 && block < states->config->num_blocks,
                      "a state outside the pool (group %d, %s %d, block %d)", states->index, holder,
                      of, block)) {
        cache->tallies[block].count++;
    }
}

static void count_sliding(pkv_cache *cache, const struct state_group *states, int32_t block,
                          bool slides)
{
    if (block >= 0 && block < states->config->num_blocks) {
        cache->tallies[block].num_sliding += slides;
    }
}

static void check_list(pkv_cache *cache, const struct state_group *states, int32_t seq,
                       struct report *report)
{
    const struct state_group_list *list = &states->lists[seq];
    const struct state_entry *entries = state_entries(states, seq);
    const int32_t length = cache->seqs.at[seq].length;
    report_expect(report,
                  list->count >= 0 && list->count <= states->max_entries && list->owed >= 0 &&
                      list->owed <= list->bound,
                  "a list of states out of bounds (group %d, sequence %d, count %d, owed %d)",
                  states->index, seq, list->count, list->owed);
    report_expect(report,
                  list->num_away == 0 ||
                      (list->count == 0 && list->owed == 0 && cache->seqs.at[seq].is_swapped),
                  "states that are away of a sequence that is not (group %d, sequence %d)",
                  states->index, seq);
    for (int32_t i = 0; i < list->count; i++) {
        report_expect(
            report,
            entries[i].length > (i > 0 ? entries[i - 1].length : 0) && entries[i].length <= length,
            "states out of order (group %d, sequence %d, entry %d)", states->index, seq, i);
        count_block(cache, states, entries[i].block, "sequence", seq, report);
        count_sliding(cache, states, entries[i].block, entries[i].slides);
    }
}

static void count_writes(pkv_cache *cache, const struct state_group *states, struct report *report)
{
    const struct step *step = &cache->step;
    for (int32_t i = 0; step->is_open && i < step->num_rows; i++) {
        const int32_t end = step->cu_seqlens[i + 1];
        for (int32_t t = step->cu_seqlens[i]; t < end; t++) {
            const bool is_counted = states->step.in_place[i] && t == end - 1;
            if (states->step.writes[t] != NO_BLOCK && !is_counted) {
                const int32_t block = states->step.writes[t];
                count_block(cache, states, block, "row", i, report);
                count_sliding(cache, states, block, state_list_slides(states, block));
            }
        }
    }
}

static void count_pins(pkv_cache *cache, const struct state_group *states, struct report *report)
{
    const struct block_set *blocks = &states->blocks;
    int32_t num_pinned = 0;
    for (int32_t i = 0; i < cache->pins.capacity; i++) {
        if (cache->pins.at[i].num_nodes > 0) {
            const int32_t block =
                prefix_index_block(cache->reuse.index, cache->pins.at[i].leaf, states->index);
            count_block(cache, states, block, "pin", i, report);
            if (block >= 0) {
                cache->tallies[block].num_pins++;
            }
        }
    }
    for (int32_t block = 0; block < blocks->num_blocks; block++) {
        num_pinned += cache->tallies[block].num_pins > 0;
        report_expect(report, cache->tallies[block].num_pins == blocks->at[block].num_pins,
                      "a state's number of pins (group %d, block %d)", states->index, block);
    }
    report_expect(report, num_pinned == blocks->num_pinned,
                  "the number of pinned states (group %d, %d found)", states->index, num_pinned);
}

/* total_owed: of all lists. */
static void check_promises(const pkv_cache *cache, const struct state_group *states,
                           int64_t total_owed, struct report *report)
{
    const struct block_set *blocks = &states->blocks;
    int32_t num_windowed = 0;
    for (int32_t block = 0; block < blocks->num_blocks; block++) {
        const int32_t num_sliding = cache->tallies[block].num_sliding;
        total_owed += num_sliding;
        num_windowed += block_is_windowed(blocks, block);
        report_expect(report, num_sliding == blocks->at[block].num_sliding,
                      "how many have a state as part of a promise (group %d, block %d)",
                      states->index, block);
    }
    report_expect(report, total_owed == states->total_promised,
                  "the number of states promised (group %d, %lld found)", states->index,
                  (long long)total_owed);
    report_expect(report, num_windowed == blocks->num_windowed,
                  "the number of states that promises alone hold (group %d, %d found)",
                  states->index, num_windowed);
    report_expect(report, state_list_num_spare(states) >= 0,
                  "more states promised than free (group %d)", states->index);
}

void check_states(pkv_cache *cache, const struct state_group *states, struct report *report)
{
    const struct block_set *blocks = &states->blocks;
    int64_t total_owed = 0;
    memset(cache->tallies, 0, (size_t)blocks->num_blocks * sizeof *cache->tallies);
    for (int32_t i = 0; i < cache->seqs.capacity; i++) {
        if (cache->seqs.at[i].state != SEQ_FREE) {
            total_owed += states->lists[i].owed;
            check_list(cache, states, i, report);
        }
    }
    count_writes(cache, states, report);
    count_pins(cache, states, report);
    for (int32_t block = 0; block < blocks->num_blocks; block++) {
        const int32_t count = pkv_pool_ref_count(blocks->pool, block);
        report_expect(report, count == cache->tallies[block].count,
                      "a count that is not the number of a state's holders (group %d, block %d)",
                      states->index, block);
        report_expect(report, count == 0 || !blocks->at[block].is_stale,
                      "a held state to be overwritten (group %d, block %d)", states->index, block);
    }
    check_promises(cache, states, total_owed, report);
    report->num_broken += pkv_pool_check(blocks->pool);
}
