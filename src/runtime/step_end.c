/* SPDX-License-Identifier: MIT
 *
 * Commit and abort. Commit keeps a row's reservation and releases the blocks that it did not fill;
 * a row of which nothing is kept, or whose sequence was destroyed, is undone like an abort.
 * Both are O(blocks touched), take no memory and cannot fail once they were checked. */
#include "attn/gqa_plan.h"
#include "attn/token_range.h"
#include "base/error.h"
#include "runtime/publish.h"
#include "runtime/seq_life.h"
#include "runtime/step_path.h"
#include "runtime/step_row.h"

/* What the layers attended in this step have read. */
static void count_reads(pkv_cache *cache)
{
    for (int32_t i = 0; cache->step.num_tokens > 0 && i < cache->config.num_layers; i++) {
        const struct layer *layer = &cache->layers[i];
        const struct pkv_kv_view *view = &layer->view;
        if (layer->owner == LAYER_OF_STATES) {
            continue;
        }
        const struct group *group = &cache->groups[layer->group];
        size_t cell = (size_t)view->k_width * pkv_dtype_bytes(view->k_dtype);
        if (!group->config->v_in_k) {
            cell += (size_t)view->v_width * pkv_dtype_bytes(view->v_dtype);
        }
        cache->counters.attention_bytes += layer->num_read_keys * cell;
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
        step_row_undo(cache, i);
    }
    close_step(cache);
}

static void commit(pkv_cache *cache, const int32_t *num_keep)
{
    const struct step *step = &cache->step;
    publish_prefetch(cache);
    for (int32_t i = 0; i < step->num_rows; i++) {
        const int32_t keep = num_keep != NULL ? num_keep[i] : step_q_len(step, i);
        if (keep == 0 || cache->seqs.at[step->seqs[i]].state == SEQ_DYING) {
            step_row_undo(cache, i);
        } else {
            step_row_keep(cache, i, keep);
        }
    }
    close_step(cache);
}

/* What is kept of a row ends with its last token, or between its bidirectional ranges. */
static enum pkv_status check_num_keep(const struct step *step, int32_t row, int32_t num_keep)
{
    const int32_t q_len = step_q_len(step, row);
    if (num_keep < 0 || num_keep > q_len) {
        return INVALID("num_keep[%d] = %d, outside [0, %d]", row, num_keep, q_len);
    }
    const int32_t length = step_length_before(step, row) + num_keep;
    const int32_t end =
        token_ranges_seen_end(step->ranges + step->cu_ranges[row],
                              step->cu_ranges[row + 1] - step->cu_ranges[row], length - 1);
    if (num_keep > 0 && end > length) {
        return INVALID("num_keep[%d] = %d cuts a bidirectional range: position %d sees up to %d",
                       row, num_keep, length - 1, end - 1);
    }
    return PKV_OK;
}

/* num_keep NULL = all. */
static enum pkv_status check_num_keeps(const pkv_cache *cache, const int32_t *num_keep)
{
    const struct step *step = &cache->step;
    enum pkv_status status = PKV_OK;
    for (int32_t i = 0; status == PKV_OK && num_keep != NULL && i < step->num_rows; i++) {
        const bool is_live = cache->seqs.at[step->seqs[i]].state == SEQ_LIVE;
        status = check_num_keep(step, i, num_keep[i]);
        for (int32_t s = 0; status == PKV_OK && is_live && s < cache->num_states; s++) {
            status = state_step_check_keep(step, &cache->states[s], i, num_keep[i]);
        }
    }
    return status;
}

static enum pkv_status check_chains(const struct step *step, const int32_t *num_keep)
{
    enum pkv_status status = PKV_OK;
    for (int32_t i = 0; status == PKV_OK && i < step->num_rows; i++) {
        status =
            step_path_check_chain(step, i, num_keep != NULL ? num_keep[i] : step_q_len(step, i));
    }
    return status;
}

static enum pkv_status check_attended(const pkv_cache *cache)
{
    const struct step *step = &cache->step;
    const enum pkv_status status = step_check_no_tasks(step);
    if (status != PKV_OK) {
        return status;
    }
    for (int32_t i = 0; step->num_tokens > 0 && i < cache->config.num_layers; i++) {
        if (cache->layers[i].owner == i && !cache->layers[i].is_attended) {
            return INVALID("layer %d was not attended in this step", i);
        }
    }
    return PKV_OK;
}

enum pkv_status pkv_step_commit(pkv_cache *cache, pkv_step step, const int32_t *num_keep)
{
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    cache_lock(cache);
    enum pkv_status status = step_check(&cache->step, step);
    if (status == PKV_OK) {
        status = check_num_keeps(cache, num_keep);
    }
    if (status == PKV_OK) {
        status = check_chains(&cache->step, num_keep);
    }
    if (status == PKV_OK) {
        status = check_attended(cache);
    }
    if (status == PKV_OK) {
        commit(cache, num_keep);
    }
    cache_unlock(cache);
    return status;
}

static enum pkv_status check_paths(pkv_cache *cache, pkv_step step, const int32_t *num_keep,
                                   const int32_t *path)
{
    cache_lock(cache);
    enum pkv_status status = step_check(&cache->step, step);
    if (status == PKV_OK) {
        status = check_num_keeps(cache, num_keep);
    }
    if (status == PKV_OK) {
        status = step_path_check(&cache->step, num_keep, path);
    }
    if (status == PKV_OK) {
        status = check_attended(cache);
    }
    cache_unlock(cache);
    return status;
}

enum pkv_status pkv_step_commit_path(pkv_cache *cache, pkv_step step, const int32_t *num_keep,
                                     const int32_t *path)
{
    if (cache == NULL || num_keep == NULL) {
        return INVALID("%s is NULL", cache == NULL ? "cache" : "num_keep");
    }
    const enum pkv_status status = check_paths(cache, step, num_keep, path);
    if (status != PKV_OK) {
        return status;
    }
    step_path_move_cells(cache, num_keep, path);
    cache_lock(cache);
    step_path_move_tokens(cache, num_keep, path);
    commit(cache, num_keep);
    cache_unlock(cache);
    return PKV_OK;
}

enum pkv_status pkv_step_abort(pkv_cache *cache, pkv_step step)
{
    if (cache == NULL) {
        return INVALID("cache is NULL");
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
