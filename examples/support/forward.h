/* SPDX-License-Identifier: MIT
 *
 * forward.h: one forward pass over packed tokens of any number of sequences. All of it is local to
 * a token except attention, which is the caller's, rope and the norms of single heads included:
 * that is where a KV cache goes.
 *
 *   x = embedding;  per layer:  x += wo * attend(wq n, wk n, wv n),    n = rms(x)
 *                               x += w2 * (silu(w1 n) * (w3 n)),       n = rms(x)
 *
 * A token's result depends on its own input and on attention alone: each number is one dot product
 * in a fixed order, whatever stands beside it in the batch. */
#ifndef SUPPORT_FORWARD_H
#define SUPPORT_FORWARD_H

#include "model.h"

/* What attention gets for one layer, tokens packed: q and out [tokens][num_heads][head_dim], k and
 * v [tokens][kv_heads][head_dim], q and k neither normed nor rotated yet. False = it failed and
 * complained. */
typedef bool attend_fn(void *context, int32_t layer, const float *q, const float *k, const float *v,
                       float *out);

struct activations {
    int32_t max_tokens;
    float *x;        /* [max_tokens][dim] */
    float *normed;   /* [max_tokens][dim] */
    float *q;        /* [max_tokens][q_dim] */
    float *k;        /* [max_tokens][kv_dim] */
    float *v;        /* [max_tokens][kv_dim] */
    float *attended; /* [max_tokens][q_dim] */
    float *gate;     /* [max_tokens][hidden_dim] */
    float *up;       /* [max_tokens][hidden_dim] */
    float *logits;   /* [vocab_size] */
    float *scratch;  /* of matrix.h */
    int32_t threads;
};

/* threads: 0 = as many as this process may run. */
bool activations_create(const struct model *model, int32_t max_tokens, int32_t threads,
                        struct activations *a);
void activations_free(struct activations *a);

/* Tokens of any sequences: which, and at what positions, attention alone knows. The result stays in
 * a->x. */
bool forward(const struct model *model, struct activations *a, const int32_t *tokens,
             int32_t num_tokens, attend_fn *attend, void *context);

/* The logits after tokens rows [num_rows] of the last pass, num_rows <= max_tokens: logits
 * [num_rows][vocab_size], not checked. */
void logits_of_rows(const struct model *model, struct activations *a, const int32_t *rows,
                    int32_t num_rows, float *logits);

/* The logits after token `index` of the last pass, in a->logits until the next call. Complains when
 * one is not finite. */
bool logits_of(const struct model *model, struct activations *a, int32_t index);

/* The most likely token after token `index` of the last pass, and by how much its logit leads the
 * second (margin may be NULL). Complains when a logit is not finite. */
bool next_token(const struct model *model, struct activations *a, int32_t index, int32_t *token,
                float *margin);

#endif
