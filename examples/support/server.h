/* SPDX-License-Identifier: MIT
 *
 * server.h: continuous batching on a pkv_cache, the loop that the library is made for. */
#ifndef STORY_SERVER_H
#define STORY_SERVER_H

#include "options.h"
#include "request.h"

struct serve_stats {
    int32_t num_steps;
    int32_t peak_rows;
    int32_t num_blocks;  /* paged: of the pool; continuous: cache rows */
    int32_t peak_blocks; /* most that were held at once */
    int32_t num_preemptions;
    int64_t num_computed; /* tokens that went through the model */
    double seconds;
};

/* Runs all requests to their end; request r arrives at iteration r. Of the options it reads form,
 * geometry and bounds. With progress, a line on stderr now and then. */
bool serve(const struct model *model, const struct options *options, bool progress,
           struct request_list *requests, struct serve_stats *stats);

#endif
