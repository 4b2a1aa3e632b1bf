/* SPDX-License-Identifier: MIT
 *
 * engine.h: continuous batching of jobs on a pkv_cache, in a thread of its own. Jobs wait in a
 * bounded queue by priority, then by arrival; a step has a token of each running choice, with its
 * drafts, and chunks of prefill between them. */
#ifndef SERVER_ENGINE_H
#define SERVER_ENGINE_H

#include "job.h"
#include "tiers.h"

#include "pagedkv/cache.h"
#include "pagedkv/metrics.h"

struct language_model;
struct engine;

struct engine_options {
    enum pkv_dtype dtype; /* of the cache */
    int32_t block_size;
    size_t cache_bytes; /* of keys and values; 0 = max_batch sequences of max_seq_len tokens */
    int32_t max_batch;  /* choices that run at once */
    int32_t max_seq_len;
    int32_t max_queue;     /* jobs that wait */
    int32_t chunk;         /* prompt tokens of a step */
    int32_t num_drafts;    /* tokens proposed from the request's own text; 0 = off */
    int32_t pause_ms;      /* slept after each step */
    int32_t threads;       /* 0 = as many as this process may run */
    int32_t tenant_blocks; /* quota of each tenant; 0 = none */
    bool prefix_cache;
    struct tier_options tiers; /* they need the prefix cache, and so does save_path */
    const char *save_path;     /* where what is cached goes at the end; NULL = nowhere */
};

/* Starts the engine's thread. The model outlives the engine. Complains when it fails. */
bool engine_start(const struct language_model *lm, const struct engine_options *options,
                  struct engine **engine);

/* Ends all jobs as failed, and the thread: no job is taken any more. Everything else below may
 * still be called. */
void engine_close(struct engine *engine);

/* Saves recent texts and stores what waits for tiers, for some seconds at most, and frees a closed
 * engine and its cache; complains when a block is still held. */
bool engine_free(struct engine *engine);

enum engine_answer { ENGINE_TAKEN, ENGINE_FULL, ENGINE_TOO_LONG, ENGINE_STOPPING };

/* Queues a job, of which the engine becomes a holder when it is taken. ENGINE_TOO_LONG: prompt and
 * max_tokens pass max_seq_len or the pool even if the job ran alone. Any thread. */
enum engine_answer engine_submit(struct engine *engine, struct job *job);

/* Wakes the engine: a job was cancelled. Any thread. */
void engine_notice(struct engine *engine);

/* One request as the live page shows it. */
struct engine_request {
    uint64_t id;
    char tenant[MAX_TENANT_BYTES + 1];
    int32_t num_prompt, num_cached, num_generated, num_choices;
    int32_t state; /* 0 waiting, 1 prefill, 2 decoding */
};

/* Counters since the start, and what happens now. Any thread. */
struct engine_state {
    int64_t num_steps, num_computed, num_generated, num_preemptions;
    int64_t num_drafted, num_accepted;
    int64_t num_prompt, num_cached; /* tokens of prompts, and those found */
    int64_t num_done, num_cancelled, num_failed;
    int32_t num_waiting, num_running; /* jobs, choices */
    double tokens_per_second;         /* generated, of the last second */
    double bytes_per_second;          /* keys and values read by attention, of the last second */
};
void engine_state(struct engine *engine, struct engine_state *state);

/* Up to max requests in flight, oldest first; how many there are is returned. Any thread. */
int32_t engine_requests(struct engine *engine, int32_t max, struct engine_request *requests);

/* Its tiers, which do not change. Any thread. */
const struct tiers *engine_tiers(const struct engine *engine);

/* The cache, for pkv_metrics_write and the visits of metrics.h, which any thread may call. */
pkv_cache *engine_cache(struct engine *engine);

#endif
