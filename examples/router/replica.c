/* SPDX-License-Identifier: MIT
 *
 * replica.c: admission in order of arrival, one step at a time. */
#include "replica.h"

#include "index.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_SIZE = 16, WINDOW = 100 };

struct pkv_cache_config replica_config(int32_t num_blocks, int32_t num_events,
                                       struct pkv_group_config groups[NUM_LAYERS],
                                       struct pkv_layer_config layers[NUM_LAYERS])
{
    for (int32_t g = 0; g < NUM_LAYERS; g++) {
        groups[g] = (struct pkv_group_config){.kv_heads = 1,
                                              .k_width = 1,
                                              .block_size = BLOCK_SIZE,
                                              .sliding_window = g == 0 ? 0 : WINDOW,
                                              .num_blocks = num_blocks};
        layers[g] = (struct pkv_layer_config){.group = g, .num_heads = 1};
    }
    return (struct pkv_cache_config){.size = sizeof(struct pkv_cache_config),
                                     .groups = groups,
                                     .num_groups = NUM_LAYERS,
                                     .layers = layers,
                                     .num_layers = NUM_LAYERS,
                                     .max_seqs = MAX_ROWS,
                                     .max_seq_len = MAX_TOKENS,
                                     .max_step_tokens = MAX_STEP_TOKENS,
                                     .num_threads = 1,
                                     .prefix_cache = true,
                                     .num_events = num_events,
                                     .no_partial_hits = true};
}

bool replica_create(const struct pkv_cache_config *config, int32_t max_jobs,
                    struct replica *replica)
{
    *replica = (struct replica){.jobs = calloc((size_t)max_jobs, sizeof *replica->jobs)};
    if (replica->jobs == NULL) {
        return false;
    }
    must(pkv_cache_create(config, &replica->cache));
    return true;
}

bool replica_end(struct replica *replica)
{
    struct pkv_stats stats = {.size = sizeof stats};
    must(pkv_cache_stats(replica->cache, &stats));
    const bool is_sound = pkv_cache_check(replica->cache) == 0 && stats.held_blocks == 0;
    (void)pkv_cache_destroy(replica->cache, false);
    free(replica->jobs);
    *replica = (struct replica){0};
    return is_sound;
}

void replica_take(struct replica *replica, const struct request *request, int32_t num_expected,
                  struct outcome *outcome)
{
    replica->jobs[replica->num_jobs++] = (struct job){.request = request,
                                                      .outcome = outcome,
                                                      .num_expected = num_expected,
                                                      .num_tokens = request->num_prompt};
}

int32_t replica_load(const struct replica *replica)
{
    int32_t load = 0;
    for (int32_t i = 0; i < replica->num_jobs; i++) {
        const struct job *job = &replica->jobs[i];
        const int32_t num_cached = i < replica->num_running ? job->num_cached : job->num_expected;
        load += job->request->num_prompt + job->request->num_answer - num_cached;
    }
    return load;
}

/* Blocks are promised for the whole answer; false = not now. */
static bool admit(struct replica *replica, struct job *job)
{
    const struct request *request = job->request;
    const struct pkv_prompt prompt = {
        .size = sizeof prompt, .token_ids = request->tokens, .num_tokens = request->num_prompt};
    struct pkv_admission admission = {.size = sizeof admission};
    must(pkv_seq_create(replica->cache, NULL, &job->seq));
    const enum pkv_status status =
        pkv_seq_admit(replica->cache, job->seq, &prompt, request->num_answer, request->num_prompt,
                      &admission, NULL);
    if (status == PKV_NO_BLOCKS) {
        must(pkv_seq_destroy(replica->cache, job->seq));
        return false;
    }
    must(status);
    job->num_cached = admission.num_cached;
    job->outcome->num_cached = admission.num_cached;
    return true;
}

/* The batch: a row for each running request, decoding ones first, while tokens are left. */
struct batch {
    pkv_seq seqs[MAX_ROWS];
    struct job *jobs[MAX_ROWS];
    int32_t q_lens[MAX_ROWS], token_ids[MAX_STEP_TOKENS];
    float q[MAX_STEP_TOKENS], k[MAX_STEP_TOKENS]; /* stay 0 */
    float v[MAX_STEP_TOKENS], out[MAX_STEP_TOKENS], unread[MAX_STEP_TOKENS];
    int32_t num_rows, num_tokens;
};

