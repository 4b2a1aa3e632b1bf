/* SPDX-License-Identifier: MIT
 *
 * ranker.c: the layer's own table maps its selected blocks alone, so the ranker's has the pool's
 * blocks in an order of its own. */
#include "ranker.h"

#include <stdlib.h>
#include <string.h>

#include "measure.h"

static void fill_table(struct ranker *ranker, size_t count)
{
    uint64_t state = 9;
    for (size_t i = 0; i < count; i++) {
        ranker->table[i] = (int32_t)i;
    }
    for (size_t i = count; i > 1; i--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const size_t j = (size_t)(state >> 33) % i;
        const int32_t kept = ranker->table[i - 1];
        ranker->table[i - 1] = ranker->table[j];
        ranker->table[j] = kept;
    }
}

void ranker_create(struct layer *layer, struct ranker *ranker)
{
    const struct layer_spec *spec = &layer->spec;
    const size_t blocks = (size_t)spec->rows * (size_t)layer->args.max_blocks;
    *ranker = (struct ranker){.layer = layer, .args = layer->args};
    if (blocks > (size_t)layer->args.past.num_blocks) {
        measure_fail("a pool of %d blocks, for %zu of the rows", layer->args.past.num_blocks,
                     blocks);
    }
    const size_t block_floats = (size_t)spec->kv_heads * 2 * (size_t)spec->width;
    ranker->bounds_bytes = blocks * block_floats * sizeof(float);
    ranker->bounds =
        measure_calloc((size_t)layer->args.past.num_blocks * block_floats, sizeof(float));
    ranker->table = measure_calloc(blocks, sizeof(int32_t));
    ranker->selected = measure_calloc((size_t)(spec->rows * spec->selected), sizeof(int32_t));
    ranker->cu_selected = measure_calloc((size_t)spec->rows + 1, sizeof(int32_t));
    fill_table(ranker, blocks);
    ranker->args.block_table = ranker->table;
    ranker->rank = (struct pkv_rank_args){.size = sizeof ranker->rank,
                                          .bounds = ranker->bounds,
                                          .max_selected = spec->selected,
                                          .selected = ranker->selected,
                                          .cu_selected = ranker->cu_selected};
    ranker_fill_bounds(ranker);
    ranker_run(ranker);
}

void ranker_destroy(struct ranker *ranker)
{
    free(ranker->bounds);
    free(ranker->table);
    free(ranker->selected);
    free(ranker->cu_selected);
}

void ranker_run(struct ranker *ranker)
{
    measure_must(pkv_block_rank(ranker->layer->workspace, &ranker->args, &ranker->rank),
                 "pkv_block_rank");
}

void ranker_fill_bounds(struct ranker *ranker)
{
    const struct pkv_attn_constants *c = &ranker->args.constants;
    const struct pkv_kv_view *view = &ranker->args.past;
    measure_must(pkv_block_bounds(ranker->layer->workspace, view, c->k_scale, c->k_scale_count,
                                  ranker->table, ranker->layer->spec.rows * ranker->args.max_blocks,
                                  view->block_size, ranker->bounds),
                 "pkv_block_bounds");
}
