/* SPDX-License-Identifier: MIT
 *
 * check_args.h: the validation of a raw call goes from cheap to costly, and is whole before
 * anything is written:
 *
 *   check_args       scalars, presence, options, strides; and by check_cache the caches
 *   check_rows       lengths; and by check_tables slots and block tables
 *   check_reach      the ends of cos/sin tables and mask
 *   check_pointers   pointers that a run needs, and what overlaps what */
#ifndef PKV_ATTN_CHECK_ARGS_H
#define PKV_ATTN_CHECK_ARGS_H

#include "attn/call.h"

/* Fills call from args. PKV_INVALID_ARGUMENT. O(constants + kept_prefix). */
enum pkv_status check_args(const struct pkv_gqa_args *args, enum call_kind kind, struct call *call);

#endif
