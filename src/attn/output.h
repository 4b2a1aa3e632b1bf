/* SPDX-License-Identifier: MIT
 *
 * output.h: finished sums into out and lse. */
#ifndef PKV_ATTN_OUTPUT_H
#define PKV_ATTN_OUTPUT_H

#include "attn/run.h"
#include "attn/scratch.h"

/* Queries [q0, q1) of a row for one KV head, from the totals of s, which are overwritten. */
void output_write(const struct run *run, int32_t row_idx, int32_t q0, int32_t q1, int32_t head,
                  const struct scratch *s);

#endif
