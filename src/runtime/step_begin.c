/* SPDX-License-Identifier: MIT
 *
 * Begin, and its dry run. Nothing here touches a key or a value. In four passes, so that a refusal
 * or a dry run leaves even the order of the free blocks as it was:
 *
 *   resolve  every handle, length and bound of the batch (batch.h); no effect
 *   decide   rows in order, until one does not fit (step_row.h); undone exactly by cancel
 *   plan     attention of the rows that join (step_plan.h); the last that can fail
 *   take     the blocks decided
 *
 * O(rows * groups + tokens + blocks taken). */
#include <string.h>

#include "base/error.h"
#include "base/sized.h"
#include "runtime/batch.h"
#include "runtime/handle.h"
#include "runtime/publish.h"
#include "runtime/reservation.h"
#include "runtime/shortage.h"
#include "runtime/step_plan.h"
#include "runtime/step_row.h"

static void cancel(pkv_cache *cache, int32_t num_rows)
{
    for (int32_t i = num_rows - 1; i >= 0; i--) {
        step_row_cancel(cache, i);
    }
    cache->step.num_rows = 0;
    cache->step.num_tokens = 0;
}

/* Decides the batch: step.num_rows is how many rows join. On refusal nothing is changed. */
static enum pkv_status decide(pkv_cache *cache, const struct pkv_batch *batch,
                              struct pkv_shortage *shortage)
{
    struct step *step = &cache->step;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        group->step.num_planned = 0;
        for (int32_t i = 0; group_is_paged(group) && i < batch->num_rows; i++) {
            reservation_prefetch(step, group, i);
        }
    }
    for (int32_t s = 0; s < cache->num_states; s++) {
        cache->states[s].step.num_spare = 0;
    }
    *shortage = (struct pkv_shortage){.row = batch->num_rows, .group = SHORTAGE_NO_GROUP};
    int32_t row = 0;
    enum pkv_status status = PKV_OK;
    while (row < batch->num_rows && status == PKV_OK) {
        status = step_row_decide(cache, row, shortage);
        row += status == PKV_OK;
    }
    if (row < batch->num_required_rows) {
        cancel(cache, row);
        return shortage_refuse(&cache->config, status, shortage);
    }
    step->num_rows = row;
    step->num_tokens = step->cu_seqlens[row];
    return PKV_OK;
}

static void take(pkv_cache *cache)
{
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        group->step.num_copies = 0;
        for (int32_t i = 0; group_is_paged(group) && i < cache->step.num_rows; i++) {
            reservation_take(&cache->step, group, i);
        }
        cache->counters.copied_blocks += (uint64_t)group->step.num_copies;
    }
    for (int32_t s = 0; s < cache->num_states; s++) {
        state_step_take(&cache->step, &cache->states[s], &cache->seqs);
    }
}

/* The sequence records the tokens that the step writes. */
static void record_tokens(pkv_cache *cache, const struct pkv_batch *batch, int32_t row)
{
    const struct step *step = &cache->step;
    const int32_t seq = step->seqs[row];
    const int32_t first = step->cu_seqlens[row];
    const int32_t q_len = step_q_len(step, row);
    if (cache_has_reuse(cache) && q_len > 0) {
        const struct pkv_prompt tokens = batch_tokens(batch, first, q_len);
        seq_tokens_write(&cache->reuse.tokens, seq, &cache->seqs.at[seq].tokens,
                         step_length_before(step, row), &tokens);
    }
}

static void open_step(pkv_cache *cache, const struct pkv_batch *batch)
{
    struct step *step = &cache->step;
    step->generation = handle_next_generation(step->generation);
    step->is_open = true;
    step->has_position_ids = batch->position_ids != NULL;
    if (step->has_position_ids && step->num_tokens > 0) {
        memcpy(step->position_ids, batch->position_ids,
               (size_t)step->num_tokens * sizeof *step->position_ids);
    }
    step->num_publishing = 0;
    for (int32_t i = 0; i < step->num_rows; i++) {
        cache->seqs.at[step->seqs[i]].in_step = true;
        record_tokens(cache, batch, i);
        publish_expect(cache, step->seqs[i], step->kv_lens[i]);
    }
    for (int32_t i = 0; i < cache->config.num_layers; i++) {
        cache->layers[i].is_attended = false;
        cache->layers[i].num_read_keys = 0;
    }
    atomic_store(&step->tasks_left, 0);
}

