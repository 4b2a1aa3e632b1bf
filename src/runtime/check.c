/* SPDX-License-Identifier: MIT
 *
 * Walks everything that the runtime keeps twice, or derives, and compares: each block's count with
 * the table entries, references of the step and pins that name it, each table with the equations of
 * struct seq_table, each record with its list. A line per violation goes to the log hook; nothing
 * is changed or repaired. O(blocks + sequences * table), a part at a time under the mutex: what is
 * compared must be of one moment. */
#include "runtime/check.h"

#include <string.h>

#include "base/window.h"
#include "prefix/prefix_blocks.h"
#include "prefix/prefix_check.h"
#include "runtime/cache.h"
#include "runtime/reservation.h"

static int32_t report(const pkv_cache *cache, const char *what, int32_t group, int32_t seq,
                      int32_t index)
{
    hooks_log(&cache->mem.routed, PKV_LOG_ERROR, "check: %s (group %d, sequence %d, index %d)",
              what, group, seq, index);
    return 1;
}

/* Cells of block i that a sequence of `length` tokens holds. */
static int32_t cells_in(const struct group *group, int32_t length, int32_t i)
{
    const int64_t block_size = group->config->block_size;
    const int64_t cells = length - i * block_size;
    return (int32_t)(cells < 0 ? 0 : cells > block_size ? block_size : cells);
}

static int32_t check_entry(pkv_cache *cache, int32_t g, int32_t seq, int32_t i)
{
    const struct group *group = &cache->groups[g];
    const int32_t block = seq_table_entries(&group->tables, seq)[i];
    const int32_t length = cache->seqs.at[seq].length;
    if (block < 0 || block >= group->config->num_blocks) {
        return report(cache, "an entry outside the pool", g, seq, i);
    }
    struct check_cell *cell = &cache->check_cells[block];
    int32_t broken = 0;
    cell->count++;
    if (cell->last_seq == seq + 1) {
        broken += report(cache, "a block twice in one table", g, seq, i);
    }
    cell->last_seq = seq + 1;
    const struct block *state = &group->blocks.at[block];
    cell->writer_holds |= state->writer == seq;
    const int32_t count = pkv_pool_ref_count(group->blocks.pool, block);
    const int32_t num_cells = cells_in(group, length, i);
    if (count > 1 && state->writer != seq && num_cells > state->frozen) {
        broken += report(cache, "a reader beyond the frozen cells", g, seq, i);
    }
    const bool is_reserved = i >= config_blocks_of_cells(length, group->config->block_size);
    if (is_reserved && (count != 1 || state->writer != seq)) {
        broken += report(cache, "a reserved block that is not the sequence's own", g, seq, i);
    }
    return broken;
}

static int32_t check_table(pkv_cache *cache, int32_t g, int32_t seq)
{
    const struct group *group = &cache->groups[g];
    const struct seq_table *table = &group->tables.at[seq];
    const struct seq *record = &cache->seqs.at[seq];
    const int32_t block_size = group->config->block_size;
    const int32_t *entries = seq_table_entries(&group->tables, seq);
    int32_t broken = 0;
    if (table->end < 0 || table->end > group->tables.max_blocks ||
        table->hole_end < table->kept_end) {
        return report(cache, "a table's bounds", g, seq, table->end);
    }
    if (table->end < record->length / block_size) {
        broken += report(cache, "a table that ends before its tokens", g, seq, table->end);
    }
    for (int32_t i = 0; i < group->tables.max_blocks; i++) {
        const bool is_mapped = i < table->end && (i < table->kept_end || i >= table->hole_end);
        if (is_mapped) {
            broken += check_entry(cache, g, seq, i);
        } else if (entries[i] != NO_BLOCK) {
            broken += report(cache, "an entry where nothing should be mapped", g, seq, i);
        }
    }
    if (seq_table_next_resident(&group->tables, seq, record->length) != record->length) {
        broken += report(cache, "a needed key that is not resident", g, seq, record->length);
    }
    return broken;
}

/* References of the open step count like table entries. */
static int32_t check_step_references(pkv_cache *cache, int32_t g)
{
    const struct group *group = &cache->groups[g];
    int32_t broken = 0;
    for (int32_t i = 0; cache->step.is_open && i < cache->step.num_rows; i++) {
        const int32_t block = group->step.reservations[i].copied_from;
        if (block == NO_BLOCK) {
            continue;
        }
        if (block < 0 || block >= group->config->num_blocks) {
            broken +=
                report(cache, "a copy source outside the pool", g, cache->step.seqs[i], block);
        } else {
            cache->check_cells[block].count++;
        }
    }
    return broken;
}

