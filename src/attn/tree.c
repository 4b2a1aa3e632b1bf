/* SPDX-License-Identifier: MIT
 *
 * tree.c: parents to depths and bits, once a plan. */
#include "attn/tree.h"

#include <string.h>

#include "base/checked.h"
#include "base/window.h"

int32_t tree_first_fault(const int32_t *parents, int32_t count)
{
    int32_t i = 0;
    while (i < count && parents[i] >= -1 && parents[i] < i) {
        i++;
    }
    return i;
}

bool tree_is_chain(const int32_t *parents, int32_t count)
{
    int32_t i = 0;
    while (i < count && parents[i] == i - 1) {
        i++;
    }
    return i == count;
}

/* Words of a row's bits and depths together; 0 for a chain. */
static size_t words_of(const struct gqa_row *row, const int32_t *parents)
{
    const size_t tokens = (size_t)row->q_len;
    if (tree_is_chain(parents + row->q_begin, row->q_len)) {
        return 0;
    }
    return tokens * gqa_row_draft_words(row) + (tokens + 1) / 2;
}

void tree_fill_depths(const int32_t *parents, int32_t count, int32_t *depths)
{
    for (int32_t i = 0; i < count; i++) {
        depths[i] = parents[i] < 0 ? 0 : depths[parents[i]] + 1;
    }
}

/* The bits of all queries of a row, which are 0 so far. */
static void fill_drafts(const struct gqa_row *row, const struct gqa_shape *shape,
                        const int32_t *parents, uint64_t *drafts)
{
    const int64_t past = gqa_row_past(row);
    const size_t words = gqa_row_draft_words(row);
    for (int32_t i = 0; i < row->q_len; i++, drafts += words) {
        const int64_t first = first_needed_key(past + row->depths[i], shape->sliding_window);
        for (int32_t a = i; a >= 0; a = parents[a]) {
            const int64_t position = past + row->depths[a];
            if (position >= first || position < row->kept_prefix) {
                drafts[a / 64] |= UINT64_C(1) << a % 64;
            }
        }
    }
}

bool tree_fill_rows(pkv_plan *plan, const struct gqa_shape *shape, const int32_t *parents)
{
    struct gqa_row *rows = plan->rows.memory;
    size_t words = 0;
    for (int32_t b = 0; b < plan->num_rows; b++) {
        words += words_of(&rows[b], parents);
    }
    if (words == 0) {
        return true;
    }
    size_t bytes = 0;
    if (!checked_mul(words, sizeof(uint64_t), &bytes) ||
        !buffer_grow(plan->hooks, &plan->trees, bytes)) {
        return false;
    }
    uint64_t *at = plan->trees.memory;
    memset(at, 0, bytes);
    for (int32_t b = 0; b < plan->num_rows; b++) {
        struct gqa_row *row = &rows[b];
        const size_t row_words = words_of(row, parents);
        if (row_words > 0) {
            uint64_t *drafts = at;
            int32_t *depths =
                (int32_t *)(void *)(at + (size_t)row->q_len * gqa_row_draft_words(row));
            tree_fill_depths(parents + row->q_begin, row->q_len, depths);
            row->depths = depths;
            row->drafts = drafts;
            fill_drafts(row, shape, parents + row->q_begin, drafts);
            at += row_words;
        }
    }
    return true;
}
