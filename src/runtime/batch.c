/* SPDX-License-Identifier: MIT
 *
 * A batch is checked in two parts: what needs no cache before the mutex is taken, and what its
 * handles name under it. A sequence that appears twice is found by a stamp: each batch has a number
 * of its own, and marks the sequences that it names with it. */
#include "runtime/batch.h"

#include <string.h>

#include "attn/tree.h"
#include "base/build.h"
#include "base/error.h"
#include "base/sized.h"
#include "runtime/prompt.h"
#include "runtime/shortage.h"

static int32_t q_len_of(const struct pkv_batch *batch, int32_t row)
{
    return batch->q_lens != NULL ? batch->q_lens[row] : 1;
}

static enum pkv_status check_rows(const struct pkv_cache_config *config,
                                  const struct pkv_batch *batch,
                                  const struct pkv_shortage *shortage)
{
    if (batch->num_required_rows < 0 || batch->num_required_rows > batch->num_rows) {
        return INVALID("num_required_rows = %d, outside [0, num_rows = %d]",
                       batch->num_required_rows, batch->num_rows);
    }
    if (batch->seqs == NULL && batch->num_rows > 0) {
        return INVALID("batch->seqs is NULL");
    }
    if (shortage == NULL && batch->num_required_rows < batch->num_rows) {
        return INVALID("shortage is NULL, but rows may be left out: nothing would say how many");
    }
    if (batch->num_rows > config->max_step_rows) {
        return INVALID("num_rows = %d, above max_step_rows = %d", batch->num_rows,
                       config->max_step_rows);
    }
    return PKV_OK;
}

static enum pkv_status check_tokens(const struct pkv_cache_config *config,
                                    const struct pkv_batch *batch, int32_t *row)
{
    int64_t num_tokens = 0;
    for (int32_t i = 0; i < batch->num_rows; i++) {
        const int32_t q_len = q_len_of(batch, i);
        if (q_len < 0) {
            *row = i;
            return INVALID("q_lens[%d] = %d, below 0", i, q_len);
        }
        num_tokens += q_len;
    }
    if (num_tokens > config->max_step_tokens) {
        return INVALID("%lld tokens, above max_step_tokens = %d", (long long)num_tokens,
                       config->max_step_tokens);
    }
    if (batch->token_ids == NULL && num_tokens > 0) {
        return INVALID("batch->token_ids is NULL");
    }
    return PKV_OK;
}

static enum pkv_status check_range_counts(const struct pkv_batch *batch, int32_t *row)
{
    const int32_t *cu = batch->cu_bidirectional;
    if (cu == NULL) {
        return batch->bidirectional == NULL
                   ? PKV_OK
                   : INVALID("batch->cu_bidirectional is NULL and bidirectional is not");
    }
    if (cu[0] != 0) {
        return INVALID("cu_bidirectional[0] = %d, not 0", cu[0]);
    }
    for (int32_t i = 0; i < batch->num_rows; i++) {
        if (cu[i + 1] < cu[i]) {
            *row = i;
            return INVALID("cu_bidirectional[%d] = %d, below the entry before it, %d", i + 1,
                           cu[i + 1], cu[i]);
        }
    }
    if (batch->bidirectional == NULL && cu[batch->num_rows] > 0) {
        return INVALID("batch->bidirectional is NULL, for %d ranges", cu[batch->num_rows]);
    }
    return PKV_OK;
}

enum pkv_status batch_take(const struct pkv_cache_config *config, const struct pkv_batch *given,
                           const struct pkv_shortage *shortage, struct pkv_batch *batch,
                           int32_t *row)
{
    enum pkv_status status = sized_read("batch", given, cu_bidirectional, batch);
    if (status == PKV_OK) {
        status = check_rows(config, batch, shortage);
    }
    if (status == PKV_OK) {
        status = check_tokens(config, batch, row);
    }
    return status == PKV_OK ? check_range_counts(batch, row) : status;
}

/* The position of token i of a row, behind the `length` that its sequence has. */
static int32_t position_of(const struct step *step, int32_t row, int32_t length, int32_t i)
{
    return length + (step->has_parents ? step->depths[step->cu_seqlens[row] + i] : i);
}

/* Rope reads a row of its cos/sin tables for each new token, so that row must exist. */
static enum pkv_status check_positions(const pkv_cache *cache, int32_t row,
                                       const int64_t *position_ids, int32_t length, int32_t q_len)
{
    for (int32_t i = 0; cache->rope_positions != INT64_MAX && i < q_len; i++) {
        const int64_t position =
            position_ids != NULL ? position_ids[i] : position_of(&cache->step, row, length, i);
        if (position < 0 || position >= cache->rope_positions) {
            return INVALID(
                "row %d: position %lld of token %d is outside [0, rope_positions = %lld)", row,
                (long long)position, i, (long long)cache->rope_positions);
        }
    }
    return PKV_OK;
}

/* The ranges of a row whose lengths are known: all are checked, and those of its new tokens become
 * the step's. */
