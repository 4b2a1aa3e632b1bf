/* SPDX-License-Identifier: MIT
 *
 * First every holder of a block is counted in the block's tally: tables, the open step, pins. Then
 * each block is compared with its tally. */
#include "runtime/check_group.h"

#include <string.h>

#include "prefix/prefix_blocks.h"
#include "runtime/check_tiers.h"
#include "runtime/reservation.h"

static bool is_block(const struct group *group, int32_t block)
{
    return block >= 0 && block < group->config->num_blocks;
}

/* Cells of block i that a sequence of `length` tokens holds. */
static int32_t cells_in(const struct group *group, int32_t length, int32_t i)
{
    const int64_t block_size = group->config->block_size;
    const int64_t cells = length - i * block_size;
    return (int32_t)(cells < 0 ? 0 : cells > block_size ? block_size : cells);
}

/* Entry i of a table, which is mapped. */
static void check_entry(pkv_cache *cache, int32_t g, int32_t seq, int32_t i, struct report *report)
{
    const struct group *group = &cache->groups[g];
    const int32_t block = seq_table_entries(&group->tables, seq)[i];
    const int32_t length = cache->seqs.at[seq].length;
    if (!report_expect(report, is_block(group, block),
                       "an entry outside the pool (group %d, sequence %d, entry %d)", g, seq, i)) {
        return;
    }
    struct block_tally *tally = &cache->tallies[block];
    const struct block *state = &group->blocks.at[block];
    const int32_t count = pkv_pool_ref_count(group->blocks.pool, block);
    const bool is_own = count == 1 && state->writer == seq;
    const bool is_reserved = i >= config_blocks_of_cells(length, group->config->block_size);
    report_expect(report, tally->last_seq != seq + 1,
                  "a block twice in one table (group %d, sequence %d, entry %d)", g, seq, i);
    report_expect(report,
                  count <= 1 || state->writer == seq || cells_in(group, length, i) <= state->frozen,
                  "a reader beyond the frozen cells (group %d, sequence %d, entry %d)", g, seq, i);
    report_expect(report, !is_reserved || is_own,
                  "a reserved block that is not the sequence's own (group %d, sequence %d, entry "
                  "%d)",
                  g, seq, i);
    tally->count++;
    tally->num_sliding += seq_table_slides(&group->tables.at[seq]);
    tally->last_seq = seq + 1;
    tally->writer_holds |= state->writer == seq;
}

/* What a save holds beside a table. */
static void check_saved(pkv_cache *cache, int32_t g, int32_t seq, struct report *report)
{
    const struct group *group = &cache->groups[g];
    const int32_t block = group->tables.at[seq].saved;
    const bool is_held = is_block(group, block) && cache->seqs.at[seq].is_moving;
    if (block != NO_BLOCK &&
        report_expect(report, is_held, "a saved block outside a save (group %d, sequence %d)", g,
                      seq)) {
        cache->tallies[block].count++;
    }
}

/* Returns the runs that the table's entries form. */
static int64_t check_table(pkv_cache *cache, int32_t g, int32_t seq, struct report *report)
{
    const struct group *group = &cache->groups[g];
    const struct seq_table *table = &group->tables.at[seq];
    const int32_t length = cache->seqs.at[seq].length;
    const int32_t *entries = seq_table_entries(&group->tables, seq);
    const bool is_bounded = table->end >= 0 && table->end <= group->tables.num_set[seq] &&
                            group->tables.num_set[seq] <= group->tables.max_blocks &&
                            table->hole_end >= table->kept_end;
    if (!report_expect(report, is_bounded, "a table's bounds (group %d, sequence %d, end %d)", g,
                       seq, table->end)) {
        return 0;
    }
    int64_t num_runs = 0;
    report_expect(report,
                  table->tail_entry < 0 || (table->tail_entry < group->tables.num_set[seq] &&
                                            entries[table->tail_entry] == table->tail_block),
                  "a newest entry that names another block (group %d, sequence %d, entry %d)", g,
                  seq, table->tail_entry);
    report_expect(report,
                  cache->seqs.at[seq].is_swapped ? table->end == 0
                                                 : table->end >= length / group->config->block_size,
                  "a table that ends before its tokens (group %d, sequence %d, end %d)", g, seq,
                  table->end);
    report_expect(report, table->promise.copies == 0 || length % group->config->block_size != 0,
                  "a promised copy of no cells (group %d, sequence %d, length %d)", g, seq, length);
    for (int32_t i = 0; i < group->tables.num_set[seq]; i++) {
        num_runs += seq_table_begins_run(entries, i);
        if (seq_table_maps(table, i)) {
            check_entry(cache, g, seq, i, report);
        } else {
            report_expect(report, entries[i] == NO_BLOCK,
                          "an entry where nothing should be mapped (group %d, sequence %d, entry "
                          "%d)",
                          g, seq, i);
        }
    }
    report_expect(report, seq_table_next_resident(&group->tables, seq, length) == length,
                  "a needed key that is not resident (group %d, sequence %d, length %d)", g, seq,
                  length);
    return num_runs;
}