/* Pins hold blocks too; each must find its own by its run. */
static int32_t check_pin(pkv_cache *cache, int32_t g, int32_t index)
{
    const struct group *group = &cache->groups[g];
    const struct pin *pin = &cache->pins.at[index];
    struct prefix_ref ref = pin->leaf;
    int32_t broken = 0;
    for (int32_t i = pin->num_nodes - 1; i >= 0; i--) {
        const struct prefix_node *node = prefix_index_node(cache->reuse.index, ref);
        if (node == NULL || node->depth != i) {
            return broken + report(cache, "a pin whose run is broken", g, NO_SEQ, index);
        }
        const int32_t block = prefix_index_block(cache->reuse.index, ref, g);
        const bool is_block = block >= 0 && block < group->config->num_blocks;
        if (pin_maps(group, pin, i) && !is_block) {
            broken += report(cache, "a pin without its block", g, NO_SEQ, index);
        } else if (pin_maps(group, pin, i)) {
            cache->check_cells[block].count++;
            cache->check_cells[block].num_pins++;
        }
        ref = node->parent;
    }
    return broken;
}

static int32_t check_pins(pkv_cache *cache, int32_t g)
{
    int32_t broken = 0;
    for (int32_t i = 0; cache_has_reuse(cache) && i < cache->config.max_pinned_blocks; i++) {
        if (cache->pins.at[i].num_nodes > 0) {
            broken += check_pin(cache, g, i);
        }
    }
    int32_t num_pinned = 0;
    for (int32_t block = 0; block < cache->groups[g].config->num_blocks; block++) {
        const int32_t num_pins = cache->check_cells[block].num_pins;
        num_pinned += num_pins > 0;
        if (num_pins != cache->groups[g].blocks.at[block].num_pins) {
            broken += report(cache, "a block's number of pins", g, NO_SEQ, block);
        }
    }
    if (num_pinned != cache->groups[g].blocks.num_pinned) {
        broken += report(cache, "the number of pinned blocks", g, NO_SEQ, num_pinned);
    }
    return broken;
}

/* Records of pins are in use, or on the free list. */
static int32_t check_pin_list(const pkv_cache *cache)
{
    const struct pin_records *pins = &cache->pins;
    const int32_t capacity = pins->capacity;
    int32_t broken = 0;
    int32_t num_pins = 0;
    int32_t num_free = 0;
    for (int32_t i = 0; i < capacity; i++) {
        num_pins += pins->at[i].num_nodes > 0;
    }
    if (num_pins != pins->num_used) {
        broken += report(cache, "the number of pins", -1, NO_SEQ, pins->num_used);
    }
    int32_t i = pins->first_free;
    while (i >= 0 && i < capacity && num_free < capacity && pins->at[i].num_nodes == 0) {
        num_free++;
        i = pins->at[i].next_free;
    }
    if (i != PIN_NONE || num_free != capacity - num_pins) {
        broken += report(cache, "the list of free pins", -1, NO_SEQ, i);
    }
    return broken;
}

/* A sequence's newest node stands where it says, over blocks that are its own or equal to them. */
static int32_t check_published(pkv_cache *cache, int32_t seq)
{
    const struct seq_reuse *reuse = &cache->seqs.at[seq].reuse;
    const struct prefix_node *node = prefix_index_node(cache->reuse.index, reuse->newest);
    const int32_t block_size = cache->reuse.block_size;
    int32_t broken = 0;
    if (reuse->num_published * block_size > cache->seqs.at[seq].length ||
        reuse->num_published > reuse->num_tried) {
        broken += report(cache, "more published than written", -1, seq, reuse->num_published);
    }
    if (reuse->num_published == 0 ? reuse->newest.index != PREFIX_NONE
                                  : node == NULL || node->depth != reuse->num_published - 1) {
        return broken + report(cache, "a newest node", -1, seq, reuse->newest.index);
    }
    const int32_t *tokens = prefix_index_tokens(cache->reuse.index, reuse->newest);
    const int32_t *own = cache->reuse.tokens.ids + (size_t)seq * cache->reuse.tokens.id_stride;
    if (node != NULL && memcmp(own + (size_t)node->depth * (size_t)block_size, tokens,
                               (size_t)block_size * sizeof *own) != 0) {
        broken += report(cache, "tokens of a newest node", -1, seq, reuse->newest.index);
    }
    return broken;
}

