/* SPDX-License-Identifier: MIT
 *
 * Snapshots of a row that will not stay cached (segment_tokens) are not taken, but for its last. */
#include "runtime/state_step.h"

#include "base/error.h"
#include "base/minmax.h"
#include "runtime/shortage.h"

static int32_t newest_of(const struct state_group *states, int32_t seq)
{
    const int32_t count = states->lists[seq].count;
    return count > 0 ? state_entries(states, seq)[count - 1].block : NO_BLOCK;
}

enum pkv_status state_step_decide(const struct step *step, struct state_group *states, int32_t row,
                                  int32_t max_rewind, enum pkv_status before,
                                  struct pkv_shortage *shortage)
{
    const int32_t seq = step->seqs[row];
    const struct state_group_list *list = &states->lists[seq];
    const int32_t newest = newest_of(states, seq);
    const int32_t q_len = step_q_len(step, row);
    const bool in_place =
        q_len > 0 && max_rewind == 0 && newest != NO_BLOCK && state_list_is_own(states, newest);
    const int32_t num_new = in_place ? 0 : min_i32(q_len, max_rewind + 1);
    const int32_t available = state_list_num_spare(states) - states->step.num_spare;
    states->step.in_place[row] = in_place;
    states->step.num_new[row] = num_new;
    const struct shortage_demand demand = {
        .row = row,
        .group = states->index,
        .total = list->count + num_new,
        .more = max_i32(num_new - list->owed, 0),
        .limit = states->config->num_blocks,
        .available = available,
    };
    const enum pkv_status status = shortage_judge(before, &demand, shortage);
    if (status != before) {
        shortage->evictable = min_i32(block_num_cached(&states->blocks), available);
    }
    return status;
}

void state_step_plan(const struct step *step, struct state_group *states, int32_t row, int sign)
{
    const struct state_group_list *list = &states->lists[step->seqs[row]];
    states->step.num_spare += sign * max_i32(states->step.num_new[row] - list->owed, 0);
}

static void take_row(const struct step *step, struct state_group *states, int32_t row)
{
    struct state_group_step *of = &states->step;
    const int32_t seq = step->seqs[row];
    const int32_t newest = newest_of(states, seq);
    const int32_t first = step->cu_seqlens[row];
    const int32_t end = step->cu_seqlens[row + 1];
    of->reads[row] = newest != NO_BLOCK ? newest : states->config->num_blocks;
    for (int32_t t = first; t < end; t++) {
        of->writes[t] = t >= end - of->num_new[row] ? state_list_take(states, seq) : NO_BLOCK;
    }
    if (of->in_place[row]) {
        of->writes[end - 1] = newest;
    }
}

bool state_step_is_snapshot(const struct state_group *states, int32_t length, int32_t snapshot_at)
{
    return length % states->config->snapshot_interval == 0 || length == snapshot_at;
}

/* Will a state that a row passes stay cached when the row has come to kv_len tokens? */
static bool stays(const struct state_group *states, int32_t length, int32_t kv_len)
{
    const struct pkv_group_config *config = states->config;
    return config->segment_tokens == 0 || length % config->segment_tokens == 0 ||
           length > kv_len - config->snapshot_interval;
}

static void take_snapshots(const struct step *step, struct state_group *states, int32_t row,
                           const struct seq *seq)
{
    const int32_t index = step->seqs[row];
    const int32_t snapshot_at = states->lists[index].snapshot_at;
    const int32_t first = step->cu_seqlens[row];
    const int32_t length = step_length_before(step, row);
    if (states->blocks.context->index == NULL || seq->reuse.no_publish) {
        return;
    }
    for (int32_t t = first; t < step->cu_seqlens[row + 1]; t++) {
        const int32_t after = length + t - first + 1;
        if (states->step.writes[t] == NO_BLOCK &&
            (after == snapshot_at || (state_step_is_snapshot(states, after, snapshot_at) &&
                                      stays(states, after, step->kv_lens[row]))) &&
            state_list_num_spare(states) > 0) {
            states->step.writes[t] = state_list_take_spare(states, index);
        }
    }
}