/* The open step refers to the blocks that it copies from. */
static void count_step_references(pkv_cache *cache, int32_t g, struct report *report)
{
    const struct group *group = &cache->groups[g];
    for (int32_t i = 0; cache->step.is_open && i < cache->step.num_rows; i++) {
        const int32_t block = group->step.reservations[i].copied_from;
        if (block == NO_BLOCK) {
            continue;
        }
        if (report_expect(report, is_block(group, block),
                          "a copy source outside the pool (group %d, sequence %d, block %d)", g,
                          cache->step.seqs[i], block)) {
            const int32_t seq = cache->step.seqs[i];
            cache->tallies[block].count++;
            cache->tallies[block].num_sliding += seq_table_slides(&group->tables.at[seq]);
        }
    }
}

/* A pin finds its blocks by its prefix. */
static void count_pin(pkv_cache *cache, int32_t g, int32_t index, struct report *report)
{
    const struct group *group = &cache->groups[g];
    const struct pin *pin = &cache->pins.at[index];
    struct prefix_ref ref = pin->leaf;
    for (int32_t i = pin->num_nodes - 1; i >= 0; i--) {
        const struct prefix_node *node = prefix_index_node(cache->reuse.index, ref);
        if (!report_expect(report, node != NULL && node->depth == i,
                           "a pin whose prefix is broken (group %d, pin %d)", g, index)) {
            return;
        }
        const int32_t block = prefix_index_block(cache->reuse.index, ref, g);
        if (pin_maps(group, pin, i) &&
            report_expect(report, is_block(group, block),
                          "a pin without its block (group %d, pin %d)", g, index)) {
            cache->tallies[block].count++;
            cache->tallies[block].num_pins++;
        }
        ref = node->parent;
    }
}

static void check_pinned(pkv_cache *cache, int32_t g, struct report *report)
{
    const struct block_set *blocks = &cache->groups[g].blocks;
    int32_t num_pinned = 0;
    for (int32_t i = 0; i < cache->pins.capacity; i++) {
        if (cache->pins.at[i].num_nodes > 0) {
            count_pin(cache, g, i, report);
        }
    }
    for (int32_t block = 0; block < blocks->num_blocks; block++) {
        const int32_t num_pins = cache->tallies[block].num_pins;
        num_pinned += num_pins > 0;
        report_expect(report, num_pins == blocks->at[block].num_pins,
                      "a block's number of pins (group %d, block %d)", g, block);
    }
    report_expect(report, num_pinned == blocks->num_pinned,
                  "the number of pinned blocks (group %d, %d found)", g, num_pinned);
}

