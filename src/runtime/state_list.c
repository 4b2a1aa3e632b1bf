/* SPDX-License-Identifier: MIT
 *
 * Lists are as short as max_rewind, so they are searched from their end. */
#include "runtime/state_list.h"

#include "alloc/block_pool.h"
#include "base/error.h"
#include "base/minmax.h"
#include "prefix/prefix_blocks.h"

int32_t state_list_num_spare(const struct state_group *states)
{
    return (int32_t)(block_num_free(&states->blocks) -
                     (states->total_promised - states->blocks.num_windowed));
}

int32_t state_list_find(const struct state_group *states, int32_t seq, int32_t length)
{
    const struct state_entry *entries = state_entries(states, seq);
    int32_t i = states->lists[seq].count - 1;
    while (i >= 0 && entries[i].length > length) {
        i--;
    }
    return i >= 0 && entries[i].length == length ? entries[i].block : NO_BLOCK;
}

bool state_list_is_own(const struct state_group *states, int32_t block)
{
    const struct prefix_index *index = states->blocks.context->index;
    return pkv_pool_ref_count(states->blocks.pool, block) == 1 &&
           (index == NULL ||
            prefix_index_node_of(index, states->index, block).index == PREFIX_NONE);
}

void state_list_reset(struct state_group *states, int32_t seq)
{
    states->lists[seq] = (struct state_group_list){0};
}

/* What is owed beside that which the sequence holds changes. */
static void set_owed(struct state_group *states, struct state_group_list *list, int32_t owed)
{
    states->total_promised += owed - list->owed;
    list->owed = owed;
}

int32_t state_list_demand(struct state_group *states, int32_t seq, int32_t bound)
{
    states->demand_bound = bound;
    return bound - (seq != NO_SEQ ? states->lists[seq].owed : 0);
}

void state_list_admit(struct state_group *states, int32_t seq, int32_t snapshot_at)
{
    struct state_group_list *list = &states->lists[seq];
    list->bound = states->demand_bound;
    list->snapshot_at = snapshot_at;
    set_owed(states, list, states->demand_bound);
}

/* Whether one more block is part of the promise. */
static bool spend(struct state_group_list *list)
{
    const bool is_owed = list->owed > 0;
    list->owed -= is_owed;
    return is_owed;
}

static void add(struct state_group *states, int32_t seq, int32_t length, int32_t block, bool slides)
{
    struct state_group_list *list = &states->lists[seq];
    state_entries(states, seq)[list->count++] =
        (struct state_entry){.length = length, .block = block, .slides = slides};
}

void state_list_adopt(struct state_group *states, int32_t seq, int32_t length, int32_t block)
{
    const bool slides = spend(&states->lists[seq]);
    block_adopt(&states->blocks, block, slides);
    add(states, seq, length, block, slides);
}

bool state_list_slides(const struct state_group *states, int32_t block)
{
    return states->blocks.at[block].num_sliding > 0;
}

void state_list_add(struct state_group *states, int32_t seq, int32_t length, int32_t block)
{
    bool slides = state_list_slides(states, block);
    if (!slides && spend(&states->lists[seq])) { /* a spare one, and it is owed one */
        block_start_sliding(&states->blocks, block);
        slides = true;
    }
    add(states, seq, length, block, slides);
}

int32_t state_list_fork_spare(const struct state_group *states, int32_t parent, int32_t length)
{
    const int32_t block = length > 0 ? state_list_find(states, parent, length) : NO_BLOCK;
    return block != NO_BLOCK && block_is_windowed(&states->blocks, block);
}

void state_list_fork(struct state_group *states, int32_t parent, int32_t child, int32_t length)
{
    if (length > 0) {
        const int32_t block = state_list_find(states, parent, length);
        pkv_assert(block != NO_BLOCK);
        state_list_adopt(states, child, length, block);
    }
}

