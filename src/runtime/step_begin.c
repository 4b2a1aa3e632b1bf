/* SPDX-License-Identifier: MIT
 *
 * The step: begin decides row by row what joins, takes blocks for all of it, and plans; commit and
 * abort end it. Nothing here touches a key or a value.
 *
 * Begin in three passes, so that a refusal or a dry run leaves even the order of the free blocks
 * as it was:
 *
 *   resolve  every handle, length and bound of the batch; no effect
 *   decide   rows in order: who writes its tail block in place, how many blocks it takes. What it
 *            changes (writers) is exactly undone by `forget`
 *   take     can no longer fail: decided rows take num_planned blocks of num_free
 *
 * Commit keeps a row's reservation and gives back what it did not fill; a row of which nothing is
 * kept is undone like an abort. Each is O(blocks touched) and takes no memory. */
#include <string.h>

#include "attn/gqa_plan.h"
#include "base/error.h"
#include "runtime/handle.h"
#include "runtime/publish.h"
#include "runtime/quota.h"
#include "runtime/reservation.h"
#include "runtime/seq_life.h"
#include "runtime/step_plan.h"

static enum pkv_status check_arrays(const struct pkv_batch *batch,
                                    const struct pkv_shortage *shortage)
{
    if (batch->size != sizeof *batch) {
        return refuse(PKV_INVALID_ARGUMENT, "batch->size = %zu, not %zu", batch->size,
                      sizeof *batch);
    }
    if (batch->num_required_rows < 0 || batch->num_required_rows > batch->num_rows) {
        return refuse(PKV_INVALID_ARGUMENT, "num_required_rows = %d, outside [0, num_rows = %d]",
                      batch->num_required_rows, batch->num_rows);
    }
    if (batch->seqs == NULL && batch->num_rows > 0) {
        return refuse(PKV_INVALID_ARGUMENT, "batch->seqs is NULL");
    }
    if (shortage == NULL && batch->num_required_rows < batch->num_rows) {
        return refuse(PKV_INVALID_ARGUMENT,
                      "shortage is NULL, but rows may be left out: nothing would say how many");
    }
    return PKV_OK;
}

static enum pkv_status check_batch(const struct pkv_cache_config *config,
                                   const struct pkv_batch *batch,
                                   const struct pkv_shortage *shortage)
{
    const enum pkv_status status = check_arrays(batch, shortage);
    if (status != PKV_OK) {
        return status;
    }
    if (batch->num_rows > config->max_step_rows) {
        return refuse(PKV_INVALID_ARGUMENT, "num_rows = %d, above max_step_rows = %d",
                      batch->num_rows, config->max_step_rows);
    }
    int64_t num_tokens = 0;
    for (int32_t i = 0; i < batch->num_rows; i++) {
        const int32_t q_len = batch->q_lens != NULL ? batch->q_lens[i] : 1;
        if (q_len < 0) {
            return refuse(PKV_INVALID_ARGUMENT, "q_lens[%d] = %d, below 0", i, q_len);
        }
        num_tokens += q_len;
    }
    if (num_tokens > config->max_step_tokens) {
        return refuse(PKV_INVALID_ARGUMENT, "%lld tokens, above max_step_tokens = %d",
                      (long long)num_tokens, config->max_step_tokens);
    }
    if (batch->token_ids == NULL && num_tokens > 0) {
        return refuse(PKV_INVALID_ARGUMENT, "batch->token_ids is NULL");
    }
    return PKV_OK;
}

/* Rope reads a row of its planes for each new token, so that row must exist. */
static enum pkv_status check_positions(const pkv_cache *cache, int32_t row,
                                       const int64_t *position_ids, int32_t length, int32_t q_len)
{
    for (int32_t i = 0; cache->rope_positions != INT64_MAX && i < q_len; i++) {
        const int64_t position = position_ids != NULL ? position_ids[i] : length + i;
        if (position < 0 || position >= cache->rope_positions) {
            return refuse(PKV_INVALID_ARGUMENT,
                          "row %d: position %lld of token %d is outside [0, rope_positions = %lld)",
                          row, (long long)position, i, (long long)cache->rope_positions);
        }
    }
    return PKV_OK;
}

