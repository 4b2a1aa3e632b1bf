/* SPDX-License-Identifier: MIT
 *
 * Who writes the tail block, and how many blocks a row takes. The tail is written in place when its
 * row may be its writer (block.h), else a block is taken to copy its cells into. A row that is one
 * block short because of such a copy writes a cached tail in place after all, once the block left
 * the index. No spare block is left then; what is still cached behind it, in blocks that are
 * promised, is found no more. */
#include "runtime/reservation.h"

#include "base/minmax.h"
#include "runtime/shortage.h"

void reservation_carve(const struct pkv_cache_config *config, bool is_paged,
                       struct step_group *step, struct carver *carver)
{
    const size_t max_rows = (size_t)config->max_step_rows;
    step->kept_prefix = carve(carver, max_rows, sizeof *step->kept_prefix);
    if (is_paged) {
        step->reservations = carve(carver, max_rows, sizeof *step->reservations);
        step->copies = carve(carver, max_rows, sizeof *step->copies);
        step->publishing = carve(carver, max_rows, sizeof *step->publishing);
    } else {
        step->slot_ids = carve(carver, max_rows, sizeof *step->slot_ids);
    }
}

void reservation_prefetch(const struct step *step, const struct group *group, int32_t row)
{
    const int32_t seq = step->seqs[row];
    const int32_t tail = step_length_before(step, row) / group->config->block_size;
    if (tail < group->tables.at[seq].end) {
        block_prefetch_claim(&group->blocks, seq_table_block(&group->tables, seq, tail));
        return;
    }
    PKV_PREFETCH(seq_table_entries(&group->tables, seq) + tail);
    const int32_t next = seq_table_near(&group->tables, seq, tail) + 1;
    if (next < group->config->num_blocks) {
        block_prefetch_take(&group->blocks, next);
    }
}

/* Who writes the tail block from now on, or that its cells are copied. */
static void claim_tail(struct group *group, int32_t tail_block, int32_t seq, int32_t offset,
                       struct step_reservation *reservation)
{
    reservation->tail_block = tail_block;
    if (!block_claim(&group->blocks, tail_block, seq, offset, &reservation->writer_change)) {
        reservation->copied_from = tail_block;
    }
}

int32_t reservation_num_spare(const struct step_reservation *reservation,
                              const struct promise *promise)
{
    const int32_t promised = max_i32(promise->end, reservation->end_before);
    return max_i32(reservation_end(reservation) - promised, 0) +
           (reservation->copied_from != NO_BLOCK && promise->copies == 0);
}

static void avoid_copy(struct group *group, int32_t seq, int32_t available,
                       struct step_reservation *reservation)
{
    const struct promise *promise = &group->tables.at[seq].promise;
    if (reservation->copied_from != NO_BLOCK &&
        reservation_num_spare(reservation, promise) == available + 1 &&
        block_claim_indexed(&group->blocks, reservation->tail_block, seq,
                            &reservation->writer_change)) {
        reservation->copied_from = NO_BLOCK;
        reservation->uncaches_tail = true;
    }
}

/* What the row takes when `available` spare blocks are left. */
static void reserve(const struct step *step, struct group *group, int32_t row, int32_t available,
                    struct step_reservation *reservation)
{
    const int32_t seq = step->seqs[row];
    const struct seq_table *table = &group->tables.at[seq];
    const int32_t block_size = group->config->block_size;
    const int32_t length = step_length_before(step, row);
    const int32_t tail = length / block_size;
    *reservation = (struct step_reservation){.end_before = table->end, .copied_from = NO_BLOCK};
    if (step_q_len(step, row) == 0) {
        return;
    }
    const int32_t end = config_blocks_of_cells(step->kv_lens[row], block_size);
    reservation->num_new = max_i32(end - table->end, 0);
    if (tail < table->end) {
        claim_tail(group, seq_table_block(&group->tables, seq, tail), seq, length % block_size,
                   reservation);
        avoid_copy(group, seq, available, reservation);
    }
}

