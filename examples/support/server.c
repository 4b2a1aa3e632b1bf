/* SPDX-License-Identifier: MIT
 *
 * server.c: every iteration admits what has arrived and fits, puts one token or more of each
 * running request into a step, runs the layers, commits, and samples where a request has all its
 * tokens in the cache. A step has room for a token of each row and one chunk of prefill between
 * them.
 *
 *   waiting --admit--> running --ended--> done        requests wait and run in order of arrival
 *      ^------preempt-----'
 *
 * Blocks grow with the requests, so a step may find none: then the youngest running request gives
 * all of its back. It keeps its tokens and is prefilled with them later. The oldest is never
 * preempted, and fits alone (checked before the first step), so the loop ends.
 *
 * With the prefix cache, prefill begins behind what admission adopted: of a prompt, what earlier
 * ones began with too; of a preempted request, what is left of its own blocks. */
#include "server.h"

#include "cached.h"
#include "forward.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROGRESS_STEPS = 64 };

enum state { WAITING, RUNNING, DONE };

struct entry {
    enum state state;
    pkv_seq seq;         /* zeroed until the first admission */
    int32_t num_written; /* tokens in the cache */
};

/* One step's rows in packed order. */
struct step_rows {
    int32_t num_rows;
    int32_t num_tokens;
    int32_t *request; /* [max_batch] */
    int32_t *q_lens;  /* [max_batch] */
    pkv_seq *seqs;    /* [max_batch] */
    int32_t *tokens;  /* [max_step_tokens] */
    pkv_step handle;
};

struct server {
    const struct model *model;
    const struct serve_options *options;
    struct request_list *requests;
    struct entry *entries;   /* [requests->count] */
    int32_t max_step_tokens; /* max_batch - 1 + chunk */
    pkv_cache *cache;
    struct activations activations;
    struct step_rows rows;
    struct serve_stats *stats;
};

/* 0 = a share of the bytes. */
static int32_t blocks_of_group(const struct serve_options *o, int32_t full)
{
    if (o->bytes > 0) {
        return 0;
    }
    return o->num_blocks > 0 ? o->num_blocks : full;
}

static bool create_cache(struct server *s)
{
    const struct serve_options *o = s->options;
    const int32_t longest = request_longest(s->requests);
    const int64_t full = (int64_t)o->max_batch * ((longest - 1) / o->block_size + 1);
    if (full > INT32_MAX) {
        return complain("%d requests of %d tokens need more blocks than there are ids",
                        o->max_batch, longest);
    }
    const struct pkv_group_config group = {
        .storage = o->storage,
        .k_dtype = o->dtype,
        .v_dtype = o->dtype,
        .block_size = o->block_size,
        .num_blocks = blocks_of_group(o, (int32_t)full),
    };
    const struct pkv_cache_config config = {
        .max_seqs = o->max_batch,
        .max_seq_len = longest,
        .bytes = o->bytes,
        .max_step_tokens = s->max_step_tokens,
        .num_threads = o->threads,
        .prefix_cache = o->prefix_cache,
        .max_pinned_blocks = o->max_pinned_blocks,
    };
    return cached_create(s->model, &group, &config, &s->cache);
}

static bool allocate(struct server *s)
{
    const size_t rows = (size_t)s->options->max_batch;
    const size_t tokens = (size_t)s->max_step_tokens;
    s->entries = calloc((size_t)s->requests->count, sizeof *s->entries);
    s->rows.request = calloc(rows, sizeof *s->rows.request);
    s->rows.q_lens = calloc(rows, sizeof *s->rows.q_lens);
    s->rows.seqs = calloc(rows, sizeof *s->rows.seqs);
    s->rows.tokens = calloc(tokens, sizeof *s->rows.tokens);
    if (!s->entries || !s->rows.request || !s->rows.q_lens || !s->rows.seqs || !s->rows.tokens) {
        return complain("out of memory for a batch of %zu tokens", tokens);
    }
    return activations_create(s->model, s->max_step_tokens, s->options->threads, &s->activations);
}