/* What rows touch lies far apart: it is asked for while all rows are resolved, before the first is
 * decided. `at` is the position of the sequence's next token. */
static void prefetch_row(const pkv_cache *cache, int32_t seq, int32_t at)
{
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        const struct group *group = &cache->groups[g];
        if (group_is_paged(group)) {
            PKV_PREFETCH(&group->tables.at[seq]);
            PKV_PREFETCH(seq_table_entries(&group->tables, seq) + at / group->config->block_size);
        }
    }
    if (cache_has_reuse(cache)) {
        seq_tokens_prefetch(&cache->reuse.tokens, seq, at);
    }
}

static enum pkv_status resolve_row(pkv_cache *cache, const struct pkv_batch *batch, int32_t row)
{
    struct step *step = &cache->step;
    struct seq *seq = sequence_find(&cache->seqs, batch->seqs[row]);
    if (seq == NULL) {
        return refuse(PKV_STALE_HANDLE, "seqs[%d] = %016llx is stale", row,
                      (unsigned long long)batch->seqs[row].id);
    }
    if (seq->stamp == cache->batch_stamp) {
        return refuse(PKV_INVALID_ARGUMENT, "seqs[%d] stands in the batch twice", row);
    }
    seq->stamp = cache->batch_stamp;
    const int32_t q_len = batch->q_lens != NULL ? batch->q_lens[row] : 1;
    if (q_len > cache->config.max_seq_len - seq->length) {
        return refuse(PKV_INVALID_ARGUMENT,
                      "row %d: %d tokens after the %d it has pass max_seq_len = %d", row, q_len,
                      seq->length, cache->config.max_seq_len);
    }
    const int64_t *position_ids =
        batch->position_ids != NULL ? batch->position_ids + step->cu_seqlens[row] : NULL;
    step->seqs[row] = sequence_index(&cache->seqs, seq);
    prefetch_row(cache, step->seqs[row], seq->length);
    step->cu_seqlens[row + 1] = step->cu_seqlens[row] + q_len;
    step->kv_lens[row] = seq->length + q_len;
    return check_positions(cache, row, position_ids, seq->length, q_len);
}

static enum pkv_status resolve(pkv_cache *cache, const struct pkv_batch *batch)
{
    if (cache->is_closed) {
        return refuse(PKV_BUSY, "the cache is closed");
    }
    if (cache->step.is_open) {
        return refuse(PKV_BUSY, "a step is open");
    }
    cache->batch_stamp++;
    cache->step.cu_seqlens[0] = 0;
    enum pkv_status status = PKV_OK;
    for (int32_t i = 0; status == PKV_OK && i < batch->num_rows; i++) {
        status = resolve_row(cache, batch, i);
    }
    return status;
}

static void forget_row(pkv_cache *cache, int32_t row)
{
    for (int32_t g = cache->config.num_groups - 1; g >= 0; g--) {
        struct group *group = &cache->groups[g];
        if (group_is_paged(group)) {
            const struct reservation *reservation = &group->step.reservations[row];
            if (reservation->writer_change != WRITER_UNCHANGED) {
                block_unclaim(&group->blocks, reservation->tail_block, cache->step.seqs[row],
                              reservation->writer_change);
            }
        }
    }
}

/* Charges the blocks that a decided row takes to its namespace, or takes that back. */
static void charge_row(pkv_cache *cache, int32_t row, int32_t sign)
{
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        if (group_is_paged(group)) {
            quota_plan(cache, group, cache->step.seqs[row],
                       sign * group->step.reservations[row].num_new);
        }
    }
}

static void forget(pkv_cache *cache, int32_t num_rows)
{
    for (int32_t i = num_rows - 1; i >= 0; i--) {
        charge_row(cache, i, -1);
        forget_row(cache, i);
    }
}

