/* SPDX-License-Identifier: MIT
 *
 * tensors.h: the weights of a llama2.c checkpoint, one f32 array without gaps:
 *
 *   embedding, attn_norm of all layers, wq of all, wk, wv, wo, ffn_norm, w1, w2, w3, final_norm,
 *   classifier (where it is not the embedding)
 *
 * One table, in that order, serves the size of a file, its pointers, and weights made up. */
#ifndef SUPPORT_TENSORS_H
#define SUPPORT_TENSORS_H

#include "model.h"

/* One matrix a layer, or just one. A norm has one row. */
struct tensor {
    size_t place; /* of its struct weight, in struct model_layer or else in struct model */
    bool in_layer;
    int32_t count;
    int32_t rows;
    int32_t columns;
};

enum { NUM_TENSORS = 12, TENSOR_EMBEDDING = 0, TENSOR_CLASSIFIER = NUM_TENSORS - 1 };

/* Sets the tensors of a model's shape (model_create need not have seen it). */
void tensors_list(const struct model *model, bool own_classifier,
                  struct tensor tensors[NUM_TENSORS]);

/* The weight of a tensor in one layer; layer 0 where there is one for all. */
struct weight *tensor_weight(struct model *model, const struct tensor *tensor, int32_t layer);

/* The elements of all of them, or false when their bytes and a header pass size_t. */
bool tensors_count(const struct model *model, bool own_classifier, size_t *num_weights);

/* Points all weights of a created model into the array. */
void tensors_place(struct model *model, bool own_classifier, const float *weights);

#endif