/* Time goes on once the batch is one that could begin. */
static enum pkv_status resolve(pkv_cache *cache, const struct pkv_batch *batch,
                               struct pkv_shortage *shortage)
{
    const enum pkv_status status = batch_resolve(cache, batch, &shortage->row);
    if (status == PKV_OK) {
        pin_expire(&cache->pins, batch->now_ns);
    }
    return status;
}

static enum pkv_status begin(pkv_cache *cache, const struct pkv_batch *batch,
                             struct pkv_shortage *shortage)
{
    enum pkv_status status = resolve(cache, batch, shortage);
    if (status == PKV_OK) {
        status = decide(cache, batch, shortage);
    }
    if (status != PKV_OK) {
        return status;
    }
    /* A plan refers to the tables and reads of them only whole spans below the new keys, which stay
     * as they are: so it can fail before a block is taken, and nothing has to be undone. */
    status = step_plan(cache);
    if (status != PKV_OK) {
        cancel(cache, cache->step.num_rows);
        return status;
    }
    take(cache);
    open_step(cache, batch);
    return PKV_OK;
}

/* A dry run. */
static enum pkv_status fits(pkv_cache *cache, const struct pkv_batch *batch,
                            struct pkv_shortage *shortage)
{
    enum pkv_status status = resolve(cache, batch, shortage);
    if (status == PKV_OK) {
        status = decide(cache, batch, shortage);
    }
    if (status == PKV_OK) {
        cancel(cache, cache->step.num_rows);
    }
    return status;
}

/* On success a shortage says how many rows join; of a batch that cannot be one, which row is wrong.
 */
static void report_shortage(enum pkv_status status, const struct pkv_shortage *found,
                            struct pkv_shortage *shortage)
{
    if (shortage != NULL &&
        (status == PKV_OK || shortage_is_why(status) || status == PKV_INVALID_ARGUMENT ||
         status == PKV_STALE_HANDLE || status == PKV_NOT_RESIDENT)) {
        sized_fill(shortage, found);
    }
}

enum pkv_status pkv_step_begin(pkv_cache *cache, const struct pkv_batch *given, pkv_step *step,
                               struct pkv_shortage *shortage)
{
    if (cache == NULL || step == NULL) {
        return INVALID("%s is NULL", cache == NULL ? "cache" : "step");
    }
    struct pkv_shortage found = {.row = SHORTAGE_NO_ROW, .group = SHORTAGE_NO_GROUP};
    struct pkv_batch batch;
    enum pkv_status status = shortage_check(shortage);
    if (status != PKV_OK) {
        return status;
    }
    status = batch_take(&cache->config, given, shortage, &batch, &found.row);
    if (status != PKV_OK) {
        report_shortage(status, &found, shortage);
        return status;
    }
    cache_lock(cache);
    status = begin(cache, &batch, &found);
    if (status == PKV_OK) {
        *step = step_handle(&cache->step);
    }
    cache_unlock(cache);
    report_shortage(status, &found, shortage);
    return status;
}

enum pkv_status pkv_step_fits(pkv_cache *cache, const struct pkv_batch *given,
                              struct pkv_shortage *shortage)
{
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    struct pkv_shortage found = {.row = SHORTAGE_NO_ROW, .group = SHORTAGE_NO_GROUP};
    struct pkv_batch batch;
    enum pkv_status status = shortage_check(shortage);
    if (status != PKV_OK) {
        return status;
    }
    status = batch_take(&cache->config, given, shortage, &batch, &found.row);
    if (status != PKV_OK) {
        report_shortage(status, &found, shortage);
        return status;
    }
    cache_lock(cache);
    status = fits(cache, &batch, &found);
    cache_unlock(cache);
    report_shortage(status, &found, shortage);
    return status;
}
