/* SPDX-License-Identifier: MIT
 *
 * tree.h: trees of drafts: rows whose new tokens name their parents. New token i of a row lies in
 * cell past + i, and its position is past + depth(i):
 *
 *   parents[i] = -1: a root, depth 0           parents[i] in [0, i): depth(parents[i]) + 1
 *
 * Of the new tokens a query sees itself and its ancestors, each as the window and the kept prefix
 * admit its position. A plan keeps this as bits, a row of words for each query, and the depths
 * (gqa_row.h). A row whose parents form the chain -1, 0, 1, .. has neither and is a row like any
 * other. */
#ifndef PKV_ATTN_TREE_H
#define PKV_ATTN_TREE_H

#include "attn/gqa_row.h"
#include "attn/plan.h"

/* The first token of a row whose parent is outside [-1, its own number); count for a sound list.
 * O(count). */
int32_t tree_first_fault(const int32_t *parents, int32_t count);

/* True when each token's parent is the one before it. O(count). */
bool tree_is_chain(const int32_t *parents, int32_t count);

/* depths [count] of a sound list. O(count). */
void tree_fill_depths(const int32_t *parents, int32_t count, int32_t *depths);

/* Fills depths and drafts of the plan's rows. parents, one for each token of the packed q, are
 * sound; kept prefixes and lengths of the rows are there. false when there is no memory. O(tokens *
 * depth). */
bool tree_fill_rows(pkv_plan *plan, const struct gqa_shape *shape, const int32_t *parents);

#endif
