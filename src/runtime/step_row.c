/* SPDX-License-Identifier: MIT
 *
 * The blocks of a row are charged to its namespace when it is decided, so that the rows of one
 * batch see what those before them take. Groups are undone in the reverse order of decisions. */
#include "runtime/step_row.h"

#include "runtime/publish.h"
#include "runtime/quota.h"
#include "runtime/reservation.h"

#define NO_ROW (-1)

/* Puts back who writes the tail blocks. */
static void cancel_reservations(pkv_cache *cache, int32_t row)
{
    for (int32_t g = cache->config.num_groups - 1; g >= 0; g--) {
        if (group_is_paged(&cache->groups[g])) {
            reservation_cancel(&cache->step, &cache->groups[g], row);
        }
    }
}

/* The verdict of the namespace's quota on a row that fits into every group. */
static enum pkv_status decide_quota(const pkv_cache *cache, int32_t row,
                                    struct pkv_shortage *shortage)
{
    const int32_t seq = cache->step.seqs[row];
    const struct prefix_scope *scope = &cache->seqs.at[seq].reuse.scope;
    int64_t num_new = 0;
    int64_t total = 0;
    if (!cache_has_reuse(cache)) {
        return PKV_OK;
    }
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        const struct group *group = &cache->groups[g];
        const struct step_reservation *reservation = &group->step.reservations[row];
        const struct seq_table *table = &group->tables.at[seq];
        const int32_t charge = seq_table_charge(table, reservation_end(reservation));
        num_new += reservation_end(reservation) > table->promise.end ? charge - table->charged : 0;
        total += charge;
    }
    if (num_new == 0 || num_new <= quota_room(cache, scope)) {
        return PKV_OK;
    }
    const struct quota quota = quota_of_scope(cache, scope);
    return quota_judge(PKV_OK, &quota, row, total, num_new, shortage);
}

/* Adds what a decided row takes to what is planned and charged; sign -1 undoes it. */
static void plan_row(pkv_cache *cache, int32_t row, int32_t sign)
{
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        if (group_is_paged(group)) {
            const struct step_reservation *reservation = &group->step.reservations[row];
            const int32_t seq = cache->step.seqs[row];
            const struct seq_table *table = &group->tables.at[seq];
            const int32_t end = sign > 0 ? reservation_end(reservation) : reservation->end_before;
            quota_charge(cache, group, seq, seq_table_charge(table, end) - table->charged);
            group->step.num_planned += sign * reservation_num_spare(reservation, &table->promise);
        }
    }
    for (int32_t s = 0; s < cache->num_states; s++) {
        state_step_plan(&cache->step, &cache->states[s], row, sign);
    }
}

enum pkv_status step_row_decide(pkv_cache *cache, int32_t row, struct pkv_shortage *shortage)
{
    enum pkv_status status = PKV_OK;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        if (group_is_paged(&cache->groups[g])) {
            status = reservation_decide(&cache->step, &cache->groups[g], row, status, shortage);
        }
    }
    for (int32_t s = 0; s < cache->num_states; s++) {
        const int32_t max_rewind = cache->seqs.at[cache->step.seqs[row]].max_rewind;
        status =
            state_step_decide(&cache->step, &cache->states[s], row, max_rewind, status, shortage);
    }
    if (status == PKV_OK) {
        status = decide_quota(cache, row, shortage);
    }
    if (status == PKV_OK) {
        plan_row(cache, row, 1);
    } else {
        cancel_reservations(cache, row);
    }
    return status;
}

void step_row_cancel(pkv_cache *cache, int32_t row)
{
    plan_row(cache, row, -1);
    cancel_reservations(cache, row);
}

void step_row_undo(pkv_cache *cache, int32_t row)
{
    for (int32_t s = cache->num_states - 1; s >= 0; s--) {
        state_step_undo(&cache->step, &cache->states[s], row);
    }
    for (int32_t g = cache->config.num_groups - 1; g >= 0; g--) {
        if (group_is_paged(&cache->groups[g])) {
            reservation_undo(&cache->step, &cache->groups[g], row);
        }
    }
    quota_settle(cache, cache->step.seqs[row]);
}

/* Its states are published as they are in the step. */
static void set_keeping(pkv_cache *cache, int32_t row)
{
    for (int32_t s = 0; s < cache->num_states; s++) {
        cache->states[s].step.keeping = row;
    }
}

void step_row_keep(pkv_cache *cache, int32_t row, int32_t num_keep)
{
    const int32_t index = cache->step.seqs[row];
    struct seq *seq = &cache->seqs.at[index];
    const int32_t length = seq->length + num_keep;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        if (group_is_paged(&cache->groups[g])) {
            reservation_keep(&cache->step, &cache->groups[g], row, length);
        }
    }
    seq->length = length;
    set_keeping(cache, row);
    /* Before blocks leave the window: they are indexed while the sequence still holds them. */
    publish_full_blocks(cache, index);
    set_keeping(cache, NO_ROW);
    const int32_t query = length > seq->max_rewind ? length - seq->max_rewind : 0;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        if (group_is_paged(&cache->groups[g])) {
            seq_table_reclaim(&cache->groups[g].tables, index, query);
        }
    }
    for (int32_t s = 0; s < cache->num_states; s++) {
        state_step_keep(&cache->step, &cache->states[s], row, num_keep, seq->max_rewind);
    }
    quota_settle(cache, index);
}