enum pkv_status reservation_decide(const struct step *step, struct group *group, int32_t row,
                                   enum pkv_status before, struct pkv_shortage *shortage)
{
    struct step_reservation *reservation = &group->step.reservations[row];
    const struct seq_table *table = &group->tables.at[step->seqs[row]];
    const int32_t available = seq_table_num_spare(&group->tables) - group->step.num_planned;
    reserve(step, group, row, available, reservation);
    const struct shortage_demand demand = {
        .row = row,
        .group = group->index,
        .total = seq_table_num_mapped(table, reservation_end(reservation)),
        .more = reservation_num_spare(reservation, &table->promise),
        .limit = group->config->num_blocks,
        .available = available,
    };
    const enum pkv_status status = shortage_judge(before, &demand, shortage);
    if (status != before) {
        shortage->evictable = min_i32(block_num_cached(&group->blocks), available);
    }
    return status;
}

void reservation_cancel(const struct step *step, struct group *group, int32_t row)
{
    const struct step_reservation *reservation = &group->step.reservations[row];
    if (reservation->writer_change != WRITER_UNCHANGED) {
        block_unclaim(&group->blocks, reservation->tail_block, step->seqs[row],
                      reservation->writer_change);
    }
}

/* Takes the block that the row's tail is copied to, and gives the table that one. */
static void take_copy(const struct step *step, struct group *group, int32_t row)
{
    const int32_t seq = step->seqs[row];
    struct step_reservation *reservation = &group->step.reservations[row];
    struct promise *promise = &group->tables.at[seq].promise;
    const int32_t length = step_length_before(step, row);
    const int32_t block_size = group->config->block_size;
    const int32_t near = seq_table_near(&group->tables, seq, length / block_size);
    int32_t copy = NO_BLOCK;
    block_take(&group->blocks, near, 1, seq, promise_slides(promise), &copy);
    seq_table_put(&group->tables, seq, length / block_size, copy);
    group->step.copies[group->step.num_copies++] = (struct pkv_page_copy){
        .src = reservation->copied_from, .dst = copy, .num_cells = length % block_size};
    if (promise->copies > 0 && !promise_slides(promise)) {
        promise_end_copy(&group->tables.promises, promise);
        reservation->was_promised = true;
    }
}

void reservation_take(const struct step *step, struct group *group, int32_t row)
{
    const int32_t seq = step->seqs[row];
    const struct step_reservation *reservation = &group->step.reservations[row];
    if (reservation->uncaches_tail) {
        block_uncache(&group->blocks, reservation->tail_block);
    }
    if (reservation->copied_from != NO_BLOCK) {
        take_copy(step, group, row);
    }
    if (reservation->num_new > 0) {
        seq_table_extend(&group->tables, seq, reservation_end(reservation));
    }
}

void reservation_undo(const struct step *step, struct group *group, int32_t row)
{
    const int32_t seq = step->seqs[row];
    const struct step_reservation *reservation = &group->step.reservations[row];
    seq_table_shrink(&group->tables, seq, reservation->end_before);
    if (reservation->copied_from != NO_BLOCK) {
        const int32_t tail = step_length_before(step, row) / group->config->block_size;
        const int32_t copy = seq_table_entries(&group->tables, seq)[tail];
        block_drop(&group->blocks, copy, seq, seq_table_slides(&group->tables.at[seq]));
        seq_table_put(&group->tables, seq, tail, reservation->copied_from);
    }
    if (reservation->was_promised) {
        promise_restore_copy(&group->tables.promises, &group->tables.at[seq].promise);
    }
    reservation_cancel(step, group, row);
}

void reservation_keep(const struct step *step, struct group *group, int32_t row, int32_t length)
{
    const int32_t seq = step->seqs[row];
    const struct step_reservation *reservation = &group->step.reservations[row];
    if (reservation->copied_from != NO_BLOCK) {
        const bool slides = seq_table_slides(&group->tables.at[seq]);
        block_drop(&group->blocks, reservation->copied_from, seq, slides);
    }
    promise_end_copy(&group->tables.promises, &group->tables.at[seq].promise);
    const int32_t filled = config_blocks_of_cells(length, group->config->block_size);
    seq_table_shrink(&group->tables, seq, max_i32(filled, reservation->end_before));
    promise_reach(&group->tables.promises, &group->tables.at[seq].promise, filled);
}