static void release(struct server *s)
{
    if (pkv_cache_destroy(s->cache, true) != PKV_OK) {
        complain("the cache would not go: %s", pkv_last_error());
    }
    activations_free(&s->activations);
    free(s->entries);
    free(s->rows.request);
    free(s->rows.q_lens);
    free(s->rows.seqs);
    free(s->rows.tokens);
}

static struct pkv_prompt prompt_of(const int32_t *tokens, int32_t num_tokens)
{
    return (struct pkv_prompt){
        .size = sizeof(struct pkv_prompt), .token_ids = tokens, .num_tokens = num_tokens};
}

/* Refuses, before any work, a request that could not finish even if it were alone. The last token
 * of a request is never written. */
static bool check_each_fits(struct server *s)
{
    for (int32_t r = 0; r < s->requests->count; r++) {
        const struct request *request = &s->requests->items[r];
        if (request->ended) {
            continue;
        }
        const struct pkv_prompt prompt = prompt_of(request->tokens, request->num_prompt);
        struct pkv_probe probe = {.size = sizeof probe};
        struct pkv_shortage shortage = {.size = sizeof shortage};
        if (pkv_cache_probe(s->cache, NULL, &prompt, request->max_tokens - 1 - request->num_prompt,
                            0, &probe, &shortage) != PKV_OK) {
            return complain("request %d: %s", r, pkv_last_error());
        }
        if (probe.status != PKV_OK) {
            return complain("request %d: %d tokens need %lld blocks, the pool has %d", r,
                            request->max_tokens - 1, (long long)shortage.need,
                            s->stats->num_blocks);
        }
    }
    return true;
}

/* Room for what the request has and one token more, or *waits: not now. */
static bool admit_one(struct server *s, int32_t r, bool *waits)
{
    struct entry *entry = &s->entries[r];
    const struct request *request = &s->requests->items[r];
    enum pkv_status status = PKV_OK;
    if (entry->seq.id == 0) {
        status = pkv_seq_create(s->cache, NULL, &entry->seq);
    }
    if (status == PKV_OK) {
        const int32_t max_cached = s->options->prefix_cache ? request->num_tokens : 0;
        const int32_t reserve = request->num_tokens + 1 < request->max_tokens ? 1 : 0;
        const struct pkv_prompt prompt = prompt_of(request->tokens, request->num_tokens);
        struct pkv_admission admission = {.size = sizeof admission};
        status =
            pkv_seq_admit(s->cache, entry->seq, &prompt, reserve, max_cached, &admission, NULL);
        entry->num_written = admission.num_cached;
    }
    *waits = status == PKV_NO_BLOCKS;
    if (status == PKV_OK) {
        entry->state = RUNNING;
    }
    return status == PKV_OK || *waits || complain("request %d: %s", r, pkv_last_error());
}

/* In order of arrival; the first that has to wait keeps the later ones waiting too. */
static bool admit_arrived(struct server *s, int32_t iteration)
{
    bool waits = false;
    for (int32_t r = 0; r < s->requests->count && r <= iteration && !waits; r++) {
        if (s->requests->items[r].ended) {
            s->entries[r].state = DONE;
        }
        if (s->entries[r].state == WAITING && !admit_one(s, r, &waits)) {
            return false;
        }
    }
    return true;
}

/* Adds the request's next tokens: the one just sampled, or more of what the cache lacks, up to a
 * chunk and to what is left of *spare, the step's tokens beyond one a row. */