static void check_block(const pkv_cache *cache, int32_t g, int32_t block, struct report *report)
{
    const struct group *group = &cache->groups[g];
    const struct block_tally *tally = &cache->tallies[block];
    const struct block *state = &group->blocks.at[block];
    const int32_t count = pkv_pool_ref_count(group->blocks.pool, block);
    report_expect(report, count == tally->count,
                  "a count that is not the number of holders (group %d, block %d)", g, block);
    report_expect(report, state->num_sliding == tally->num_sliding,
                  "a block's number of holders that slide (group %d, block %d)", g, block);
    report_expect(report, count == 0 || !state->is_stale,
                  "a held block to be overwritten (group %d, block %d)", g, block);
    report_expect(report,
                  state->writer == NO_SEQ || cache->reuse.index == NULL ||
                      prefix_index_node_of(cache->reuse.index, g, block).index == PREFIX_NONE,
                  "a writer of a block that has a node (group %d, sequence %d, block %d)", g,
                  state->writer, block);
    report_expect(report, state->writer == NO_SEQ || tally->writer_holds,
                  "a writer that does not hold its block (group %d, sequence %d, block %d)", g,
                  state->writer, block);
    report_expect(report, count > 1 || state->frozen == 0,
                  "frozen cells without a second holder (group %d, block %d)", g, block);
    report_expect(report, state->frozen >= 0 && state->frozen <= group->config->block_size,
                  "more frozen cells than a block has (group %d, block %d)", g, block);
}

/* What was promised is what tables say, and stays free. */
static void check_promises(const pkv_cache *cache, int32_t g, struct report *report)
{
    const struct group *group = &cache->groups[g];
    const struct promise_set *kept = &group->tables.promises;
    struct promise_set found = {.owed = 0};
    int32_t num_windowed = 0;
    for (int32_t i = 0; i < cache->seqs.capacity; i++) {
        const struct seq_table *table = &group->tables.at[i];
        if (cache->seqs.at[i].state != SEQ_FREE) {
            promise_add(&found, &table->promise, table->end);
        }
    }
    for (int32_t block = 0; block < group->config->num_blocks; block++) {
        num_windowed += block_is_windowed(&group->blocks, block);
    }
    report_expect(report,
                  found.at_once == kept->at_once && found.excess == kept->excess &&
                      found.num_excess == kept->num_excess && found.owed == kept->owed,
                  "the sum of promises (group %d, %d at once, %d owed)", g, (int32_t)found.at_once,
                  (int32_t)found.owed);
    report_expect(report, num_windowed == group->blocks.num_windowed,
                  "the number of blocks that windows alone hold (group %d, %d found)", g,
                  num_windowed);
    report_expect(report, seq_table_num_spare(&group->tables) >= 0,
                  "more promised than free (group %d)", g);
}

static void check_paged(pkv_cache *cache, int32_t g, struct report *report)
{
    const struct group *group = &cache->groups[g];
    const int32_t num_blocks = group->config->num_blocks;
    memset(cache->tallies, 0, (size_t)num_blocks * sizeof *cache->tallies);
    report->num_broken += pkv_pool_check(group->blocks.pool);
    int64_t num_runs = 0;
    for (int32_t i = 0; i < cache->seqs.capacity; i++) {
        if (cache->seqs.at[i].state != SEQ_FREE) {
            num_runs += check_table(cache, g, i, report);
            check_saved(cache, g, i, report);
        }
    }
    report_expect(report, num_runs == group->tables.num_runs,
                  "the runs of blocks in tables (group %d, %d found)", g, (int32_t)num_runs);
    count_step_references(cache, g, report);
    check_pinned(cache, g, report);
    check_tiers_count(cache, g, report);
    for (int32_t block = 0; block < num_blocks; block++) {
        check_block(cache, g, block, report);
    }
    check_promises(cache, g, report);
}

void check_group(pkv_cache *cache, int32_t g, struct report *report)
{
    const struct group *group = &cache->groups[g];
    if (group_is_paged(group)) {
        check_paged(cache, g, report);
        return;
    }
    const int32_t num_free = pkv_slots_num_free(group->slots);
    report->num_broken += pkv_slots_check(group->slots);
    report_expect(report, num_free == cache->seqs.num_free,
                  "slots and sequences (group %d, %d slots free, %d sequences)", g, num_free,
                  cache->seqs.num_free);
}