/* What a row takes in one group, and who writes its tail block from now on. */
static struct reservation decide_in_group(const pkv_cache *cache, struct group *group, int32_t row)
{
    const struct step *step = &cache->step;
    const int32_t seq = step->seqs[row];
    const struct seq_table *table = &group->tables.at[seq];
    const int32_t q_len = step_q_len(step, row);
    const int32_t length = step->kv_lens[row] - q_len;
    const int32_t block_size = group->config->block_size;
    const int32_t tail = length / block_size;
    struct reservation reservation = {.end_before = table->end, .copied_from = NO_BLOCK};
    if (q_len == 0) {
        return reservation;
    }
    const int32_t end = config_blocks_of_cells(step->kv_lens[row], block_size);
    reservation.num_new = end > table->end ? end - table->end : 0;
    if (tail < table->end) {
        reservation.tail_block = seq_table_entries(&group->tables, seq)[tail];
        if (!block_claim(&group->blocks, reservation.tail_block, seq, length % block_size,
                         &reservation.writer_change)) {
            reservation.copied_from = reservation.tail_block;
        }
    }
    return reservation;
}

static int32_t num_taken(const struct reservation *reservation)
{
    return reservation->num_new + (reservation->copied_from != NO_BLOCK);
}

/* A row that is one block short because it must not write a findable tail forgets that one instead.
 * All free blocks are taken then, so no block after it stays findable without it. */
static void avoid_copy(const pkv_cache *cache, struct group *group, int32_t row, int32_t available)
{
    struct reservation *reservation = &group->step.reservations[row];
    if (reservation->copied_from != NO_BLOCK && num_taken(reservation) == available + 1 &&
        block_claim_indexed(&group->blocks, reservation->tail_block, cache->step.seqs[row],
                            &reservation->writer_change)) {
        reservation->copied_from = NO_BLOCK;
        reservation->uncaches_tail = true;
    }
}

/* Decides one row in one group. What no waiting can help goes before what is short now. */
static enum pkv_status decide_group(pkv_cache *cache, int32_t g, int32_t row,
                                    enum pkv_status status, struct pkv_shortage *shortage)
{
    struct group *group = &cache->groups[g];
    struct reservation *reservation = &group->step.reservations[row];
    const int32_t available = block_num_free(&group->blocks) - group->step.num_planned;
    *reservation = decide_in_group(cache, group, row);
    avoid_copy(cache, group, row, available);
    const int32_t alone = seq_table_num_mapped(&group->tables.at[cache->step.seqs[row]],
                                               reservation->end_before + reservation->num_new);
    const int32_t need = num_taken(reservation);
    const bool never = alone > group->config->num_blocks;
    if ((!never || status == PKV_NEVER_FITS) && (status != PKV_OK || need <= available)) {
        return status;
    }
    const int32_t cached = block_num_cached(&group->blocks);
    *shortage = (struct pkv_shortage){.row = row,
                                      .group = g,
                                      .need = never ? alone : need,
                                      .free = available,
                                      .evictable = cached < available ? cached : available};
    return never ? PKV_NEVER_FITS : PKV_NO_BLOCKS;
}

static enum pkv_status decide_quota(const pkv_cache *cache, int32_t row,
                                    struct pkv_shortage *shortage)
{
    const int32_t seq = cache->step.seqs[row];
    const struct prefix_scope *scope = &cache->seqs.at[seq].reuse.scope;
    const int64_t room = quota_room(cache, scope);
    int64_t num_new = 0;
    int64_t total = 0;
    for (int32_t g = 0; room != INT64_MAX && g < cache->config.num_groups; g++) {
        const struct reservation *reservation = &cache->groups[g].step.reservations[row];
        num_new += reservation->num_new;
        total += seq_table_num_mapped(&cache->groups[g].tables.at[seq],
                                      reservation->end_before + reservation->num_new);
    }
    if (num_new == 0 || num_new <= room) {
        return PKV_OK;
    }
    const int64_t quota = quota_of(cache, scope);
    const bool never = total > quota;
    *shortage = (struct pkv_shortage){.row = row,
                                      .group = -1,
                                      .need = never ? total : num_new,
                                      .free = room > 0 ? room : 0,
                                      .quota = quota};
    return never ? PKV_NEVER_FITS : PKV_NO_BLOCKS;
}