static void add_row(struct batch *batch, struct job *job)
{
    const int32_t left = MAX_STEP_TOKENS - batch->num_tokens;
    const int32_t missing = job->num_tokens - job->num_cached;
    job->num_new = missing < left ? missing : left;
    if (job->num_new == 0) {
        return;
    }
    for (int32_t i = job->num_cached; i < job->num_cached + job->num_new; i++) {
        batch->v[batch->num_tokens] = (float)job->request->tokens[i];
        batch->token_ids[batch->num_tokens++] = job->request->tokens[i];
    }
    batch->seqs[batch->num_rows] = job->seq;
    batch->jobs[batch->num_rows] = job;
    batch->q_lens[batch->num_rows++] = job->num_new;
}

static void make_batch(struct replica *replica, struct batch *batch)
{
    for (int32_t pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < replica->num_running; i++) {
            struct job *job = &replica->jobs[i];
            if ((job->num_tokens - job->num_cached > 1) == (pass == 1)) {
                add_row(batch, job);
            }
        }
    }
}

static void attend(struct replica *replica, struct batch *batch)
{
    const struct pkv_batch rows = {.size = sizeof rows,
                                   .seqs = batch->seqs,
                                   .q_lens = batch->q_lens,
                                   .num_rows = batch->num_rows,
                                   .num_required_rows = batch->num_rows,
                                   .token_ids = batch->token_ids};
    struct pkv_layer_io io = {.size = sizeof io, .q = batch->q, .k = batch->k, .v = batch->v};
    pkv_step step;
    must(pkv_step_begin(replica->cache, &rows, &step, NULL));
    for (int32_t layer = 0; layer < NUM_LAYERS; layer++) {
        io.out = layer == 0 ? batch->out : batch->unread;
        must(pkv_step_attend(replica->cache, step, layer, &io));
    }
    must(pkv_step_commit(replica->cache, step, NULL));
}

/* The model's next token is compared with the answer, and the answer goes on in any case. */
static void take_token(struct job *job, float mean, int32_t now)
{
    const struct request *request = job->request;
    const int32_t token = (int32_t)lroundf(mean * (float)job->num_cached) % NUM_IDS;
    job->outcome->num_wrong += token != request->tokens[job->num_tokens];
    if (job->outcome->first_token < 0) {
        job->outcome->first_token = now;
    }
    if (++job->num_tokens == request->num_prompt + request->num_answer) {
        job->outcome->ended = now;
    }
}

static void take_tokens(struct batch *batch, int32_t now)
{
    int32_t end = 0;
    for (int32_t row = 0; row < batch->num_rows; row++) {
        struct job *job = batch->jobs[row];
        end += job->num_new;
        job->num_cached += job->num_new;
        if (job->num_cached == job->num_tokens) {
            take_token(job, batch->out[end - 1], now);
        }
    }
}

/* Those that have ended leave the list. */
static void drop_ended(struct replica *replica)
{
    int32_t kept = 0, num_running = 0;
    for (int32_t i = 0; i < replica->num_jobs; i++) {
        const bool ended = replica->jobs[i].outcome->ended >= 0;
        if (ended) {
            must(pkv_seq_destroy(replica->cache, replica->jobs[i].seq));
        } else {
            replica->jobs[kept++] = replica->jobs[i];
        }
        num_running += !ended && i < replica->num_running;
    }
    replica->num_running = num_running;
    replica->num_jobs = kept;
}

void replica_step(struct replica *replica, int32_t now)
{
    while (replica->num_running < MAX_ROWS && replica->num_running < replica->num_jobs &&
           admit(replica, &replica->jobs[replica->num_running])) {
        replica->num_running++;
    }
    if (replica->num_running > 0) {
        struct batch batch = {0};
        make_batch(replica, &batch);
        attend(replica, &batch);
        take_tokens(&batch, now);
        drop_ended(replica);
    }
}
