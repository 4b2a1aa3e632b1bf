/* SPDX-License-Identifier: MIT
 *
 * naive.h: the yardstick: a text is computed from its first token on, one token at a time, without
 * a cache that anything else reads, and without the library. Attention is that of dense.h, the
 * recurrence is in double, by its formula with whole matrices: S (g (I - beta k k^T)) + beta v k^T,
 * and the convolution reads the inputs of all tokens. */
#ifndef HYBRID_NAIVE_H
#define HYBRID_NAIVE_H

#include "dense.h"
#include "forward.h"
#include "hybrid.h"
#include "sampler.h"

struct naive {
    const struct hybrid *hybrid;
    struct dense_cache attention;
    struct activations activations;
    float *inputs;    /* [HYBRID_STATES][capacity][num_channels] */
    double *matrices; /* [HYBRID_STATES][kv_heads][head_dim][head_dim] */
};

/* For texts of up to `capacity` tokens. */
bool naive_create(const struct hybrid *hybrid, int32_t capacity, struct naive *naive);
void naive_free(struct naive *naive);

/* Fills tokens [num_prompt, num_tokens), and leads [num_tokens - num_prompt] of each of them. Stops
 * at a lead below min_lead, which leaves that of the token last chosen in *smallest. */
bool naive_continue(struct naive *naive, const struct sampler *sampler, float min_lead,
                    int32_t *tokens, int32_t num_prompt, int32_t num_tokens, float *leads,
                    float *smallest);

#endif