/* Decides one row in every group; a row that does not fit is forgotten again. */
static enum pkv_status decide_row(pkv_cache *cache, int32_t row, struct pkv_shortage *shortage)
{
    enum pkv_status status = PKV_OK;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        if (group_is_paged(&cache->groups[g])) {
            status = decide_group(cache, g, row, status, shortage);
        }
    }
    if (status == PKV_OK) {
        status = decide_quota(cache, row, shortage);
    }
    if (status != PKV_OK) {
        forget_row(cache, row);
        return status;
    }
    charge_row(cache, row, 1);
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        if (group_is_paged(group)) {
            group->step.num_planned += num_taken(&group->step.reservations[row]);
        }
    }
    return PKV_OK;
}

/* Decides the batch: step.num_rows is how many rows join. On refusal nothing is changed. */
static enum pkv_status decide(pkv_cache *cache, const struct pkv_batch *batch,
                              struct pkv_shortage *shortage)
{
    struct step *step = &cache->step;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        cache->groups[g].step.num_planned = 0;
    }
    *shortage = (struct pkv_shortage){.row = batch->num_rows, .group = -1};
    int32_t row = 0;
    enum pkv_status status = PKV_OK;
    while (row < batch->num_rows && status == PKV_OK) {
        status = decide_row(cache, row, shortage);
        row += status == PKV_OK;
    }
    if (status != PKV_OK && row < batch->num_required_rows) {
        forget(cache, row);
        return refuse(status, "row %d: group %d needs %lld blocks, %lld free", row, shortage->group,
                      (long long)shortage->need, (long long)shortage->free);
    }
    step->num_rows = row;
    step->num_tokens = step->cu_seqlens[row];
    return PKV_OK;
}

static void take_in_group(pkv_cache *cache, struct group *group, int32_t row)
{
    const struct step *step = &cache->step;
    const int32_t seq = step->seqs[row];
    const struct reservation *reservation = &group->step.reservations[row];
    if (reservation->uncaches_tail) {
        block_uncache(&group->blocks, reservation->tail_block);
    }
    if (reservation->copied_from != NO_BLOCK) {
        const int32_t length = step->kv_lens[row] - step_q_len(step, row);
        const int32_t block_size = group->config->block_size;
        const int32_t dst = block_take(&group->blocks, seq);
        seq_table_entries(&group->tables, seq)[length / block_size] = dst;
        group->step.copies[group->step.num_copies++] = (struct pkv_page_copy){
            .src = reservation->copied_from, .dst = dst, .num_cells = length % block_size};
    }
    seq_table_extend(&group->tables, seq, reservation->end_before + reservation->num_new);
}

/* What the plans need of the rows beside their tables. */
static void note_rows(pkv_cache *cache)
{
    const struct step *step = &cache->step;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        for (int32_t i = 0; i < step->num_rows; i++) {
            group->step.kept_prefix[i] = group_kept_prefix(group, &cache->seqs.at[step->seqs[i]]);
            if (!group_is_paged(group)) {
                group->step.slot_ids[i] = group->tables.at[step->seqs[i]].slot;
            }
        }
    }
}

static void take(pkv_cache *cache)
{
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        group->step.num_copies = 0;
        for (int32_t i = 0; group_is_paged(group) && i < cache->step.num_rows; i++) {
            take_in_group(cache, group, i);
        }
        cache->counters.copied_blocks += (uint64_t)group->step.num_copies;
    }
}

