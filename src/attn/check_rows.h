/* SPDX-License-Identifier: MIT
 *
 * check_rows.h: the rows of a raw call, checked and filled in. */
#ifndef PKV_ATTN_CHECK_ROWS_H
#define PKV_ATTN_CHECK_ROWS_H

#include "attn/call.h"
#include "attn/gqa_row.h"
#include "attn/selection.h"

/* Lengths, bidirectional ranges and parents; fills in all of the rows but tables, lists, and a
 * block that a slot id names. PKV_INVALID_ARGUMENT, PKV_UNSUPPORTED. O(tokens). */
enum pkv_status check_row_queries(const struct call *call, struct gqa_row *rows);

/* Lengths, slots and tables. rows [batch] are filled in and mean nothing after a refusal.
 * PKV_INVALID_ARGUMENT, PKV_NO_MEMORY. O(batch + table entries). */
enum pkv_status check_rows(pkv_workspace *workspace, const struct call *call, struct gqa_row *rows);

/* The lists of selected blocks of a call that has some. */
static inline struct selection call_selection(const struct call *call)
{
    return (struct selection){
        .selected = call->args->selected,
        .cu_selected = call->args->cu_selected,
        .num_lists = call->args->num_selected_lists,
        .num_rows = call->args->batch,
    };
}

#endif