void state_step_take(const struct step *step, struct state_group *states,
                     const struct seq_records *seqs)
{
    states->step.is_shown = false;
    for (int32_t i = 0; i < step->num_rows; i++) {
        take_row(step, states, i);
    }
    for (int32_t i = 0; i < step->num_rows; i++) {
        take_snapshots(step, states, i, &seqs->at[step->seqs[i]]);
    }
}

void state_step_move(const struct step *step, struct state_group *states, int32_t row,
                     const int32_t *path, int32_t num_keep)
{
    int32_t *writes = states->step.writes + step->cu_seqlens[row];
    for (int32_t k = 0; k < num_keep; k++) { /* path[k] >= k: what is swapped away is not kept */
        const int32_t kept = writes[path[k]];
        writes[path[k]] = writes[k];
        writes[k] = kept;
    }
}

/* The row does not need token t's state any more, which was kept (is_old) or not. */
static void drop_write(const struct step *step, struct state_group *states, int32_t row, int32_t t,
                       bool is_old)
{
    const int32_t block = states->step.writes[t];
    const struct state_entry entry = {.block = block, .slides = state_list_slides(states, block)};
    state_list_drop(states, step->seqs[row], &entry, is_old);
}

void state_step_undo(const struct step *step, struct state_group *states, int32_t row)
{
    const int32_t seq = step->seqs[row];
    const bool in_place = states->step.in_place[row];
    const int32_t end = step->cu_seqlens[row + 1];
    for (int32_t t = end - 1; t >= step->cu_seqlens[row]; t--) {
        const int32_t block = states->step.writes[t];
        if (block != NO_BLOCK && !(in_place && t == end - 1)) {
            drop_write(step, states, row, t, false);
        }
    }
    if (in_place && states->step.is_shown) { /* whatever is in it now */
        const int32_t last = --states->lists[seq].count;
        state_list_drop(states, seq, &state_entries(states, seq)[last], false);
    }
}

/* Entries of fewer than `length` tokens leave the list; those that were snapshots stay cached. */
static void drop_old(struct state_group *states, int32_t seq, int32_t length)
{
    struct state_group_list *list = &states->lists[seq];
    struct state_entry *entries = state_entries(states, seq);
    int32_t num_old = 0;
    while (num_old < list->count && entries[num_old].length < length) {
        state_list_drop(states, seq, &entries[num_old], true);
        num_old++;
    }
    for (int32_t i = num_old; i < list->count; i++) {
        entries[i - num_old] = entries[i];
    }
    list->count -= num_old;
}

void state_step_keep(const struct step *step, struct state_group *states, int32_t row,
                     int32_t num_keep, int32_t max_rewind)
{
    const int32_t seq = step->seqs[row];
    struct state_group_list *list = &states->lists[seq];
    const int32_t first = step->cu_seqlens[row];
    const int32_t length = step_length_before(step, row);
    const int32_t oldest = max_i32(length + num_keep - max_rewind, 0);
    if (states->step.in_place[row]) {
        list->count--; /* the block is the last write */
    }
    drop_old(states, seq, oldest);
    for (int32_t t = first; t < step->cu_seqlens[row + 1]; t++) {
        const int32_t after = length + t - first + 1;
        const int32_t block = states->step.writes[t];
        if (block == NO_BLOCK) {
            continue;
        }
        if (t < first + num_keep && after >= oldest) {
            state_list_add(states, seq, after, block);
        } else {
            drop_write(step, states, row, t, t < first + num_keep);
        }
    }
}

enum pkv_status state_step_check_keep(const struct step *step, const struct state_group *states,
                                      int32_t row, int32_t num_keep)
{
    const int32_t last = step->cu_seqlens[row] + num_keep - 1;
    if (num_keep == 0 || states->step.writes[last] != NO_BLOCK) {
        return PKV_OK;
    }
    return INVALID("num_keep[%d] = %d of %d tokens: group %d has no state behind them, max_rewind "
                   "is too small",
                   row, num_keep, step_q_len(step, row), states->index);
}

int32_t state_step_find(const struct step *step, const struct state_group *states, int32_t row,
                        int32_t length)
{
    const int32_t before = step_length_before(step, row);
    if (length <= before) {
        const bool is_gone = states->step.in_place[row] && length == before;
        return is_gone ? NO_BLOCK : state_list_find(states, step->seqs[row], length);
    }
    return states->step.writes[step->cu_seqlens[row] + length - before - 1];
}