static void undo_in_group(pkv_cache *cache, struct group *group, int32_t row)
{
    const int32_t seq = cache->step.seqs[row];
    const struct reservation *reservation = &group->step.reservations[row];
    seq_table_shrink(&group->tables, seq, reservation->end_before);
    if (reservation->copied_from != NO_BLOCK) {
        const int32_t tail = cache->seqs.at[seq].length / group->config->block_size;
        int32_t *entry = &seq_table_entries(&group->tables, seq)[tail];
        block_drop(&group->blocks, *entry, seq);
        *entry = reservation->copied_from;
    }
    if (reservation->writer_change != WRITER_UNCHANGED) {
        block_unclaim(&group->blocks, reservation->tail_block, seq, reservation->writer_change);
    }
}

static void undo_row(pkv_cache *cache, int32_t row)
{
    for (int32_t g = cache->config.num_groups - 1; g >= 0; g--) {
        if (group_is_paged(&cache->groups[g])) {
            undo_in_group(cache, &cache->groups[g], row);
        }
    }
    quota_settle(cache, cache->step.seqs[row]);
}

static void keep_in_group(pkv_cache *cache, struct group *group, int32_t row, int32_t length)
{
    const int32_t index = cache->step.seqs[row];
    const struct reservation *reservation = &group->step.reservations[row];
    if (reservation->copied_from != NO_BLOCK) {
        block_drop(&group->blocks, reservation->copied_from, index);
    }
    const int32_t filled = config_blocks_of_cells(length, group->config->block_size);
    seq_table_shrink(&group->tables, index,
                     filled > reservation->end_before ? filled : reservation->end_before);
}

static void keep_row(pkv_cache *cache, int32_t row, int32_t num_keep)
{
    const int32_t index = cache->step.seqs[row];
    struct seq *seq = &cache->seqs.at[index];
    const int32_t length = seq->length + num_keep;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        if (group_is_paged(&cache->groups[g])) {
            keep_in_group(cache, &cache->groups[g], row, length);
        }
    }
    seq->length = length;
    /* Before blocks leave the window: their keys stay findable. */
    publish_full_blocks(cache, index);
    const int32_t query = length > seq->max_rewind ? length - seq->max_rewind : 0;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        if (group_is_paged(&cache->groups[g])) {
            seq_table_reclaim(&cache->groups[g].tables, index, query);
        }
    }
    quota_settle(cache, index);
}

/* What the layers attended in this step have read. */
static void count_reads(pkv_cache *cache)
{
    for (int32_t i = 0; cache->step.num_tokens > 0 && i < cache->config.num_layers; i++) {
        const struct layer *layer = &cache->layers[i];
        const struct pkv_kv_view *view = &layer->view;
        const struct group *group = &cache->groups[layer->group];
        size_t cell = (size_t)view->k_width * pkv_dtype_bytes(view->k_dtype);
        if (!group->config->v_in_k) {
            cell += (size_t)view->v_width * pkv_dtype_bytes(view->v_dtype);
        }
        cache->counters.attention_bytes +=
            (uint64_t)layer->num_reads * (uint64_t)gqa_plan_read_keys(group->step.plan) * cell;
    }
}

/* The rows are settled: sequences are idle again, or released if they were destroyed meanwhile. */
static void close_step(pkv_cache *cache)
{
    struct step *step = &cache->step;
    count_reads(cache);
    for (int32_t i = 0; i < step->num_rows; i++) {
        struct seq *seq = &cache->seqs.at[step->seqs[i]];
        seq->in_step = false;
        seq_tokens_end_step(&seq->tokens, seq->length);
        if (seq->state == SEQ_DYING) {
            seq_life_release(cache, step->seqs[i]);
        }
    }
    step->is_open = false;
    step->num_rows = 0;
    step->num_tokens = 0;
}

static void abort_step(pkv_cache *cache)
{
    for (int32_t i = cache->step.num_rows - 1; i >= 0; i--) {
        undo_row(cache, i);
    }
    close_step(cache);
}