static enum pkv_status resolve_ranges(pkv_cache *cache, const struct pkv_batch *batch, int32_t row)
{
    struct step *step = &cache->step;
    const int32_t *cu = batch->cu_bidirectional;
    const int32_t past = step_length_before(step, row);
    int32_t first = cu != NULL ? cu[row] : 0;
    const int32_t end = cu != NULL ? cu[row + 1] : 0;
    const struct prompt_ranges ranges = {
        .at = first < end ? batch->bidirectional + first : NULL,
        .count = end - first,
        .first_index = first,
        .row = row,
        .past = past,
        .length = step->kv_lens[row],
        .extra = batch->token_extra != NULL ? batch->token_extra + step->cu_seqlens[row] : NULL,
    };
    const enum pkv_status status = prompt_ranges_check(&ranges, cache_has_reuse(cache));
    while (first < end && batch->bidirectional[first].begin < past) {
        first++;
    }
    step->cu_ranges[row + 1] = step->cu_ranges[row];
    if (status == PKV_OK && first < end) {
        memcpy(step->ranges + step->cu_ranges[row], batch->bidirectional + first,
               (size_t)(end - first) * sizeof *step->ranges);
        step->cu_ranges[row + 1] += end - first;
    }
    return status;
}

/* The parents of a row become the step's. A tree has a bound that chains have not, and no
 * bidirectional range. */
static enum pkv_status resolve_parents(pkv_cache *cache, const struct pkv_batch *batch, int32_t row)
{
    struct step *step = &cache->step;
    const int32_t first = step->cu_seqlens[row];
    const int32_t q_len = q_len_of(batch, row);
    if (batch->parents == NULL || q_len == 0) {
        return PKV_OK;
    }
    const int32_t *parents = batch->parents + first;
    const int32_t fault = tree_first_fault(parents, q_len);
    if (fault < q_len) {
        return INVALID("row %d: parents[%d] = %d: the parent of token %d is outside [-1, %d)", row,
                       first + fault, parents[fault], fault, fault);
    }
    if (q_len > PKV_MAX_TREE_TOKENS && !tree_is_chain(parents, q_len)) {
        return INVALID("row %d: a tree of %d tokens, above %d", row, q_len, PKV_MAX_TREE_TOKENS);
    }
    memcpy(step->parents + first, parents, (size_t)q_len * sizeof *parents);
    tree_fill_depths(parents, q_len, step->depths + first);
    return PKV_OK;
}

/* Any token of a tree may be the last one kept, so each needs its state. */
static enum pkv_status check_tree_states(const pkv_cache *cache, const struct seq *seq, int32_t row)
{
    const struct step *step = &cache->step;
    const int32_t q_len = step_q_len(step, row);
    const bool is_tree =
        step->has_parents && !tree_is_chain(step->parents + step->cu_seqlens[row], q_len);
    return cache->num_states > 0 && is_tree && q_len > seq->max_rewind + 1
               ? INVALID("row %d: a tree of %d tokens; with states a sequence of max_rewind %d may "
                         "have %d",
                         row, q_len, seq->max_rewind, seq->max_rewind + 1)
               : PKV_OK;
}

static enum pkv_status check_tree_ranges(const struct step *step, int32_t row)
{
    const bool is_tree = step->has_parents && !tree_is_chain(step->parents + step->cu_seqlens[row],
                                                             step_q_len(step, row));
    return is_tree && step->cu_ranges[row + 1] > step->cu_ranges[row]
               ? INVALID("row %d: a tree of drafts with a bidirectional range of new tokens", row)
               : PKV_OK;
}

/* Token `at` of those given is not what the prompt has at `position`. */
static enum pkv_status refuse_token(const pkv_cache *cache, int32_t row, const struct seq *seq,
                                    int32_t position, const struct pkv_prompt *tokens, int32_t at)
{
    const struct pkv_prompt admitted = seq_tokens_at(
        &cache->reuse.tokens, sequence_index(&cache->seqs, seq), &seq->tokens, position, 1);
    return INVALID("row %d, position %d: token %d (token_extra %llx) is not that of the prompt "
                   "admitted, %d (%llx)",
                   row, position, tokens->token_ids[at],
                   (unsigned long long)prompt_extra(tokens, at), admitted.token_ids[0],
                   (unsigned long long)prompt_extra(&admitted, 0));
}

/* With config.check_tokens, a row of a prompt brings what admission was given. */
static enum pkv_status check_prompt(const pkv_cache *cache, const struct pkv_batch *batch,
                                    int32_t row, const struct seq *seq)
{
    const struct seq_tokens_rows *rows = &cache->reuse.tokens;
    const int32_t index = sequence_index(&cache->seqs, seq);
    const int32_t q_len = q_len_of(batch, row);
    if (!cache->config.check_tokens || !cache_has_reuse(cache) || q_len == 0) {
        return PKV_OK;
    }
    const int32_t first = cache->step.cu_seqlens[row];
    for (int32_t i = 0, count; i < q_len; i += count) {
        count = cache->step.has_parents ? 1 : q_len; /* of a tree, each at its depth */
        const int32_t position = position_of(&cache->step, row, seq->length, i);
        const struct pkv_prompt tokens = batch_tokens(batch, first + i, count);
        const int32_t at = seq_tokens_mismatch(rows, index, &seq->tokens, position, &tokens);
        if (at >= 0) {
            return refuse_token(cache, row, seq, position + at, &tokens, at);
        }
    }
    return PKV_OK;
}

