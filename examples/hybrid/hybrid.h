/* SPDX-License-Identifier: MIT
 *
 * hybrid.h: a toy model of two recurrent layers, one with full attention and one with a window:
 *
 *   layer  0 recurrent   1 attends to all keys   2 recurrent   3 attends to a window
 *
 * It is a model of examples/support whose recurrent layers replace attention by a gated delta rule
 * (Yang et al., Gated Delta Networks, arXiv:2412.06464) behind a short causal convolution. Of a
 * layer's q, k and v, a token's channels x are those of all three side by side:
 *
 *   y_t[c] = silu(sum of conv[c][i] * x_(t - CONV_WIDTH + 1 + i)[c])          i < CONV_WIDTH
 *
 * and q_t, k_t, v_t are its parts, q and k with heads of length 1. A KV head has a matrix S of
 * [head_dim of v][head_dim of k], which begins as zeros, and two gates in (0, 1) of the layer's
 * normed input n: the decay g_t = 1 / (1 + exp(-(decay n + DECAY_BIAS))) and beta_t = 1 / (1 +
 * exp(-(write n))).
 *
 *   S_t   = g_t * (S_(t-1) - beta_t * (S_(t-1) k_t) k_t^T) + beta_t * v_t k_t^T
 *   out_t = S_t q_t                    for each query head that reads this KV head
 *
 * So the state of a layer is the convolution's last inputs and the matrices. It is computed token
 * by token in f32, in one order: the same bits however a text is cut into rows. */
#ifndef HYBRID_HYBRID_H
#define HYBRID_HYBRID_H

#include "model.h"

enum { HYBRID_LAYERS = 4, HYBRID_STATES = 2, CONV_WIDTH = 4 };

#define DECAY_BIAS 3.0f

/* Of one recurrent layer: beside the projections that every layer of the model has. */
struct recurrence {
    const float *decay; /* [kv_heads][dim] */
    const float *write; /* [kv_heads][dim] */
    const float *conv;  /* [q_dim + 2 * kv_dim][CONV_WIDTH] */
};

struct hybrid {
    struct model model;
    struct recurrence recurrences[HYBRID_STATES];
    int32_t num_channels; /* q_dim + 2 * kv_dim */
    size_t state_bytes;   /* of a layer */
    float *weights;
};

/* What a token brings to a recurrent layer: n, and its packed q, k and v as attend_fn has them. */
struct recurrent_input {
    const float *normed;
    const float *q;
    const float *k;
    const float *v;
};

/* Weights are a function of the seed. window keys are seen in the last layer, beside the first
 * kept_prefix. Complains when there is no memory. */
bool hybrid_create(uint64_t seed, int32_t window, int32_t kept_prefix, struct hybrid *hybrid);
void hybrid_free(struct hybrid *hybrid);

/* The number of a recurrent layer among those, -1 for the others. */
int32_t hybrid_recurrence(int32_t layer);

/* state [state_bytes], f32, becomes that after one token more; out [q_dim]. */
void hybrid_update(const struct hybrid *hybrid, int32_t recurrence, float *state,
                   const struct recurrent_input *in, float *out);

/* The gate of KV head `head`: weights is the layer's decay or write, bias what is added. */
float hybrid_gate(const struct hybrid *hybrid, const float *weights, int32_t head,
                  const float *normed, float bias);

/* 64 bits of a state, for comparisons: they change with every bit of it. */
uint64_t hybrid_hash(const struct hybrid *hybrid, const void *state);

#endif
