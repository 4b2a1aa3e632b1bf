/* SPDX-License-Identifier: MIT
 *
 * check_rows.c: lengths, slots and block tables of a raw call, in O(batch + table entries), and the
 * rows of its plan. Nothing here looks at channels. */
#include <string.h>

#include "attn/check.h"
#include "attn/visible.h"
#include "base/error.h"

#define INVALID(...) refuse(PKV_INVALID_ARGUMENT, __VA_ARGS__)

/* cumulative [batch + 1] lengths: 0 first, never falling, total last (total < 0: any). */
static enum pkv_status check_cumulative(const int32_t *cumulative, int32_t batch, int32_t total,
                                        const char *name)
{
    if (cumulative[0] != 0) {
        return INVALID("%s[0] = %d, not 0", name, cumulative[0]);
    }
    for (int32_t b = 0; b < batch; b++) {
        if (cumulative[b + 1] < cumulative[b]) {
            return INVALID("%s[%d] = %d, below the entry before it, %d", name, b + 1,
                           cumulative[b + 1], cumulative[b]);
        }
    }
    if (total >= 0 && cumulative[batch] != total) {
        return INVALID("%s[%d] = %d, not the %d tokens of the call", name, batch, cumulative[batch],
                       total);
    }
    return PKV_OK;
}

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

/* Stamps with room for count ids and num_rows epochs ahead of the wrap. */
static bool stamps_for(pkv_workspace *workspace, int32_t count, int32_t num_rows,
                       struct block_stamps *stamps)
{
    if (!buffer_grow(&workspace->hooks, &workspace->stamps, (size_t)count * sizeof(uint32_t))) {
        return false;
    }
    if (workspace->stamps_epoch > UINT32_MAX - (uint32_t)num_rows - 1) {
        memset(workspace->stamps.memory, 0, workspace->stamps.bytes);
        workspace->stamps_epoch = 0;
    }
    *stamps = (struct block_stamps){workspace->stamps.memory, count, workspace->stamps_epoch};
    return true;
}

/* A slot list is checked like one row of a table, except that -1 is no slot. */
static enum pkv_status check_slots(pkv_workspace *workspace, const struct call *call,
                                   struct gqa_row *rows)
{
    const struct pkv_gqa_args *args = call->args;
    struct block_stamps stamps;
    if (!stamps_for(workspace, call->cache.num_blocks, args->batch, &stamps)) {
        return refuse(PKV_NO_MEMORY, "no memory for %d slot stamps", call->cache.num_blocks);
    }
    stamps.epoch = ++workspace->stamps_epoch;
    for (int32_t b = 0; b < args->batch; b++) {
        const int32_t slot = args->slot_ids[b];
        if (slot < 0 || slot >= call->cache.num_blocks) {
            return INVALID("slot_ids[%d] = %d, outside [0, %d)", b, slot, call->cache.num_blocks);
        }
        if (stamps.stamps[slot] == stamps.epoch) {
            return INVALID("slot_ids[%d] = %d, named twice", b, slot);
        }
        stamps.stamps[slot] = stamps.epoch;
        rows[b].block = slot;
    }
    return PKV_OK;
}

/* No -1 in blocks that hold a key of [from, to). */
static enum pkv_status check_mapped(const struct gqa_row *row, int32_t b, int32_t block_size,
                                    int32_t from, int32_t to)
{
    for (int32_t i = from / block_size; from < to && i <= (to - 1) / block_size; i++) {
        if (row->table[i] == -1) {
            return INVALID("block_table[%d][%d] = -1, but keys of it are needed", b, i);
        }
    }
    return PKV_OK;
}

static enum pkv_status check_needed_blocks(const struct call *call, const struct gqa_row *row,
                                           int32_t b)
{
    const int32_t block_size = call->cache.block_size;
    enum pkv_status status = PKV_OK;
    if (call->appends) {
        status = check_mapped(row, b, block_size, row->kv_len - row->q_len, row->kv_len);
    }
    if (status == PKV_OK && call->attends && row->q_len > 0) {
        const struct visible seen = visible_to(row, &call->shape, 0, row->q_len);
        status = check_mapped(row, b, block_size, 0, seen.prefix);
        if (status == PKV_OK) {
            status = check_mapped(row, b, block_size, seen.first, seen.end);
        }
    }
    return status;
}

/* Each block that the call writes gets its row; a second writer refuses. */
static enum pkv_status stamp_writers(const struct call *call, const struct gqa_row *rows,
                                     struct block_writer *writers, uint32_t epoch)
{
    const int32_t block_size = call->cache.block_size;
    for (int32_t b = 0; b < call->args->batch; b++) {
        const int32_t past = rows[b].kv_len - rows[b].q_len;
        for (int32_t i = past / block_size;
             rows[b].q_len > 0 && i <= (rows[b].kv_len - 1) / block_size; i++) {
            struct block_writer *writer = &writers[rows[b].table[i]];
            if (writer->epoch == epoch) {
                return INVALID("block_table[%d][%d] = %d, written by row %d as well", b, i,
                               rows[b].table[i], writer->row);
            }
            *writer = (struct block_writer){epoch, b};
        }
    }
    return PKV_OK;
}