/* What rows touch lies far apart: it is prefetched while all rows are resolved, before the first is
 * decided. `at` is the position of the sequence's next token. */
static void prefetch_row(const pkv_cache *cache, int32_t seq, int32_t at)
{
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        PKV_PREFETCH(&cache->groups[g].tables.at[seq]);
    }
    if (cache_has_reuse(cache)) {
        seq_tokens_prefetch(&cache->reuse.tokens, seq, at);
    }
}

/* A sequence whose cells are not in its blocks, or may not be yet. */
static enum pkv_status refuse_elsewhere(const struct seq *seq, pkv_seq handle, int32_t row)
{
    if (seq->is_moving) {
        return refuse(PKV_BUSY,
                      "seqs[%d]: the keys and values of sequence %016llx are being copied", row,
                      (unsigned long long)handle.id);
    }
    return refuse(PKV_NOT_RESIDENT, "seqs[%d]: sequence %016llx is swapped out", row,
                  (unsigned long long)handle.id);
}

/* A state group that cannot go on behind the sequence's tokens; -1 = none. */
static int32_t group_without_state(const pkv_cache *cache, const struct seq *seq)
{
    const int32_t index = sequence_index(&cache->seqs, seq);
    for (int32_t s = 0; seq->length > 0 && s < cache->num_states; s++) {
        if (state_list_find(&cache->states[s], index, seq->length) == NO_BLOCK) {
            return cache->states[s].index;
        }
    }
    return -1;
}

static enum pkv_status resolve_row(pkv_cache *cache, const struct pkv_batch *batch, int32_t row)
{
    struct step *step = &cache->step;
    struct seq *seq = sequence_find(&cache->seqs, batch->seqs[row]);
    if (seq == NULL) {
        return refuse(PKV_STALE_HANDLE, "seqs[%d] = %016llx is stale", row,
                      (unsigned long long)batch->seqs[row].id);
    }
    if (seq->is_moving || seq->is_swapped) {
        return refuse_elsewhere(seq, batch->seqs[row], row);
    }
    if (seq->stamp == cache->batch_stamp) {
        return INVALID("seqs[%d] appears in the batch twice", row);
    }
    seq->stamp = cache->batch_stamp;
    const int32_t q_len = q_len_of(batch, row);
    if (q_len > seq->max_tokens - seq->length) {
        return INVALID("row %d: %d tokens after the %d it has pass %s = %d", row, q_len,
                       seq->length,
                       seq->max_tokens < cache->config.max_seq_len ? "max_tokens" : "max_seq_len",
                       seq->max_tokens);
    }
    const int32_t lost = q_len > 0 ? group_without_state(cache, seq) : -1;
    if (lost >= 0) {
        return refuse(PKV_NOT_RESIDENT,
                      "seqs[%d]: group %d has no state of its %d tokens: an open step was aborted "
                      "in which it was updated in place",
                      row, lost, seq->length);
    }
    const int64_t *position_ids =
        batch->position_ids != NULL ? batch->position_ids + step->cu_seqlens[row] : NULL;
    step->seqs[row] = sequence_index(&cache->seqs, seq);
    prefetch_row(cache, step->seqs[row], seq->length);
    step->cu_seqlens[row + 1] = step->cu_seqlens[row] + q_len;
    step->kv_lens[row] = seq->length + q_len;
    enum pkv_status status = resolve_parents(cache, batch, row);
    if (status == PKV_OK) {
        status = check_tree_states(cache, seq, row);
    }
    if (status == PKV_OK) {
        status = check_positions(cache, row, position_ids, seq->length, q_len);
    }
    if (status == PKV_OK) {
        status = check_prompt(cache, batch, row, seq);
    }
    if (status == PKV_OK) {
        status = resolve_ranges(cache, batch, row);
    }
    return status == PKV_OK ? check_tree_ranges(step, row) : status;
}

enum pkv_status batch_resolve(pkv_cache *cache, const struct pkv_batch *batch, int32_t *row)
{
    if (cache->is_closed) {
        return refuse(PKV_BUSY, "the cache is closed");
    }
    if (cache->step.is_open) {
        return refuse(PKV_BUSY, "a step is open");
    }
    if (batch->position_ids != NULL && cache->rope_positions == INT64_MAX) {
        return INVALID("position_ids is set, but no layer has rope");
    }
    cache->batch_stamp++;
    cache->step.cu_seqlens[0] = 0;
    cache->step.cu_ranges[0] = 0;
    cache->step.has_parents = batch->parents != NULL;
    enum pkv_status status = PKV_OK;
    for (int32_t i = 0; status == PKV_OK && i < batch->num_rows; i++) {
        status = resolve_row(cache, batch, i);
        if (status != PKV_OK) {
            *row = i;
        }
    }
    return status;
}
