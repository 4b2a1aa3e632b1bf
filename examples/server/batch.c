/* SPDX-License-Identifier: MIT */
#include "batch.h"

#include "cached.h"
#include "lookup.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>

int32_t batch_max_tokens(const struct engine_options *options)
{
    return options->max_batch * (1 + options->num_drafts) + options->chunk;
}

static bool allocate(struct batch *b)
{
    const size_t rows = (size_t)b->max_rows;
    const size_t tokens = (size_t)b->max_tokens;
    const size_t logits = rows * (1 + (size_t)b->max_drafts);
    b->rows = calloc(rows, sizeof *b->rows);
    b->seqs = calloc(rows, sizeof *b->seqs);
    b->q_lens = calloc(rows, sizeof *b->q_lens);
    b->num_keep = calloc(rows, sizeof *b->num_keep);
    b->tokens = calloc(tokens, sizeof *b->tokens);
    b->logits_rows = calloc(logits, sizeof *b->logits_rows);
    b->logits = calloc(logits * (size_t)b->lm->model.vocab_size, sizeof *b->logits);
    return b->rows && b->seqs && b->q_lens && b->num_keep && b->tokens && b->logits_rows &&
           b->logits && sampler_create(b->lm->model.vocab_size, &b->sampler);
}

bool batch_create(const struct language_model *lm, const struct engine_options *options,
                  pkv_cache *cache, struct batch *batch)
{
    *batch = (struct batch){.lm = lm,
                            .cache = cache,
                            .max_rows = options->max_batch,
                            .max_tokens = batch_max_tokens(options),
                            .max_drafts = options->num_drafts,
                            .chunk = options->chunk};
    if (!allocate(batch)) {
        return complain("out of memory for a batch of %d tokens", batch->max_tokens);
    }
    return activations_create(&lm->model, batch->max_tokens, options->threads, &batch->activations);
}

void batch_free(struct batch *batch)
{
    activations_free(&batch->activations);
    sampler_free(&batch->sampler);
    free(batch->rows);
    free(batch->seqs);
    free(batch->q_lens);
    free(batch->num_keep);
    free(batch->tokens);
    free(batch->logits_rows);
    free(batch->logits);
    *batch = (struct batch){0};
}

void batch_clear(struct batch *batch)
{
    batch->num_rows = 0;
    batch->num_tokens = 0;
    batch->num_logits = 0;
    batch->spare = batch->chunk;
}

static void add_tokens(struct batch *batch, const int32_t *tokens, int32_t count)
{
    memcpy(batch->tokens + batch->num_tokens, tokens, (size_t)count * sizeof *tokens);
    batch->num_tokens += count;
}

/* Drafts for a run that decodes: never past what it may still generate, less the token that every
 * row gives. */
static int32_t add_drafts(struct batch *batch, const struct run *run)
{
    const struct job_request *request = run->entry->request;
    const int32_t left = request->num_prompt + request->max_tokens - run->num_tokens - 1;
    const int32_t most = left < batch->max_drafts ? left : batch->max_drafts;
    if (most <= 0 || run->num_tokens == request->num_prompt) {
        return 0;
    }
    const int32_t count =
        lookup_drafts(run->tokens, run->num_tokens, most, batch->tokens + batch->num_tokens);
    batch->num_tokens += count;
    return count;
}

void batch_add(struct batch *batch, struct run *run)
{
    struct batch_row *row = &batch->rows[batch->num_rows];
    const int32_t lacking = run->num_tokens - run->num_written;
    const int32_t more = lacking - 1 < batch->spare ? lacking - 1 : batch->spare;
    *row = (struct batch_row){.run = run,
                              .first_token = batch->num_tokens,
                              .first_logits = batch->num_logits,
                              .num_known = more + 1,
                              .chooses = more + 1 == lacking};
    batch->spare -= more;
    add_tokens(batch, run->tokens + run->num_written, row->num_known);
    if (lacking == 1) {
        row->num_drafts = add_drafts(batch, run);
    }
    for (int32_t i = 0; row->chooses && i <= row->num_drafts; i++) {
        batch->logits_rows[batch->num_logits] = row->first_token + row->num_known - 1 + i;
        batch->num_logits++;
    }
    batch->seqs[batch->num_rows] = run->seq;
    batch->q_lens[batch->num_rows] = row->num_known + row->num_drafts;
    batch->num_rows++;
}