/* A block that one row writes stands in no other row. */
static enum pkv_status check_writers(pkv_workspace *workspace, const struct call *call,
                                     const struct gqa_row *rows)
{
    const struct pkv_gqa_args *args = call->args;
    const size_t bytes = (size_t)call->cache.num_blocks * sizeof(struct block_writer);
    if (!buffer_grow(&workspace->hooks, &workspace->writers, bytes)) {
        return refuse(PKV_NO_MEMORY, "no memory for %d block stamps", call->cache.num_blocks);
    }
    struct block_writer *writers = workspace->writers.memory;
    if (++workspace->writers_epoch == 0) { /* wrapped: old stamps would look new */
        memset(writers, 0, workspace->writers.bytes);
        workspace->writers_epoch = 1;
    }
    const uint32_t epoch = workspace->writers_epoch;
    const enum pkv_status status = stamp_writers(call, rows, writers, epoch);
    for (int32_t b = 0; status == PKV_OK && b < args->batch; b++) {
        for (int32_t i = 0; i < args->max_blocks; i++) {
            const int32_t id = rows[b].table[i];
            if (id >= 0 && writers[id].epoch == epoch && writers[id].row != b) {
                return INVALID("block_table[%d][%d] = %d, a block that row %d writes", b, i, id,
                               writers[id].row);
            }
        }
    }
    return status;
}

static enum pkv_status check_tables(pkv_workspace *workspace, const struct call *call,
                                    struct gqa_row *rows)
{
    const struct pkv_gqa_args *args = call->args;
    struct block_stamps stamps;
    if (!stamps_for(workspace, call->cache.num_blocks, args->batch, &stamps)) {
        return refuse(PKV_NO_MEMORY, "no memory for %d block stamps", call->cache.num_blocks);
    }
    enum pkv_status status = PKV_OK;
    for (int32_t b = 0; status == PKV_OK && b < args->batch; b++) {
        rows[b].table = args->block_table + (size_t)b * (size_t)args->max_blocks;
        status = block_table_check_row(&stamps, rows[b].table, args->max_blocks, b);
    }
    workspace->stamps_epoch = stamps.epoch;
    for (int32_t b = 0; status == PKV_OK && b < args->batch; b++) {
        status = check_needed_blocks(call, &rows[b], b);
    }
    return status == PKV_OK && call->appends ? check_writers(workspace, call, rows) : status;
}

/* What no plan can hold of a run's ids: other ones may be given with every run. O(tokens). */
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

/* Positions index the planes, unless ids do. */
static enum pkv_status check_positions(const struct pkv_gqa_args *args,
                                       const struct call_extent *extent)
{
    if (args->position_ids != NULL && args->form == PKV_CACHE_NONE && extent->is_uneven) {
        return INVALID(
            "position_ids with form = none: a row has other numbers of queries and keys");
    }
    if (args->position_ids != NULL) {
        return check_position_ids(args);
    }
    if (extent->has_negative) {
        return INVALID("a row has fewer keys than queries: its first position would be negative");
    }
    if (extent->position >= args->constants.rope_positions) {
        return INVALID("position %lld, but rope_positions = %lld", (long long)extent->position,
                       (long long)args->constants.rope_positions);
    }
    return PKV_OK;
}

enum pkv_status check_extent(const struct pkv_gqa_args *args, const struct call_extent *extent)
{
    if (args->attn_mask != NULL && args->mask_queries < extent->q_len) {
        return INVALID("attn_mask: mask_queries = %d, but a row has %d", args->mask_queries,
                       extent->q_len);
    }
    if (args->attn_mask != NULL && args->mask_keys < extent->kv_len) {
        return INVALID("attn_mask: mask_keys = %d, but a row has %d", args->mask_keys,
                       extent->kv_len);
    }
    return args->constants.rope_cos != NULL ? check_positions(args, extent) : PKV_OK;
}

/* How far rows reach, whatever this call's options are: a run may bring others. */
static enum pkv_status check_reach(const struct call *call, const struct gqa_row *rows,
                                   struct call_extent *extent)
{
    *extent = (struct call_extent){.position = -1};
    for (int32_t b = 0; b < call->args->batch; b++) {
        if (rows[b].q_len > 0) {
            extent->q_len = max_i32(extent->q_len, rows[b].q_len);
            extent->kv_len = max_i32(extent->kv_len, rows[b].kv_len);
            extent->has_negative = extent->has_negative || rows[b].kv_len < rows[b].q_len;
        }
        extent->is_uneven = extent->is_uneven || rows[b].kv_len != rows[b].q_len;
        if (rows[b].q_len > 0 || call->args->form == PKV_CACHE_NONE) {
            const int64_t last = (int64_t)rows[b].kv_len - 1;
            extent->position = extent->position > last ? extent->position : last;
        }
    }
    return check_extent(call->args, extent);
}

static enum pkv_status check_cumulatives(const struct pkv_gqa_args *args)
{
    const enum pkv_status status = check_queries(args);
    if (status != PKV_OK || args->cu_seqlens_k == NULL) {
        return status;
    }
    return check_cumulative(args->cu_seqlens_k, args->batch, -1, "cu_seqlens_k");
}

enum pkv_status check_rows(pkv_workspace *workspace, const struct call *call, struct gqa_row *rows,
                           struct call_extent *extent)
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
    if (status == PKV_OK && args->slot_ids != NULL) {
        status = check_slots(workspace, call, rows);
    }
    if (status == PKV_OK && args->form == PKV_CACHE_PAGED) {
        status = check_tables(workspace, call, rows);
    }
    return status == PKV_OK ? check_reach(call, rows, extent) : status;
}
