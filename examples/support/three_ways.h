/* SPDX-License-Identifier: MIT
 *
 * three_ways.h: the same requests decoded without the library (naive.h), on a paged cache and on a
 * continuous one, and their tokens compared one by one. */
#ifndef SUPPORT_THREE_WAYS_H
#define SUPPORT_THREE_WAYS_H

#include "server.h"

/* What a run has emitted: the tokens of all requests, prompts too, and how many each has. */
struct decoded {
    int32_t num_requests;
    size_t stride;
    int32_t *tokens; /* [num_requests][stride] */
    int32_t *counts; /* [num_requests] */
};

/* Copies the tokens of a list as it is now; complains when there is no memory. */
bool decoded_copy(const struct request_list *list, struct decoded *decoded);

/* Complains about the first token that differs: what `name` has is in the list. */
bool decoded_compare(const struct decoded *decoded, const char *name,
                     const struct request_list *list);

void decoded_free(struct decoded *decoded);

struct agreement {
    int64_t num_tokens; /* generated, by each of the three */
    float margin;       /* the smallest lead of a chosen token over the second, see naive.h */
};

/* Decodes the list three ways, with a line or two on stdout for each, and compares. Storage comes
 * from here, the rest of the options counts for both caches; only the paged run has the prefix
 * cache, where that option is on. At the end the list has the tokens that all three emitted. */
bool three_ways(const struct model *model, const struct serve_options *options,
                struct request_list *list, struct agreement *agreement);

#endif
