/* SPDX-License-Identifier: MIT
 *
 * check_reach.h: the cos/sin tables and the mask of a call against what its rows reach. */
#ifndef PKV_ATTN_CHECK_REACH_H
#define PKV_ATTN_CHECK_REACH_H

#include "attn/call.h"
#include "attn/gqa_row.h"

/* How far checked rows reach, whatever this call's options are: a run may bring others. O(batch).
 */
struct call_reach check_reach_of_rows(const struct call *call, const struct gqa_row *rows);

/* PKV_INVALID_ARGUMENT when the call's tables or mask end before that. O(1), beside a walk over
 * position_ids. */
enum pkv_status check_reach(const struct pkv_gqa_args *args, const struct call_reach *reach);

#endif
