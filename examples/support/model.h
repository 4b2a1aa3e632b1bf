/* SPDX-License-Identifier: MIT
 *
 * model.h: a decoder of the Llama kind, as every example and the server of examples/server see it.
 *
 *   who fills a struct model                       who reads it
 *   checkpoint.h    llama2.c files                 forward.h    one pass, attention left open
 *   pkvm.h          files of examples/train     cached.h     groups and layers of a pkv_cache
 *   random.h        made up from a seed            request.h    ids and lengths that it can take
 *   load.h          any file, by what it begins with
 *
 * A loader sets the shape, calls model_create, which takes the layers and the rope tables, then
 * places each weight: where it lies, in the type that it has there. Weights are never copied to be
 * of another type: forward() widens a row when it multiplies by it, so a mapped file serves as it
 * is. What they lie in is the loader's: it sets owner and release, and model_free calls that.
 *
 *   q_dim = num_heads * head_dim,   kv_dim = kv_heads * head_dim,   kv_heads divides num_heads,
 *   head_dim is even;   q_dim = dim in most models and need not be */
#ifndef SUPPORT_MODEL_H
#define SUPPORT_MODEL_H

#include "pagedkv/attn.h"

/* A matrix of f32, f16 or bf16 in row order, without gaps; a vector has one row. data NULL: the
 * model has no such weight. */
struct weight {
    const void *data;
    enum pkv_dtype dtype;
    int32_t rows;
    int32_t columns;
};

struct model_layer {
    int32_t window;      /* a query sees the newest `window` keys, its own among them; 0 = all */
    int32_t kept_prefix; /* and so many at the start */

    struct weight attn_norm; /* [dim] */
    struct weight wq;        /* [q_dim][dim] */
    struct weight wk;        /* [kv_dim][dim] */
    struct weight wv;        /* [kv_dim][dim] */
    struct weight q_norm;    /* [head_dim], or none: RMSNorm of each head before rope, as Qwen3 */
    struct weight k_norm;    /* [head_dim], or none */
    struct weight wo;        /* [dim][q_dim] */
    struct weight ffn_norm;  /* [dim] */
    struct weight w1;        /* [hidden_dim][dim], the gate */
    struct weight w3;        /* [hidden_dim][dim] */
    struct weight w2;        /* [dim][hidden_dim] */
};

struct model {
    /* Set before model_create. */
    int32_t dim;
    int32_t hidden_dim;
    int32_t num_layers;
    int32_t num_heads;
    int32_t kv_heads;
    int32_t head_dim;
    int32_t vocab_size;
    int32_t seq_len;  /* positions that it was made for */
    int32_t begin_id; /* begin and end a text; -1 = there is none */
    int32_t end_id;
    float norm_eps;
    double rope_theta;
    bool byte_vocabulary; /* ids below 256 are bytes */
    enum pkv_rotary_mode rotary_mode;

    /* Set by model_create. */
    int32_t q_dim;
    int32_t kv_dim;
    float *rope_cos; /* [seq_len][head_dim / 2], of position * rope_theta^(-2i / head_dim) */
    float *rope_sin;
    struct model_layer *layers; /* [num_layers] */

    /* Set by the loader after it. */
    struct weight embedding;  /* [vocab_size][dim] */
    struct weight final_norm; /* [dim] */
    struct weight classifier; /* [vocab_size][dim]; the embedding again where it is shared */
    void *owner;              /* what the weights lie in */
    void (*release)(void *owner);
};

enum { MODEL_MAX_DIM = 1 << 16, MODEL_MAX_LAYERS = 1 << 12 };
enum { MODEL_MAX_VOCAB = 1 << 24, MODEL_MAX_SEQ_LEN = 1 << 20 };
enum { MODEL_MAX_ROPE_BYTES = 1 << 26 }; /* 128 Ki positions of heads of 128 channels */

/* Complains unless a number of a file, such as a word of its header, is in [1, high]. */
bool model_check_word(const char *name, const char *word, int32_t value, int32_t high);

/* Complains unless the shape is one that model_create takes: numbers within bounds, heads that
 * divide as they must. Nothing of it needs to be true yet. `name` is what a complaint begins with,
 * such as the file. For loaders that compare a file's size before they take memory. */
bool model_check_shape(const char *name, const struct model *model);

/* The same, and rope tables of at most 64 MiB; then takes layers without weights and the tables. On
 * failure the model is as it was. */
bool model_create(const char *name, struct model *model);

/* Complains unless the numbers of a weight are all finite. */
bool model_check_finite(const char *name, const char *weight, const struct weight *w);

/* How far pair i of a head, i < head_dim / 2, turns from one position to the next, in radians, by
 * rope_theta alone; and tables in which it turns by another frequency, for models that scale it. */
double model_frequency(const struct model *model, int32_t i);
void model_set_frequency(struct model *model, int32_t i, double frequency);

/* Every layer gets this window and kept prefix. */
void model_set_window(struct model *model, int32_t window, int32_t kept_prefix);

/* Row `row` of a weight as floats: the row itself where it is of f32, else widened into scratch
 * [columns]. */
const float *weight_row(const struct weight *w, int32_t row, float *scratch);

/* Frees the model and has its weights released. A zeroed model is accepted. */
void model_free(struct model *model);

#endif