static void note_tokens(pkv_cache *cache, const struct pkv_batch *batch, int32_t row)
{
    const struct step *step = &cache->step;
    const int32_t seq = step->seqs[row];
    const int32_t first = step->cu_seqlens[row];
    const int32_t q_len = step_q_len(step, row);
    if (cache_has_reuse(cache) && q_len > 0) {
        const struct pkv_prompt tokens = {
            .token_ids = batch->token_ids + first,
            .token_extra = batch->token_extra != NULL ? batch->token_extra + first : NULL,
            .num_tokens = q_len,
        };
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
    for (int32_t i = 0; i < step->num_rows; i++) {
        cache->seqs.at[step->seqs[i]].in_step = true;
        note_tokens(cache, batch, i);
    }
    for (int32_t i = 0; i < cache->config.num_layers; i++) {
        cache->layers[i].is_attended = false;
        cache->layers[i].num_reads = 0;
    }
    atomic_store(&step->tasks_left, 0);
}

static enum pkv_status begin(pkv_cache *cache, const struct pkv_batch *batch,
                             struct pkv_shortage *shortage)
{
    enum pkv_status status = resolve(cache, batch);
    if (status == PKV_OK) {
        status = decide(cache, batch, shortage);
    }
    if (status != PKV_OK) {
        return status;
    }
    /* A plan refers to the tables and reads of them only whole spans below the new keys, which stay
     * as they are: so it can fail before a block is taken, and nothing has to be given back. */
    note_rows(cache);
    status = step_plan(cache);
    if (status != PKV_OK) {
        forget(cache, cache->step.num_rows);
        cache->step.num_rows = 0;
        cache->step.num_tokens = 0;
        return status;
    }
    take(cache);
    open_step(cache, batch);
    return PKV_OK;
}

static bool fills_shortage(enum pkv_status status)
{
    return status == PKV_OK || status == PKV_NO_BLOCKS || status == PKV_NEVER_FITS;
}

enum pkv_status pkv_step_begin(pkv_cache *cache, const struct pkv_batch *batch, pkv_step *step,
                               struct pkv_shortage *shortage)
{
    if (cache == NULL || batch == NULL || step == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "%s is NULL",
                      cache == NULL   ? "cache"
                      : batch == NULL ? "batch"
                                      : "step");
    }
    enum pkv_status status = check_batch(&cache->config, batch, shortage);
    if (status != PKV_OK) {
        return status;
    }
    struct pkv_shortage found;
    cache_lock(cache);
    pin_expire(&cache->pins, batch->now_ns);
    status = begin(cache, batch, &found);
    if (status == PKV_OK) {
        *step = step_handle(&cache->step);
    }
    cache_unlock(cache);
    if (shortage != NULL && fills_shortage(status)) {
        *shortage = found;
    }
    return status;
}

enum pkv_status pkv_step_fits(pkv_cache *cache, const struct pkv_batch *batch,
                              struct pkv_shortage *shortage)
{
    if (cache == NULL || batch == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "%s is NULL", cache == NULL ? "cache" : "batch");
    }
    enum pkv_status status = check_batch(&cache->config, batch, shortage);
    if (status != PKV_OK) {
        return status;
    }
    struct pkv_shortage found;
    cache_lock(cache);
    pin_expire(&cache->pins, batch->now_ns);
    status = resolve(cache, batch);
    if (status == PKV_OK) {
        status = decide(cache, batch, &found);
    }
    if (status == PKV_OK) {
        forget(cache, cache->step.num_rows);
        cache->step.num_rows = 0;
        cache->step.num_tokens = 0;
    }
    cache_unlock(cache);
    if (shortage != NULL && fills_shortage(status)) {
        *shortage = found;
    }
    return status;
}