static void add_row(struct server *s, int32_t r, int32_t *spare)
{
    struct step_rows *rows = &s->rows;
    const struct request *request = &s->requests->items[r];
    const int32_t from = s->entries[r].num_written;
    int32_t more = request->num_tokens - from - 1;
    if (more > s->options->chunk - 1) {
        more = s->options->chunk - 1;
    }
    if (more > *spare) {
        more = *spare;
    }
    *spare -= more;
    for (int32_t i = 0; i <= more; i++) {
        rows->tokens[rows->num_tokens] = request->tokens[from + i];
        rows->num_tokens++;
    }
    rows->request[rows->num_rows] = r;
    rows->q_lens[rows->num_rows] = more + 1;
    rows->seqs[rows->num_rows] = s->entries[r].seq;
    rows->num_rows++;
}

static void collect_rows(struct server *s)
{
    int32_t spare = s->max_step_tokens;
    s->rows.num_rows = 0;
    s->rows.num_tokens = 0;
    for (int32_t r = 0; r < s->requests->count; r++) {
        spare -= s->entries[r].state == RUNNING ? 1 : 0;
    }
    for (int32_t r = 0; r < s->requests->count; r++) {
        if (s->entries[r].state == RUNNING) {
            add_row(s, r, &spare);
        }
    }
}

/* The last row is the youngest request. */
static bool preempt_youngest(struct server *s)
{
    struct entry *entry = &s->entries[s->rows.request[s->rows.num_rows - 1]];
    if (pkv_seq_truncate(s->cache, entry->seq, 0) != PKV_OK) {
        return complain("preemption: %s", pkv_last_error());
    }
    entry->state = WAITING;
    entry->num_written = 0;
    s->stats->num_preemptions++;
    return true;
}

/* Opens a step of all running requests, fewer when blocks are short; no row, no step. */
static bool begin_step(struct server *s)
{
    for (;;) {
        collect_rows(s);
        if (s->rows.num_rows == 0) {
            return true;
        }
        const struct pkv_batch batch = {
            .size = sizeof batch,
            .seqs = s->rows.seqs,
            .q_lens = s->rows.q_lens,
            .num_rows = s->rows.num_rows,
            .num_required_rows = s->rows.num_rows,
            .token_ids = s->rows.tokens,
        };
        struct pkv_shortage shortage = {.size = sizeof shortage};
        const enum pkv_status status = pkv_step_begin(s->cache, &batch, &s->rows.handle, &shortage);
        if (status == PKV_OK) {
            return true;
        }
        if (status != PKV_NO_BLOCKS) {
            return complain("step: %s", pkv_last_error());
        }
        if (s->rows.num_rows == 1) {
            return complain("step: one request needs %lld blocks, %lld are free",
                            (long long)shortage.need, (long long)shortage.free);
        }
        if (!preempt_youngest(s)) {
            return false;
        }
    }
}

/* Row i's last token is at packed index `last`. Only a row whose tokens are all in the cache has a
 * next one to choose. */
static bool advance_row(struct server *s, int32_t i, int32_t last)
{
    const int32_t r = s->rows.request[i];
    struct request *request = &s->requests->items[r];
    struct entry *entry = &s->entries[r];
    entry->num_written += s->rows.q_lens[i];
    if (entry->num_written < request->num_tokens) {
        return true;
    }
    int32_t token = 0;
    if (!next_token(s->model, &s->activations, last, &token, NULL)) {
        return false;
    }
    request_take(s->model, request, token);
    if (!request->ended) {
        return true;
    }
    entry->state = DONE;
    return pkv_seq_destroy(s->cache, entry->seq) == PKV_OK || complain("%s", pkv_last_error());
}

static bool run_step(struct server *s)
{
    struct cached_step open = {s->cache, s->rows.handle};
    if (!forward(s->model, &s->activations, s->rows.tokens, s->rows.num_tokens, cached_attend,
                 &open)) {
        return false;
    }
    if (pkv_step_commit(s->cache, s->rows.handle, NULL) != PKV_OK) {
        return complain("commit: %s", pkv_last_error());
    }
    int32_t end = 0;
    for (int32_t i = 0; i < s->rows.num_rows; i++) {
        end += s->rows.q_lens[i];
        if (!advance_row(s, i, end - 1)) {
            return false;
        }
    }
    return true;
}

