/* SPDX-License-Identifier: MIT
 *
 * block_scores.h: how large the dot product of a row's queries with a key of each block can be, by
 * the bounds of the block's keys. */
#ifndef PKV_ATTN_BLOCK_SCORES_H
#define PKV_ATTN_BLOCK_SCORES_H

#include "attn/run.h"

/* Widths above it have sums whose rounding is not allowed for. */
#define BLOCK_SCORES_MAX_WIDTH 65536

/* What the scores of a layer's rows are computed from, and scratch. */
struct block_scores {
    const struct run *run;
    const float *bounds; /* [blocks][kv_heads][2][k_width] */
    int32_t slot_blocks; /* of a row without a table */
    int32_t num_lists;   /* of a row: 1, or one for each KV head */
    size_t q_stride;
    float *head;   /* [k_width], a query head as it is prepared */
    float *spare;  /* [k_width], of prepare_head */
    float *q;      /* [num_heads][q_stride]: what is below 0, then what is not, each padded */
    float *slack;  /* [num_heads], added to every bound of the head */
    float *best;   /* [kv_heads], of one block */
    float *scores; /* [num_lists][max_candidates], of a row */
};

/* Fills in what depends on run->plan->shape, num_lists and max_candidates alone, with memory NULL
 * for its size. false when it overflows. */
bool block_scores_carve(struct block_scores *s, size_t max_candidates, void *memory, size_t *bytes);

/* scores[i * stride + n], for each list i of the row and n < num_candidates, is not below any dot
 * product of a query of list i with a key of the row's block n, in exact arithmetic; +inf when that
 * is not finite, -inf for a block that is not mapped. The order of summation is fixed. */
void block_scores_row(const struct block_scores *s, const struct gqa_row *row,
                      int32_t num_candidates, float *scores, size_t stride);

#endif
