/* SPDX-License-Identifier: MIT
 *
 * check_rows.c: lengths of a raw call, and with check_tables the rows of its plan. Nothing
 * here looks at channels. */
#include "attn/check_rows.h"

#include "attn/check_cumulative.h"
#include "attn/check_tables.h"
#include "attn/token_range.h"
#include "attn/tree.h"
#include "base/error.h"

static enum pkv_status check_queries(const struct pkv_gqa_args *args)
{
    if (args->cu_seqlens_q != NULL) {
        return check_cumulative(args->cu_seqlens_q, args->batch, args->num_tokens, "cu_seqlens_q");
    }
    if (args->num_tokens != args->batch) {
        return INVALID("num_tokens = %d, not one for each of %d rows, and cu_seqlens_q is NULL",
                       args->num_tokens, args->batch);
    }
    return PKV_OK;
}

/* The functional form adds the same number of tokens to every row. */
static enum pkv_status check_same_lengths(const struct call *call, const struct gqa_row *rows)
{
    const int32_t past = call->past.k != NULL ? call->past.block_size : 0;
    for (int32_t b = 0; b < call->args->batch; b++) {
        if (rows[b].q_len != rows[0].q_len) {
            return INVALID("row %d has %d new tokens, row 0 has %d: DENSE_COPY wants them equal", b,
                           rows[b].q_len, rows[0].q_len);
        }
    }
    const bool writes = call->appends && call->args->num_tokens > 0;
    if (writes && call->present.block_size - rows[0].q_len != past) {
        return INVALID("present.block_size = %d, not %d + %d", call->present.block_size, past,
                       rows[0].q_len);
    }
    return PKV_OK;
}

static void fill_queries(const struct pkv_gqa_args *args, struct gqa_row *rows)
{
    for (int32_t b = 0; b < args->batch; b++) {
        const int32_t begin = args->cu_seqlens_q != NULL ? args->cu_seqlens_q[b] : b;
        const int32_t end = args->cu_seqlens_q != NULL ? args->cu_seqlens_q[b + 1] : b + 1;
        rows[b] = (struct gqa_row){.q_begin = begin, .q_len = end - begin, .block = b};
    }
}

static void fill_lengths(const struct call *call, struct gqa_row *rows)
{
    const struct pkv_gqa_args *args = call->args;
    const int32_t past = call->past.k != NULL ? call->past.block_size : 0;
    for (int32_t b = 0; b < args->batch; b++) {
        if (args->form == PKV_CACHE_NONE) {
            const int32_t *cu = args->cu_seqlens_k;
            rows[b].block = cu != NULL ? cu[b] : rows[b].q_begin;
            rows[b].kv_len = cu != NULL ? cu[b + 1] - cu[b] : rows[b].q_len;
        } else if (args->form == PKV_CACHE_DENSE_COPY) {
            rows[b].kv_len = past + (call->appends ? rows[b].q_len : 0);
            rows[b].copy_src = b;
            rows[b].copy_cells = call->appends ? past : 0;
        } else {
            rows[b].kv_len = args->kv_lens[b];
        }
    }
}

/* Lengths and the capacity behind them. */
static enum pkv_status check_lengths(const struct call *call, struct gqa_row *rows)
{
    const struct pkv_gqa_args *args = call->args;
    const bool is_paged = args->form == PKV_CACHE_PAGED;
    const int64_t capacity = is_paged ? (int64_t)args->max_blocks * call->cache.block_size
                                      : (int64_t)call->cache.block_size;
    const char *name = args->form == PKV_CACHE_NONE ? "length of keys" : "kv_lens";
    for (int32_t b = 0; b < args->batch; b++) {
        const int32_t length = rows[b].kv_len;
        const bool needs_past = call->appends || (call->attends && !args->not_causal);
        if (length < 0) {
            return INVALID("%s[%d] = %d, negative", name, b, length);
        }
        if (needs_past && length < rows[b].q_len) {
            return INVALID("%s[%d] = %d, below the row's %d new tokens", name, b, length,
                           rows[b].q_len);
        }
        if (length > capacity) {
            return INVALID("%s[%d] = %d, above the row's capacity of %lld", name, b, length,
                           (long long)capacity);
        }
        if (args->kept_prefix != NULL) {
            const int64_t kept = args->kept_prefix[args->kept_prefix_count == 1 ? 0 : b];
            rows[b].kept_prefix = kept < length ? (int32_t)kept : length;
        }
    }
    return PKV_OK;
}

