/* SPDX-License-Identifier: MIT
 *
 * block_scores.h: how large the dot product of a row's queries with a key of each block can be, by
 * the bounds of the block's keys. */
#ifndef PKV_ATTN_BLOCK_SCORES_H
#define PKV_ATTN_BLOCK_SCORES_H

#include "attn/run.h"
#include "base/carve.h"

/* Widths above it have sums whose rounding is not allowed for. */
#define BLOCK_SCORES_MAX_WIDTH 65536

/* What the scores of a layer's rows are computed from. */
struct block_scores {
    const struct run *run;
    const float *bounds; /* [blocks][kv_heads][2][k_width] */
    int32_t slot_blocks; /* of a row without a table */
    int32_t num_lists;   /* of a row: 1, or one for each KV head */
    size_t q_stride;
};

/* What one worker works in. */
struct block_scratch {
    float *head;        /* [k_width], a query head as it is prepared */
    float *spare;       /* [k_width], of prepare_head */
    float *q;           /* [num_heads][q_stride]: what is below 0, then what is not, each padded */
    float *slack;       /* [num_heads], added to every bound of the head */
    float *best;        /* [kv_heads], of one block */
    int32_t row, query; /* that q holds; a row of -1: nothing */
};

/* Blocks [first, end) of a row, and where their scores go: scores[i * stride + n] has block n of
 * list i. */
struct block_range {
    int32_t row, first, end;
    float *scores;
    size_t stride;
};

/* Fills in what depends on run and num_lists. */
void block_scores_start(struct block_scores *s);

/* Cuts one worker's scratch, of a call's own: it holds no query. */
void block_scores_carve(const struct block_scores *s, struct carver *carver,
                        struct block_scratch *scratch);

/* A score is not below any dot product of a query of its list with a key of the block, in exact
 * arithmetic; +inf when that is not finite, -inf for a block that is not mapped. The order of
 * summation is fixed, and the same however a row is cut into ranges. */
void block_scores_range(const struct block_scores *s, const struct block_range *range,
                        struct block_scratch *scratch);

#endif
