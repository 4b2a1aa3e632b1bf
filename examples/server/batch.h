/* SPDX-License-Identifier: MIT
 *
 * batch.h: one step of the engine: the rows that join it, the model's pass over their tokens, and
 * the tokens that are chosen from its logits.
 *
 *     batch_clear; batch_add for each run; batch_begin; batch_run
 *
 * A row brings the tokens of its run that the cache lacks, up to a chunk, or its newest token and
 * behind it drafts. Drafts that the model would have chosen itself are kept; the first that differs
 * and those after it are dropped, so the tokens of a run do not depend on drafts. */
#ifndef SERVER_BATCH_H
#define SERVER_BATCH_H

#include "engine.h"
#include "forward.h"
#include "run.h"

#include "pagedkv/step.h"

struct batch_row {
    struct run *run;
    int32_t first_token; /* packed */
    int32_t first_logits;
    int32_t num_known;  /* tokens of the run */
    int32_t num_drafts; /* behind them */
    bool chooses;       /* all of the run's tokens are in the cache after this step */
};

struct batch {
    const struct language_model *lm;
    pkv_cache *cache;
    struct activations activations;
    int32_t max_rows, max_tokens, max_drafts, chunk;
    int32_t num_rows, num_tokens, num_logits;
    int32_t spare; /* tokens beyond one a row that may still join */
    struct batch_row *rows;
    pkv_seq *seqs;
    int32_t *q_lens, *num_keep;
    int32_t *tokens;
    int32_t *logits_rows; /* packed tokens whose logits are wanted */
    float *logits;
    struct sampler sampler;
    pkv_step step;
    int64_t num_generated, num_drafted, num_accepted; /* since create */
};

/* The most tokens of a step under these options. */
int32_t batch_max_tokens(const struct engine_options *options);

bool batch_create(const struct language_model *lm, const struct engine_options *options,
                  pkv_cache *cache, struct batch *batch);
void batch_free(struct batch *batch);

void batch_clear(struct batch *batch);

/* Adds a running run. */
void batch_add(struct batch *batch, struct run *run);

/* Opens the step: PKV_OK, PKV_NO_BLOCKS with *shortage, or another status with a line on
 * stderr. */
enum pkv_status batch_begin(struct batch *batch, struct pkv_shortage *shortage);

/* The run takes its next token from logits. False when there is none to take: its job has
 * failed. */
bool batch_take(struct batch *batch, struct run *run, const float *logits);

/* Told of each first choice whose prompt has just been computed, after the commit, with the logits
 * behind it: for the forks that are the other choices. */
typedef void batch_fork(void *context, struct run *run, const float *logits);

/* Runs the step and ends it: its runs have their next tokens, or are done, and their clients know.
 * False when the model or the cache failed: the step is gone, and its runs cannot go on. */
bool batch_run(struct batch *batch, batch_fork *fork, void *context);

#endif
