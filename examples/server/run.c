/* SPDX-License-Identifier: MIT */
#include "run.h"

#include <stdlib.h>
#include <string.h>

static void free_entry(struct entry *entry)
{
    for (int32_t c = 0; entry->runs != NULL && c < entry->request->num_choices; c++) {
        free(entry->runs[c].tokens);
        stream_text_free(&entry->runs[c].text);
    }
    free(entry->runs);
    free(entry);
}

static bool create_run(struct entry *entry, int32_t choice)
{
    const struct job_request *request = entry->request;
    struct run *run = &entry->runs[choice];
    run->entry = entry;
    run->choice = choice;
    run->text.stops = (const char *const *)request->stops;
    run->text.num_stops = request->num_stops;
    run->tokens =
        calloc((size_t)request->num_prompt + (size_t)request->max_tokens, sizeof *run->tokens);
    if (run->tokens == NULL) {
        return false;
    }
    memcpy(run->tokens, request->prompt, (size_t)request->num_prompt * sizeof *run->tokens);
    run->num_tokens = request->num_prompt;
    return true;
}

struct entry *entry_create(struct job *job, uint64_t id)
{
    struct entry *entry = calloc(1, sizeof *entry);
    if (entry == NULL) {
        return NULL;
    }
    entry->job = job;
    entry->request = job_request(job);
    entry->id = id;
    entry->usage.num_prompt = entry->request->num_prompt;
    entry->runs = calloc((size_t)entry->request->num_choices, sizeof *entry->runs);
    bool ok = entry->runs != NULL;
    for (int32_t c = 0; ok && c < entry->request->num_choices; c++) {
        ok = create_run(entry, c);
    }
    if (!ok) {
        free_entry(entry);
        return NULL;
    }
    job_hold(job);
    return entry;
}

void entry_finish(struct entry *entry, const char *message)
{
    struct job *job = entry->job;
    const struct job_usage usage = entry->usage;
    free_entry(entry); /* it reads the request, which the job owns */
    job_end(job, &usage, message);
    job_release(job);
}

static bool end_run(struct run *run, enum finish finish)
{
    struct job_piece piece = {.choice = run->choice, .token = -1, .finish = finish};
    run->state = RUN_DONE;
    run->entry->num_done++;
    if (!stream_text_end(&run->text, &piece.text, &piece.num_bytes)) {
        return false;
    }
    job_push(run->entry->job, &piece);
    return true;
}

/* Keeps the token and tells the client. */
static bool push_token(struct run *run, const struct language_model *lm, struct job_piece *piece)
{
    size_t num_bytes = 0;
    const char *bytes = lm->codec.bytes(lm->codec.self, piece->token, &num_bytes);
    run->tokens[run->num_tokens] = piece->token;
    run->num_tokens++;
    run->entry->usage.num_generated++;
    if (!stream_text_add(&run->text, bytes, num_bytes, &piece->text, &piece->num_bytes)) {
        return false;
    }
    job_push(run->entry->job, piece);
    return true;
}

bool run_take(struct run *run, const struct language_model *lm, struct sampler *sampler,
              const float *logits)
{
    const struct job_request *request = run->entry->request;
    const int32_t index = run->num_tokens - request->num_prompt;
    struct job_piece piece = {.choice = run->choice};
    if (!sampler_choose(sampler, &request->sampling, run->choice, index, logits, &piece.token)) {
        return false;
    }
    if (lm->codec.is_end(lm->codec.self, piece.token)) {
        return end_run(run, FINISH_STOP);
    }
    if (request->top_logprobs >= 0) {
        piece.num_top = request->top_logprobs;
        sampler_logprobs(sampler, logits, &piece);
    }
    if (!push_token(run, lm, &piece)) {
        return false;
    }
    if (run->text.stopped) {
        return end_run(run, FINISH_STOP);
    }
    return index + 1 < request->max_tokens || end_run(run, FINISH_LENGTH);
}
