/* SPDX-License-Identifier: MIT
 *
 * tensors.c: the table, and sums and pointers that follow from it. */
#include "tensors.h"

#include <string.h>

enum { HEADER_ROOM = 64 };

void tensors_list(const struct model *m, bool own_classifier, struct tensor tensors[NUM_TENSORS])
{
    const int32_t layers = m->num_layers;
    const int32_t q_dim = m->num_heads * m->head_dim;
    const int32_t kv_dim = m->kv_heads * m->head_dim;
    const struct tensor list[NUM_TENSORS] = {
        {offsetof(struct model, embedding), false, 1, m->vocab_size, m->dim},
        {offsetof(struct model_layer, attn_norm), true, layers, 1, m->dim},
        {offsetof(struct model_layer, wq), true, layers, q_dim, m->dim},
        {offsetof(struct model_layer, wk), true, layers, kv_dim, m->dim},
        {offsetof(struct model_layer, wv), true, layers, kv_dim, m->dim},
        {offsetof(struct model_layer, wo), true, layers, m->dim, q_dim},
        {offsetof(struct model_layer, ffn_norm), true, layers, 1, m->dim},
        {offsetof(struct model_layer, w1), true, layers, m->hidden_dim, m->dim},
        {offsetof(struct model_layer, w2), true, layers, m->dim, m->hidden_dim},
        {offsetof(struct model_layer, w3), true, layers, m->hidden_dim, m->dim},
        {offsetof(struct model, final_norm), false, 1, 1, m->dim},
        {offsetof(struct model, classifier), false, own_classifier ? 1 : 0, m->vocab_size, m->dim},
    };
    memcpy(tensors, list, sizeof list);
}

struct weight *tensor_weight(struct model *model, const struct tensor *tensor, int32_t layer)
{
    char *base = tensor->in_layer ? (char *)&model->layers[layer] : (char *)model;
    return (struct weight *)(void *)(base + tensor->place);
}

/* *total += a * b * c, or false when size_t cannot hold it as bytes, with a header. */
static bool add_product(size_t a, size_t b, size_t c, size_t *total)
{
    const size_t limit = (SIZE_MAX - HEADER_ROOM) / sizeof(float);
    if (b != 0 && a > limit / b) {
        return false;
    }
    if (c != 0 && a * b > limit / c) {
        return false;
    }
    if (a * b * c > limit - *total) {
        return false;
    }
    *total += a * b * c;
    return true;
}

bool tensors_count(const struct model *model, bool own_classifier, size_t *num_weights)
{
    struct tensor tensors[NUM_TENSORS];
    tensors_list(model, own_classifier, tensors);
    size_t total = 0;
    for (int i = 0; i < NUM_TENSORS; i++) {
        const struct tensor *t = &tensors[i];
        if (!add_product((size_t)t->count, (size_t)t->rows, (size_t)t->columns, &total)) {
            return false;
        }
    }
    *num_weights = total;
    return true;
}

void tensors_place(struct model *model, bool own_classifier, const float *weights)
{
    struct tensor tensors[NUM_TENSORS];
    tensors_list(model, own_classifier, tensors);
    const float *next = weights;
    for (int i = 0; i < NUM_TENSORS; i++) {
        const struct tensor *t = &tensors[i];
        for (int32_t layer = 0; layer < t->count; layer++) {
            *tensor_weight(model, t, layer) = (struct weight){next, PKV_F32, t->rows, t->columns};
            next += (size_t)t->rows * (size_t)t->columns;
        }
    }
    if (!own_classifier) {
        model->classifier = model->embedding;
    }
}
