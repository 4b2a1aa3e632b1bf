/* SPDX-License-Identifier: MIT
 *
 * gqa_row.h: one row of a batch, that is one sequence's part of it, and where its keys are.
 *
 *   past = kv_len - q_len            keys before the append; query i has position past + i, or in
 *                                    a tree of drafts past + depths[i]
 *   cell of key j                    j % block_size of block table[j / block_size]
 *   new keys                         [past, kv_len), or all of them (gqa_shape's all_new)
 *
 * The caller of gqa_plan_rows fills rows and has checked them: table entries lie inside the cache
 * wherever a key is read or written. */
#ifndef PKV_ATTN_GQA_ROW_H
#define PKV_ATTN_GQA_ROW_H

#include <stddef.h>

#include "attn/gqa_shape.h"
#include "pagedkv/attn.h"

struct gqa_row {
    const int32_t *table; /* NULL: the row lies in the one block `block` */
    int32_t block;        /* or, cache-less, its first token */
    int32_t q_begin;      /* first token of the row in the packed q, k, v, out */
    int32_t q_len;
    int32_t kv_len;      /* keys after the append */
    int32_t kept_prefix; /* in [0, kv_len] */
    int32_t copy_src;    /* copy on write, before the append: cells [0, copy_cells) of this block */
    int32_t copy_cells;  /* go into the block of the first new key; 0 = no copy */
    int32_t num_ranges;
    const struct pkv_token_range *ranges; /* bidirectional, a sound list (token_range.h) */
    const int32_t *selected;              /* with selected blocks: list h of the row is */
    const int32_t *cu_selected;           /* selected[cu_selected[h]] .. [cu_selected[h + 1]] */
    const int32_t *depths;  /* of a tree's new tokens; NULL = they are a chain, as below */
    const uint64_t *drafts; /* then bit a of gqa_row_drafts(i): query i sees new token a */
};

static inline int32_t gqa_row_past(const struct gqa_row *row)
{
    return row->kv_len - row->q_len;
}

/* The position of the token whose key is the row's `key`. */
static inline int32_t gqa_row_position(const struct gqa_row *row, int32_t key)
{
    const int32_t past = gqa_row_past(row);
    return row->depths != NULL && key >= past ? past + row->depths[key - past] : key;
}

/* Words of the bits of each query of a tree, and the bits of query i. */
static inline size_t gqa_row_draft_words(const struct gqa_row *row)
{
    return ((size_t)row->q_len + 63) / 64;
}

static inline const uint64_t *gqa_row_drafts(const struct gqa_row *row, int32_t i)
{
    return row->drafts + (size_t)i * gqa_row_draft_words(row);
}

/* Keys [first new, kv_len) are stored by the run. */
static inline int32_t gqa_row_first_new(const struct gqa_row *row, const struct gqa_shape *shape)
{
    return shape->all_new ? 0 : gqa_row_past(row);
}

/* The token of the packed k and v that holds new key `key`. */
static inline int32_t gqa_row_token_of_key(const struct gqa_row *row, const struct gqa_shape *shape,
                                           int32_t key)
{
    return shape->all_new ? row->block + key : row->q_begin + key - gqa_row_past(row);
}

/* The block that holds key `key`; its cell there is key % block_size. */
static inline int32_t gqa_row_block_of_key(const struct gqa_row *row, int32_t block_size,
                                           int32_t key)
{
    return row->table != NULL ? row->table[key / block_size] : row->block;
}

#endif