static enum pkv_status check_cumulatives(const struct pkv_gqa_args *args)
{
    enum pkv_status status = check_queries(args);
    if (status == PKV_OK && args->cu_seqlens_k != NULL) {
        status = check_cumulative(args->cu_seqlens_k, args->batch, -1, "cu_seqlens_k");
    }
    if (status == PKV_OK && args->cu_bidirectional != NULL) {
        status = check_cumulative(args->cu_bidirectional, args->batch, -1, "cu_bidirectional");
    }
    return status;
}

/* Bidirectional ranges, which the rows then point to. */
static enum pkv_status check_ranges(const struct pkv_gqa_args *args, struct gqa_row *rows)
{
    const int32_t *cu = args->cu_bidirectional;
    if (cu == NULL || cu[args->batch] == 0) {
        return PKV_OK;
    }
    if (args->bidirectional == NULL) {
        return INVALID("bidirectional is NULL and cu_bidirectional[%d] = %d", args->batch,
                       cu[args->batch]);
    }
    for (int32_t b = 0; b < args->batch; b++) {
        struct gqa_row *row = &rows[b];
        row->ranges = args->bidirectional + cu[b];
        row->num_ranges = cu[b + 1] - cu[b];
        const struct token_range_fault fault =
            token_ranges_check(row->ranges, row->num_ranges, gqa_row_past(row), row->kv_len);
        if (fault.text != NULL) {
            const struct pkv_token_range *range = &row->ranges[fault.at];
            return INVALID("row %d: bidirectional[%d] = [%d, %d) %s", b, cu[b] + fault.at,
                           range->begin, range->end, fault.text);
        }
    }
    return PKV_OK;
}

/* One row's parents. */
static enum pkv_status check_tree(const struct pkv_gqa_args *args, const struct gqa_row *row,
                                  int32_t b)
{
    const int32_t *parents = args->parents + row->q_begin;
    const int32_t fault = tree_first_fault(parents, row->q_len);
    if (fault < row->q_len) {
        return INVALID("parents[%d] = %d: token %d of row %d, whose parent is outside [-1, %d)",
                       row->q_begin + fault, parents[fault], fault, b, fault);
    }
    if (tree_is_chain(parents, row->q_len)) {
        return PKV_OK;
    }
    if (row->q_len > PKV_MAX_TREE_TOKENS) {
        return INVALID("parents: row %d is a tree of %d tokens, above %d", b, row->q_len,
                       PKV_MAX_TREE_TOKENS);
    }
    if (row->num_ranges > 0 && row->ranges[row->num_ranges - 1].end > gqa_row_past(row)) {
        return INVALID("parents: row %d is a tree, and a bidirectional range ends at %d, behind "
                       "its %d keys before the call",
                       b, row->ranges[row->num_ranges - 1].end, gqa_row_past(row));
    }
    return args->cu_selected != NULL
               ? refuse(PKV_UNSUPPORTED, "parents: row %d is a tree beside selected blocks", b)
               : PKV_OK;
}

static enum pkv_status check_trees(const struct pkv_gqa_args *args, const struct gqa_row *rows)
{
    enum pkv_status status = PKV_OK;
    for (int32_t b = 0; status == PKV_OK && args->parents != NULL && b < args->batch; b++) {
        status = check_tree(args, &rows[b], b);
    }
    return status;
}

enum pkv_status check_row_queries(const struct call *call, struct gqa_row *rows)
{
    const struct pkv_gqa_args *args = call->args;
    if (args->batch == 0) {
        return PKV_OK;
    }
    enum pkv_status status = check_cumulatives(args);
    if (status != PKV_OK) {
        return status;
    }
    fill_queries(args, rows);
    if (args->form == PKV_CACHE_DENSE_COPY) {
        status = check_same_lengths(call, rows);
    }
    if (status == PKV_OK) {
        fill_lengths(call, rows);
        status = check_lengths(call, rows);
    }
    if (status == PKV_OK) {
        status = check_ranges(args, rows);
    }
    return status == PKV_OK ? check_trees(args, rows) : status;
}

enum pkv_status check_rows(pkv_workspace *workspace, const struct call *call, struct gqa_row *rows)
{
    const struct pkv_gqa_args *args = call->args;
    enum pkv_status status = check_row_queries(call, rows);
    if (status != PKV_OK || args->batch == 0) {
        return status;
    }
    if (args->cu_selected != NULL) {
        const struct selection selection = call_selection(call);
        status = selection_check(&selection, &call->shape, rows);
    }
    if (status == PKV_OK && args->slot_ids != NULL) {
        status = check_slots(workspace, call, rows);
    }
    if (status == PKV_OK && args->form == PKV_CACHE_PAGED) {
        status = check_tables(workspace, call, rows);
    }
    return status;
}