static int32_t take(struct state_group *states, int32_t seq, bool slides)
{
    int32_t block = NO_BLOCK;
    block_take(&states->blocks, NO_BLOCK, 1, seq, slides, &block);
    return block;
}

int32_t state_list_take(struct state_group *states, int32_t seq)
{
    return take(states, seq, spend(&states->lists[seq]));
}

int32_t state_list_take_spare(struct state_group *states, int32_t seq)
{
    return take(states, seq, false);
}

void state_list_drop(struct state_group *states, int32_t seq, const struct state_entry *entry,
                     bool is_old)
{
    if (is_old) {
        block_drop_out_of_window(&states->blocks, entry->block, seq, entry->slides);
    } else {
        block_drop(&states->blocks, entry->block, seq, entry->slides);
    }
    states->lists[seq].owed += entry->slides;
}

void state_list_cut(struct state_group *states, int32_t seq, int32_t length)
{
    struct state_group_list *list = &states->lists[seq];
    const struct state_entry *entries = state_entries(states, seq);
    while (list->count > 0 && entries[list->count - 1].length > length) {
        list->count--;
        state_list_drop(states, seq, &entries[list->count], false);
    }
    if (length == 0) {
        set_owed(states, list, 0);
        list->bound = 0;
        list->snapshot_at = 0;
        list->num_away = 0;
    }
}

void state_list_leave(struct state_group *states, int32_t seq)
{
    struct state_group_list *list = &states->lists[seq];
    list->num_away = list->count;
    while (list->count > 0) {
        list->count--;
        state_list_drop(states, seq, &state_entries(states, seq)[list->count], false);
    }
    set_owed(states, list, 0);
}

int32_t state_list_demand_return(struct state_group *states, int32_t seq, int32_t num_taken)
{
    states->demand_bound = states->lists[seq].bound;
    return max_i32(states->demand_bound, num_taken);
}

void state_list_return(struct state_group *states, int32_t seq)
{
    struct state_group_list *list = &states->lists[seq];
    list->count = list->num_away;
    list->num_away = 0;
    for (int32_t i = 0; i < list->count; i++) {
        state_entries(states, seq)[i].block = NO_BLOCK;
    }
    set_owed(states, list, states->demand_bound);
}

void state_list_put(struct state_group *states, int32_t seq, int32_t i, int32_t block)
{
    struct state_entry *entry = &state_entries(states, seq)[i];
    entry->slides = spend(&states->lists[seq]);
    entry->block = block;
    block_adopt(&states->blocks, block, entry->slides);
}

void state_list_fill(struct state_group *states, int32_t seq)
{
    struct state_entry *entries = state_entries(states, seq);
    for (int32_t i = 0; i < states->lists[seq].count; i++) {
        if (entries[i].block == NO_BLOCK) {
            entries[i].block = state_list_take(states, seq);
            entries[i].slides = state_list_slides(states, entries[i].block);
        }
    }
}

int32_t state_list_next(const struct state_group *states, int32_t seq, int32_t length)
{
    const struct state_entry *entries = state_entries(states, seq);
    for (int32_t i = 0; i < states->lists[seq].count; i++) {
        if (entries[i].length >= length) {
            return entries[i].length;
        }
    }
    return -1;
}

int32_t state_list_previous(const struct state_group *states, int32_t seq, int32_t length)
{
    const struct state_entry *entries = state_entries(states, seq);
    for (int32_t i = states->lists[seq].count - 1; i >= 0; i--) {
        if (entries[i].length <= length) {
            return entries[i].length;
        }
    }
    return -1;
}

int32_t state_list_min_length(const struct state_group *states, int32_t seq, int32_t length)
{
    while (length > 0 && state_list_find(states, seq, length - 1) != NO_BLOCK) {
        length--;
    }
    return length == 1 ? 0 : length;
}

void state_list_restore(struct state_group *states, int32_t seq, const int32_t *lengths,
                        int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        add(states, seq, lengths[i], NO_BLOCK, false);
    }
    state_list_fill(states, seq);
}