enum pkv_status batch_begin(struct batch *batch, struct pkv_shortage *shortage)
{
    const struct pkv_batch rows = {
        .size = sizeof rows,
        .seqs = batch->seqs,
        .q_lens = batch->q_lens,
        .num_rows = batch->num_rows,
        .num_required_rows = batch->num_rows,
        .token_ids = batch->tokens,
    };
    const enum pkv_status status = pkv_step_begin(batch->cache, &rows, &batch->step, shortage);
    if (status != PKV_OK && status != PKV_NO_BLOCKS) {
        complain("step: %s", pkv_last_error());
    }
    return status;
}

static const float *row_logits(const struct batch *batch, const struct batch_row *row,
                               int32_t draft)
{
    return batch->logits +
           (size_t)(row->first_logits + draft) * (size_t)batch->lm->model.vocab_size;
}

bool batch_take(struct batch *batch, struct run *run, const float *logits)
{
    const int32_t before = run->num_tokens;
    if (!run_take(run, batch->lm, &batch->sampler, logits)) {
        run->entry->failure = "no token could be chosen";
        return false;
    }
    batch->num_generated += run->num_tokens - before;
    return true;
}

/* Takes tokens as long as drafts agree, and returns how many did. A run whose logits are no numbers
 * ends its own job alone. */
static int32_t choose(struct batch *batch, const struct batch_row *row)
{
    struct run *run = row->run;
    const int32_t *drafts = batch->tokens + row->first_token + row->num_known;
    for (int32_t kept = 0;; kept++) {
        const int32_t before = run->num_tokens;
        if (!batch_take(batch, run, row_logits(batch, row, kept)) || run->state == RUN_DONE ||
            kept == row->num_drafts || run->tokens[before] != drafts[kept]) {
            return kept;
        }
    }
}

static void choose_all(struct batch *batch)
{
    for (int32_t i = 0; i < batch->num_rows; i++) {
        const struct batch_row *row = &batch->rows[i];
        const int32_t kept = row->chooses ? choose(batch, row) : 0;
        batch->num_drafted += row->num_drafts;
        batch->num_accepted += kept;
        batch->num_keep[i] = row->num_known + kept;
        row->run->num_written += row->num_known + kept;
    }
}

/* The other choices of prompts that are complete. */
static void fork_all(struct batch *batch, batch_fork *fork, void *context)
{
    for (int32_t i = 0; i < batch->num_rows; i++) {
        const struct batch_row *row = &batch->rows[i];
        struct entry *entry = row->run->entry;
        if (row->chooses && row->run->choice == 0 && !entry->prompt_done) {
            entry->prompt_done = true;
            fork(context, row->run, row_logits(batch, row, 0));
        }
    }
}

bool batch_run(struct batch *batch, batch_fork *fork, void *context)
{
    const struct model *model = &batch->lm->model;
    struct cached_step open = {batch->cache, batch->step};
    if (!forward(model, &batch->activations, batch->tokens, batch->num_tokens, cached_attend,
                 &open)) {
        pkv_step_abort(batch->cache, batch->step);
        return false;
    }
    logits_of_rows(model, &batch->activations, batch->logits_rows, batch->num_logits,
                   batch->logits);
    choose_all(batch);
    if (pkv_step_commit(batch->cache, batch->step, batch->num_keep) != PKV_OK) {
        complain("commit: %s", pkv_last_error());
        pkv_step_abort(batch->cache, batch->step);
        return false;
    }
    fork_all(batch, fork, context);
    return true;
}
