/* SPDX-License-Identifier: MIT
 *
 * check_reach.c: positions against rope_positions, lengths against the mask. */
#include "attn/check_reach.h"

#include "base/error.h"
#include "base/minmax.h"

/* The largest position of a row's tokens: that of its last key, unless they are a tree. */
static int64_t last_position(const struct gqa_row *row)
{
    int64_t last = (int64_t)row->kv_len - 1;
    if (row->depths != NULL) {
        last = gqa_row_past(row);
        for (int32_t i = 0; i < row->q_len; i++) {
            last = max_i32((int32_t)last, gqa_row_position(row, gqa_row_past(row) + i));
        }
    }
    return last;
}

struct call_reach check_reach_of_rows(const struct call *call, const struct gqa_row *rows)
{
    struct call_reach reach = {.position = -1};
    for (int32_t b = 0; b < call->args->batch; b++) {
        const struct gqa_row *row = &rows[b];
        if (row->q_len > 0) {
            reach.q_len = max_i32(reach.q_len, row->q_len);
            reach.kv_len = max_i32(reach.kv_len, row->kv_len);
            reach.has_negative = reach.has_negative || row->kv_len < row->q_len;
        }
        reach.is_uneven = reach.is_uneven || row->kv_len != row->q_len;
        if (row->q_len > 0 || call->args->form == PKV_CACHE_NONE) {
            const int64_t last = last_position(row);
            reach.position = reach.position > last ? reach.position : last;
        }
    }
    return reach;
}

/* Not planned: every run may bring other ids. O(tokens). */
static enum pkv_status check_position_ids(const struct pkv_gqa_args *args)
{
    for (int32_t t = 0; args->position_ids != NULL && t < args->num_tokens; t++) {
        if (args->position_ids[t] < 0 || args->position_ids[t] >= args->constants.rope_positions) {
            return INVALID("position_ids[%d] = %lld, outside [0, rope_positions = %lld)", t,
                           (long long)args->position_ids[t],
                           (long long)args->constants.rope_positions);
        }
    }
    return PKV_OK;
}

/* Positions index the cos/sin tables, unless ids do. */
static enum pkv_status check_positions(const struct pkv_gqa_args *args,
                                       const struct call_reach *reach)
{
    if (args->position_ids != NULL && args->form == PKV_CACHE_NONE && reach->is_uneven) {
        return INVALID(
            "position_ids with form = none: a row has other numbers of queries and keys");
    }
    if (args->position_ids != NULL) {
        return check_position_ids(args);
    }
    if (reach->has_negative) {
        return INVALID("a row has fewer keys than queries: its first position would be negative");
    }
    if (reach->position >= args->constants.rope_positions) {
        return INVALID("position %lld, but rope_positions = %lld", (long long)reach->position,
                       (long long)args->constants.rope_positions);
    }
    return PKV_OK;
}

enum pkv_status check_reach(const struct pkv_gqa_args *args, const struct call_reach *reach)
{
    if (args->attn_mask != NULL && args->mask_queries < reach->q_len) {
        return INVALID("attn_mask: mask_queries = %d, but a row has %d", args->mask_queries,
                       reach->q_len);
    }
    if (args->attn_mask != NULL && args->mask_keys < reach->kv_len) {
        return INVALID("attn_mask: mask_keys = %d, but a row has %d", args->mask_keys,
                       reach->kv_len);
    }
    return args->constants.rope_cos != NULL ? check_positions(args, reach) : PKV_OK;
}
