/* SPDX-License-Identifier: MIT
 *
 * ranker.h: choosing the selected blocks of a layer, beside the attention that it saves. */
#ifndef BENCH_ATTN_RANKER_H
#define BENCH_ATTN_RANKER_H

#include "layer.h"

struct ranker {
    struct layer *layer;
    struct pkv_gqa_args args;
    struct pkv_rank_args rank;
    float *bounds;
    size_t bounds_bytes; /* that a rank reads */
    int32_t *table;      /* as the layer's, with all blocks mapped */
    int32_t *selected, *cu_selected;
};

/* For a layer whose pool has a block for each of its rows' blocks; bounds are those of its keys. */
void ranker_create(struct layer *layer, struct ranker *ranker);
void ranker_destroy(struct ranker *ranker);

/* One rank of all rows' blocks; the bounds of as many blocks as a rank looks at. */
void ranker_run(struct ranker *ranker);
void ranker_fill_bounds(struct ranker *ranker);

#endif