/* Counts the open step. */
static bool count_step(struct server *s, double start)
{
    struct serve_stats *stats = s->stats;
    int32_t held = 0;
    if (!cached_usage(s->cache, &stats->num_blocks, &held)) {
        return false;
    }
    stats->num_steps++;
    stats->num_rows = s->rows.num_rows;
    stats->num_computed += s->rows.num_tokens;
    if (s->rows.num_rows > stats->peak_rows) {
        stats->peak_rows = s->rows.num_rows;
    }
    if (held > stats->peak_blocks) {
        stats->peak_blocks = held;
    }
    if (s->options->progress && stats->num_steps % PROGRESS_STEPS == 0) {
        fprintf(stderr, "step %d: %d rows, %d of %d %s free, %.0f tokens/s\n", stats->num_steps,
                s->rows.num_rows, stats->num_blocks - held, stats->num_blocks,
                s->options->storage == PKV_STORAGE_PAGED ? "blocks" : "slots",
                (double)stats->num_computed / (now_seconds() - start + 1e-9));
    }
    return true;
}

static bool all_done(const struct server *s)
{
    for (int32_t r = 0; r < s->requests->count; r++) {
        if (s->entries[r].state != DONE) {
            return false;
        }
    }
    return true;
}

/* Lets go of what still runs or waits. */
static bool drop_requests(struct server *s)
{
    for (int32_t r = 0; r < s->requests->count; r++) {
        struct entry *entry = &s->entries[r];
        if (entry->state != DONE && entry->seq.id != 0 &&
            pkv_seq_destroy(s->cache, entry->seq) != PKV_OK) {
            return complain("request %d: %s", r, pkv_last_error());
        }
        entry->state = DONE;
    }
    return true;
}

static bool show_step(struct server *s)
{
    const struct serve_options *o = s->options;
    bool stop = false;
    if (o->after_step != NULL && !o->after_step(o->context, s->cache, s->stats, &stop)) {
        return false;
    }
    return !stop || drop_requests(s);
}

static bool run_requests(struct server *s)
{
    const double start = now_seconds();
    for (int32_t iteration = 0; !all_done(s); iteration++) {
        if (!admit_arrived(s, iteration) || !begin_step(s)) {
            return false;
        }
        if (s->rows.num_rows == 0 && iteration >= s->requests->count) {
            return complain("nothing runs, and no request can be admitted");
        }
        if (s->rows.num_rows == 0) {
            continue;
        }
        if (!count_step(s, start) || !run_step(s) || !show_step(s)) {
            return false;
        }
    }
    s->stats->seconds = now_seconds() - start;
    s->stats->cache.size = sizeof s->stats->cache;
    if (pkv_cache_stats(s->cache, &s->stats->cache) != PKV_OK) {
        return complain("stats: %s", pkv_last_error());
    }
    return !s->options->prefix_cache || pkv_prefix_expire(s->cache, UINT64_MAX, NULL) == PKV_OK ||
           complain("pins: %s", pkv_last_error());
}

static bool read_pool_size(struct server *s)
{
    int32_t held = 0;
    return cached_usage(s->cache, &s->stats->num_blocks, &held);
}

bool serve(const struct model *model, const struct serve_options *options,
           struct request_list *requests, struct serve_stats *stats)
{
    const int32_t longest = request_longest(requests);
    struct server s = {.model = model,
                       .options = options,
                       .requests = requests,
                       .max_step_tokens = options->max_batch - 1 +
                                          (options->chunk < longest ? options->chunk : longest),
                       .stats = stats};
    memset(stats, 0, sizeof *stats);
    const bool ok = allocate(&s) && create_cache(&s) && read_pool_size(&s) && check_each_fits(&s) &&
                    run_requests(&s) && cached_check_empty(s.cache);
    release(&s);
    return ok;
}
