/* SPDX-License-Identifier: MIT
 *
 * naive.c: a token at a time through forward(), with the attention of dense.h. */
#include "naive.h"

#include "dense.h"
#include "forward.h"

#include <math.h>

static bool decode(struct dense_cache *cache, struct activations *a, struct request *request,
                   float *margin)
{
    const struct model *m = cache->model;
    for (cache->position = 0; !request->ended; cache->position++) {
        const int32_t *token = &request->tokens[cache->position];
        if (!forward(m, a, token, 1, dense_attend, cache)) {
            return false;
        }
        if (cache->position + 1 < request->num_tokens) {
            continue;
        }
        int32_t next = 0;
        float lead = 0;
        if (!next_token(m, a, 0, &next, &lead)) {
            return false;
        }
        if (lead < *margin) {
            *margin = lead;
        }
        request_take(m, request, next);
    }
    return true;
}

bool naive_decode(const struct model *model, struct request_list *requests, float *margin)
{
    struct dense_cache cache = {0};
    struct activations a = {0};
    bool ok = dense_create(model, request_longest(requests), &cache) &&
              activations_create(model, 1, 1, &a);
    *margin = INFINITY;
    for (int32_t r = 0; ok && r < requests->count; r++) {
        ok = decode(&cache, &a, &requests->items[r], margin);
    }
    activations_free(&a);
    dense_free(&cache);
    return ok;
}
