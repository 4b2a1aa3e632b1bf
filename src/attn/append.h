/* SPDX-License-Identifier: MIT
 *
 * append.h: the new keys and values of a row into their cells, rounded to the cache's dtypes. */
#ifndef PKV_ATTN_APPEND_H
#define PKV_ATTN_APPEND_H

#include "attn/run.h"

/* The append of a row for one KV head; the row's copy on write comes first. O(copied + new cells).
 */
void append_row(const struct run *run, const struct gqa_row *row, int32_t head, float *scratch);

/* The new keys that lie in [from, to) alone, without a copy. */
void append_keys(const struct run *run, const struct gqa_row *row, int32_t head, int64_t from,
                 int64_t to, float *scratch);

#endif
