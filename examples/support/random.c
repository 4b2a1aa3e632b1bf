/* SPDX-License-Identifier: MIT
 *
 * random.c: weights from splitmix64, in an array of their own in the order of tensors.h. */
#include "random.h"

#include "report.h"
#include "tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* splitmix64, mapped to [-1, 1). */
static float next_uniform(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (float)(int32_t)(z >> 32) * (1.0f / 2147483648.0f);
}

/* Creates the model and points its weights into a new array; NULL after a complaint. */
static float *take_weights(struct model *m, bool own_classifier)
{
    size_t num_weights = 0;
    if (!tensors_count(m, own_classifier, &num_weights)) {
        complain("a made-up model: too large");
        return NULL;
    }
    if (!model_create("a made-up model", m)) {
        return NULL;
    }
    float *weights = malloc(num_weights * sizeof *weights);
    if (weights == NULL) {
        model_free(m);
        complain("out of memory for %zu weights", num_weights);
        return NULL;
    }
    m->owner = weights;
    m->release = free;
    tensors_place(m, own_classifier, weights);
    return weights;
}

/* A uniform weight in [-a, a) has variance a^2 / 3, so a = sqrt(3 / columns) keeps a product's
 * variance at that of its input. Norms are 1; the embedding has variance 1. */
static void fill_random(uint64_t seed, const struct model *m, float *next)
{
    struct tensor tensors[NUM_TENSORS];
    tensors_list(m, true, tensors);
    for (int i = 0; i < NUM_TENSORS; i++) {
        const struct tensor *t = &tensors[i];
        const size_t count = (size_t)t->count * (size_t)t->rows * (size_t)t->columns;
        const bool is_norm = t->rows == 1;
        const float bound = i == TENSOR_EMBEDDING ? sqrtf(3.0f) : sqrtf(3.0f / (float)t->columns);
        for (size_t e = 0; e < count; e++) {
            next[e] = is_norm ? 1.0f : bound * next_uniform(&seed);
        }
        next += count;
    }
    /* The classifier came last. Without weights, the ids that begin and end a text have logits of
     * 0, which is never the largest of them. */
    float *classifier = next - (size_t)m->vocab_size * (size_t)m->dim;
    memset(classifier + (size_t)m->begin_id * (size_t)m->dim, 0,
           2 * (size_t)m->dim * sizeof *classifier);
}

bool model_random(uint64_t seed, struct model *model)
{
    model->head_dim = model->dim / model->num_heads;
    model->begin_id = 1;
    model->end_id = 2;
    model->norm_eps = 1e-5f;
    model->rope_theta = 10000;
    model->rotary_mode = PKV_ROTARY_INTERLEAVED;
    float *weights = take_weights(model, true);
    if (weights == NULL) {
        return false;
    }
    fill_random(seed, model, weights);
    return true;
}

/* Copies one weight, widened and changed, and returns where the next one begins. */
static float *copy_changed(const struct weight *w, float noise, uint64_t *seed, float *next)
{
    for (int32_t r = 0; r < w->rows; r++) {
        const float *row = weight_row(w, r, next);
        for (int32_t c = 0; c < w->columns; c++) {
            next[c] = row[c] * (1.0f + noise * next_uniform(seed));
        }
        next += w->columns;
    }
    return next;
}

bool model_draft(const struct model *source, int32_t num_layers, float noise, uint64_t seed,
                 struct model *model)
{
    const bool own_classifier = source->classifier.data != source->embedding.data;
    struct model from = *source;
    *model = *source;
    model->num_layers = num_layers;
    model->owner = NULL;
    model->release = NULL;
    float *next = take_weights(model, own_classifier);
    if (next == NULL) {
        memset(model, 0, sizeof *model);
        return false;
    }
    struct tensor tensors[NUM_TENSORS];
    tensors_list(model, own_classifier, tensors);
    for (int i = 0; i < NUM_TENSORS; i++) {
        for (int32_t layer = 0; layer < tensors[i].count; layer++) {
            next = copy_changed(tensor_weight(&from, &tensors[i], layer), noise, &seed, next);
        }
    }
    for (int32_t layer = 0; layer < num_layers; layer++) {
        model->layers[layer].window = source->layers[layer].window;
        model->layers[layer].kept_prefix = source->layers[layer].kept_prefix;
    }
    return true;
}
