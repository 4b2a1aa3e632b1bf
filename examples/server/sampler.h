/* SPDX-License-Identifier: MIT
 *
 * sampler.h: the next token from a row of logits.
 *
 * What is drawn depends on the logits, the seed, the choice and the token's index alone: not on the
 * batch, and not on how many drafts were tried. So a request with a seed can be repeated. */
#ifndef SERVER_SAMPLER_H
#define SERVER_SAMPLER_H

#include "job.h"

/* Scratch for one thread. */
struct sampler {
    int32_t vocab_size;
    float *weights; /* [vocab_size] */
    int32_t *order; /* [vocab_size] */
};

bool sampler_create(int32_t vocab_size, struct sampler *sampler);
void sampler_free(struct sampler *sampler);

/* Chooses token number `index` (from 0) of a choice. Temperature 0: the largest logit, the lowest
 * id among equals. Else from softmax(logits / temperature), cut to the smallest set of most likely
 * tokens whose probability reaches top_p. False when a logit is NaN or all are -inf. */
bool sampler_choose(struct sampler *sampler, const struct sampling *sampling, int32_t choice,
                    int32_t index, const float *logits, int32_t *token);

/* Natural logarithms of the probabilities before temperature and top_p: that of the piece's token,
 * and the piece's num_top most likely ones. */
void sampler_logprobs(struct sampler *sampler, const float *logits, struct job_piece *piece);

#endif
