/* SPDX-License-Identifier: MIT
 *
 * check_rows.h: the rows of a raw call, checked and filled in. */
#ifndef PKV_ATTN_CHECK_ROWS_H
#define PKV_ATTN_CHECK_ROWS_H

#include "attn/call.h"
#include "attn/gqa_row.h"

/* Lengths, slots and tables. rows [batch] are filled in and mean nothing after a refusal.
 * PKV_INVALID_ARGUMENT, PKV_NO_MEMORY. O(batch + table entries). */
enum pkv_status check_rows(pkv_workspace *workspace, const struct call *call, struct gqa_row *rows);

#endif
