/* SPDX-License-Identifier: MIT
 *
 * replica.h: one of several equal servers: a cache, a queue and a loop. A step decodes a token of
 * each running request and fills up with tokens of prompts. The model is that of server_loop.c:
 * queries are 0 and a token's value is its id, so attention gives the mean of all ids, and wrong
 * keys or values would give wrong answers. */
#ifndef ROUTER_REPLICA_H
#define ROUTER_REPLICA_H

#include "workload.h"

#include <pagedkv.h>

enum { MAX_ROWS = 8, MAX_STEP_TOKENS = 96, NUM_LAYERS = 2 };

/* What became of a request; steps count from the start, the same for all replicas. */
struct outcome {
    int32_t arrived, first_token, ended; /* steps; -1 = not yet */
    int32_t num_cached;                  /* tokens of its prompt that were hits */
    int32_t num_wrong;                   /* tokens of its answer */
};

struct job {
    const struct request *request;
    struct outcome *outcome;
    int32_t num_expected; /* hits that the sender reckoned with */
    pkv_seq seq;
    int32_t num_tokens; /* known: the prompt, then what the model added */
    int32_t num_cached; /* with keys and values in the cache */
    int32_t num_new;    /* of the open step */
};

struct replica {
    pkv_cache *cache;
    struct job *jobs; /* those that run, in order of admission, then those that wait */
    int32_t num_running, num_jobs;
};

/* Groups and layers for num_blocks blocks a group: of one layer that sees all keys, and one with a
 * window. groups and layers stay as long as the configuration. */
struct pkv_cache_config replica_config(int32_t num_blocks, int32_t num_events,
                                       struct pkv_group_config groups[NUM_LAYERS],
                                       struct pkv_layer_config layers[NUM_LAYERS]);

/* False when there is no memory for max_jobs requests at once. */
bool replica_create(const struct pkv_cache_config *config, int32_t max_jobs,
                    struct replica *replica);

/* True when the cache is sound and nothing holds a block. */
bool replica_end(struct replica *replica);

void replica_take(struct replica *replica, const struct request *request, int32_t num_expected,
                  struct outcome *outcome);

/* Tokens that it has still to compute; of requests that wait, without the hits expected. */
int32_t replica_load(const struct replica *replica);

/* Runs one step, the `now`-th. */
void replica_step(struct replica *replica, int32_t now);

#endif