static int32_t check_reuse(pkv_cache *cache)
{
    int32_t broken = 0;
    if (!cache_has_reuse(cache)) {
        return 0;
    }
    for (int32_t i = 0; i < cache->config.max_seqs; i++) {
        if (cache->seqs.at[i].state == SEQ_FREE) {
            continue;
        }
        broken += check_published(cache, i);
        for (int32_t g = 0; g < cache->config.num_groups; g++) {
            const struct seq_table *table = &cache->groups[g].tables.at[i];
            if (table->charged != seq_table_num_mapped(table, table->end)) {
                broken += report(cache, "a charge that is not what is held", g, i, table->charged);
            }
        }
    }
    return broken + check_pin_list(cache) + prefix_index_check(cache->reuse.index);
}

static int32_t check_blocks(pkv_cache *cache, int32_t g)
{
    const struct group *group = &cache->groups[g];
    int32_t broken = 0;
    for (int32_t block = 0; block < group->config->num_blocks; block++) {
        const struct block *state = &group->blocks.at[block];
        const int32_t count = pkv_pool_ref_count(group->blocks.pool, block);
        if (count != cache->check_cells[block].count) {
            broken += report(cache, "a count that is not the number of holders", g, NO_SEQ, block);
        }
        if (state->is_stale && count > 0) {
            broken += report(cache, "a held block to be overwritten", g, NO_SEQ, block);
        }
        if (state->writer != NO_SEQ && !cache->check_cells[block].writer_holds) {
            broken +=
                report(cache, "a writer that does not hold its block", g, state->writer, block);
        }
        if (count <= 1 && state->frozen != 0) {
            broken += report(cache, "frozen cells without a second holder", g, NO_SEQ, block);
        }
        if (state->frozen < 0 || state->frozen > group->config->block_size) {
            broken += report(cache, "more frozen cells than a block has", g, NO_SEQ, block);
        }
    }
    return broken;
}

static int32_t check_group(pkv_cache *cache, int32_t g)
{
    const struct group *group = &cache->groups[g];
    if (!group_is_paged(group)) {
        const int32_t broken = pkv_slots_check(group->slots);
        const int32_t held = cache->config.max_seqs - pkv_slots_num_free(group->slots);
        const int32_t seqs = cache->config.max_seqs - cache->seqs.num_free;
        return broken + (held != seqs ? report(cache, "slots and sequences", g, seqs, held) : 0);
    }
    memset(cache->check_cells, 0, (size_t)group->config->num_blocks * sizeof *cache->check_cells);
    int32_t broken = pkv_pool_check(group->blocks.pool);
    for (int32_t i = 0; i < cache->config.max_seqs; i++) {
        if (cache->seqs.at[i].state != SEQ_FREE) {
            broken += check_table(cache, g, i);
        }
    }
    broken += check_step_references(cache, g);
    broken += check_pins(cache, g);
    return broken + check_blocks(cache, g);
}

static int32_t check_seqs(const pkv_cache *cache)
{
    int32_t broken = 0;
    int32_t num_free = 0;
    for (int32_t i = 0; i < cache->config.max_seqs; i++) {
        const struct seq *seq = &cache->seqs.at[i];
        num_free += seq->state == SEQ_FREE;
        if (seq->length < 0 || seq->length > cache->config.max_seq_len) {
            broken += report(cache, "a length out of range", -1, i, seq->length);
        }
        if (seq->state == SEQ_DYING && !seq->in_step) {
            broken += report(cache, "a dying sequence outside a step", -1, i, seq->length);
        }
        if (seq->in_step && !cache->step.is_open) {
            broken += report(cache, "a sequence in a step that is not open", -1, i, seq->length);
        }
    }
    if (num_free != cache->seqs.num_free) {
        broken += report(cache, "the number of free sequences", -1, num_free, cache->seqs.num_free);
    }
    int32_t length = 0;
    int32_t i = cache->seqs.first_free;
    while (i >= 0 && i < cache->config.max_seqs && length <= num_free &&
           cache->seqs.at[i].state == SEQ_FREE) {
        length++;
        i = cache->seqs.at[i].next_free;
    }
    if (i != NO_SEQ || length != num_free) {
        broken += report(cache, "the list of free sequences", -1, i, length);
    }
    return broken;
}

int32_t pkv_cache_check(pkv_cache *cache)
{
    if (cache == NULL) {
        return 0;
    }
    cache_lock(cache);
    int32_t broken = check_seqs(cache) + check_reuse(cache);
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        cache_yield(cache); /* what a group says is true in itself */
        broken += check_group(cache, g);
    }
    cache_unlock(cache);
    return broken;
}
