/* SPDX-License-Identifier: MIT
 *
 * server.h: continuous batching on a pkv_cache, the loop that the library is made for. */
#ifndef SUPPORT_SERVER_H
#define SUPPORT_SERVER_H

#include "request.h"

#include "pagedkv/metrics.h"

struct serve_stats {
    int32_t num_steps;
    int32_t num_rows; /* of the last step */
    int32_t peak_rows;
    int32_t num_blocks;  /* of all groups; paged: blocks, continuous: slots */
    int32_t peak_blocks; /* the largest number held at once */
    int32_t num_preemptions;
    int64_t num_computed; /* tokens that went through the model */
    double seconds;
    struct pkv_stats cache; /* at the end */
};

/* Called after each step; with *stop the server ends all requests and returns. Pins that it
 * makes end with the run. */
typedef bool after_step_fn(void *context, pkv_cache *cache, const struct serve_stats *stats,
                           bool *stop);

struct serve_options {
    enum pkv_storage storage;
    enum pkv_dtype dtype; /* of the cache */
    int32_t block_size;
    int32_t num_blocks; /* of each group; 0 = enough that nothing is ever short */
    size_t bytes;       /* instead, for the cache to divide between groups; 0 = not said */
    int32_t max_batch;
    int32_t chunk;
    int32_t threads; /* 0 = as many as this process may run */
    bool prefix_cache;
    int32_t max_pinned_blocks;
    bool progress;             /* a line on stderr now and then */
    after_step_fn *after_step; /* may be NULL */
    void *context;
};

/* Runs all requests to their end; request r arrives at iteration r. */
bool serve(const struct model *model, const struct serve_options *options,
           struct request_list *requests, struct serve_stats *stats);

#endif
