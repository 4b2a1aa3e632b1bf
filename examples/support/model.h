/* SPDX-License-Identifier: MIT
 *
 * model.h: the weights of a llama2.c checkpoint, and the same made up from a seed.
 *
 *   head_dim = dim / num_heads (even),   kv_dim = kv_heads * head_dim,   kv_heads divides num_heads
 *
 * All weights lie in one array in the file's order; the pointers lead into it. */
#ifndef SUPPORT_MODEL_H
#define SUPPORT_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The ids that begin and end a text. */
enum { TOKEN_BEGIN = 1, TOKEN_END = 2 };

struct model {
    int32_t dim;
    int32_t hidden_dim;
    int32_t num_layers;
    int32_t num_heads;
    int32_t kv_heads;
    int32_t vocab_size;
    int32_t seq_len;
    int32_t head_dim;
    int32_t kv_dim;
    bool own_classifier; /* false: the classifier is the embedding */

    size_t num_weights;
    float *weights;
    const float *embedding;  /* [vocab_size][dim] */
    const float *attn_norm;  /* [num_layers][dim] */
    const float *wq;         /* [num_layers][dim][dim] */
    const float *wk;         /* [num_layers][kv_dim][dim] */
    const float *wv;         /* [num_layers][kv_dim][dim] */
    const float *wo;         /* [num_layers][dim][dim] */
    const float *ffn_norm;   /* [num_layers][dim] */
    const float *w1;         /* [num_layers][hidden_dim][dim] */
    const float *w2;         /* [num_layers][dim][hidden_dim] */
    const float *w3;         /* [num_layers][hidden_dim][dim] */
    const float *final_norm; /* [dim] */
    const float *classifier; /* [vocab_size][dim] */

    float *rope_cos; /* [seq_len][head_dim / 2] */
    float *rope_sin;
};

/* Reads a checkpoint. Everything in the file is checked before it is believed: header words, their
 * products, the exact size of the file, and that each weight is finite. */
bool model_load(const char *path, struct model *model);

/* A model of the geometry that is set in *model (the seven numbers and own_classifier), with random
 * weights that keep activations near 1. It never emits TOKEN_BEGIN or TOKEN_END. */
bool model_random(uint64_t seed, struct model *model);

/* A draft of another model: its first num_layers layers (1..its own), each weight w changed to
 * w * (1 + noise * u) with u uniform in [-1, 1) from the seed. */
bool model_draft(const struct model *source, int32_t num_layers, float noise, uint64_t seed,
                 struct model *model);

/* Frees what load, random or draft took. A zeroed model is accepted. */
void model_free(struct model *model);

#endif