static enum pkv_status check_commit(const pkv_cache *cache, const int32_t *num_keep)
{
    const struct step *step = &cache->step;
    for (int32_t i = 0; num_keep != NULL && i < step->num_rows; i++) {
        if (num_keep[i] < 0 || num_keep[i] > step_q_len(step, i)) {
            return refuse(PKV_INVALID_ARGUMENT, "num_keep[%d] = %d, outside [0, %d]", i,
                          num_keep[i], step_q_len(step, i));
        }
    }
    const enum pkv_status status = step_check_no_tasks(step);
    if (status != PKV_OK) {
        return status;
    }
    for (int32_t i = 0; step->num_tokens > 0 && i < cache->config.num_layers; i++) {
        if (cache->layers[i].owner == i && !cache->layers[i].is_attended) {
            return refuse(PKV_INVALID_ARGUMENT, "layer %d was not attended in this step", i);
        }
    }
    return PKV_OK;
}

static void commit(pkv_cache *cache, const int32_t *num_keep)
{
    const struct step *step = &cache->step;
    for (int32_t i = 0; i < step->num_rows; i++) {
        const int32_t keep = num_keep != NULL ? num_keep[i] : step_q_len(step, i);
        if (keep == 0 || cache->seqs.at[step->seqs[i]].state == SEQ_DYING) {
            undo_row(cache, i);
        } else {
            keep_row(cache, i, keep);
        }
    }
    close_step(cache);
}

enum pkv_status pkv_step_commit(pkv_cache *cache, pkv_step step, const int32_t *num_keep)
{
    if (cache == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "cache is NULL");
    }
    cache_lock(cache);
    enum pkv_status status = step_check(&cache->step, step);
    if (status == PKV_OK) {
        status = check_commit(cache, num_keep);
    }
    if (status == PKV_OK) {
        commit(cache, num_keep);
    }
    cache_unlock(cache);
    return status;
}

enum pkv_status pkv_step_abort(pkv_cache *cache, pkv_step step)
{
    if (cache == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "cache is NULL");
    }
    cache_lock(cache);
    enum pkv_status status = step_check(&cache->step, step);
    if (status == PKV_OK) {
        status = step_check_no_tasks(&cache->step);
    }
    if (status == PKV_OK) {
        abort_step(cache);
    }
    cache_unlock(cache);
    return status;
}

static struct pkv_step_view view_of(const pkv_cache *cache, int32_t g)
{
    const struct step *step = &cache->step;
    const struct group *group = &cache->groups[g];
    const bool is_paged = group_is_paged(group);
    return (struct pkv_step_view){
        .num_rows = step->num_rows,
        .num_tokens = step->num_tokens,
        .block_tables = group->tables.entries,
        .table_rows = is_paged ? step->seqs : NULL,
        .table_stride = group->tables.stride,
        .max_blocks = group->tables.max_blocks,
        .slot_ids = is_paged ? NULL : group->step.slot_ids,
        .cu_seqlens_q = step->cu_seqlens,
        .kv_lens = step->kv_lens,
        .position_ids = step->has_position_ids ? step->position_ids : NULL,
        .kept_prefix = group->step.kept_prefix,
        .sliding_window = group->config->sliding_window,
        .copies = group->step.copies,
        .num_copies = group->step.num_copies,
        .first_layer = group->first_view,
        .layer_stride_bytes = group->layer_stride_bytes,
    };
}

enum pkv_status pkv_step_view(pkv_cache *cache, pkv_step step, int32_t group,
                              struct pkv_step_view *view)
{
    if (cache == NULL || view == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "%s is NULL", cache == NULL ? "cache" : "view");
    }
    if (group < 0 || group >= cache->config.num_groups) {
        return refuse(PKV_INVALID_ARGUMENT, "group = %d, outside [0, %d)", group,
                      cache->config.num_groups);
    }
    cache_lock(cache);
    const enum pkv_status status = step_check(&cache->step, step);
    if (status == PKV_OK) {
        *view = view_of(cache, group);
    }
    cache_unlock(cache);
    return status;
}
