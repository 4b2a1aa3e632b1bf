/* SPDX-License-Identifier: MIT
 *
 * block_rank.c: pkv_block_rank. The arguments are those of an attention call and are checked by
 * its checks, but for what attention alone needs: block tables have to be sound only where bounds
 * are read. Nothing is written before the last check has passed. */
#include "attn/block_scores.h"
#include "attn/check_args.h"
#include "attn/check_reach.h"
#include "attn/check_rows.h"
#include "attn/check_tables.h"
#include "attn/gqa_plan.h"
#include "attn/overlap.h"
#include "attn/top_blocks.h"
#include "attn/workspace.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/minmax.h"
#include "base/sized.h"
#include "pagedkv/select.h"

/* A call under way. */
struct ranking {
    struct pkv_rank_args rank;
    struct pkv_gqa_args args;
    struct call call;
    struct gqa_row *rows;
    int32_t slot_blocks; /* of a slot or dense row; of a block table, max_blocks */
    int32_t max_candidates;
    size_t scores_stride;
};

static int32_t blocks_of(const struct ranking *r, int32_t num_keys)
{
    return (int32_t)divide_up(num_keys, r->call.shape.selection_size);
}

/* Blocks that a row may list. */
static int32_t num_candidates(const struct ranking *r, int32_t b)
{
    const struct gqa_row *row = &r->rows[b];
    const int32_t newest = r->call.shape.selected_newest;
    if (row->q_len == 0) {
        return 0;
    }
    if (r->rank.num_candidates != NULL) {
        return r->rank.num_candidates[b];
    }
    const int32_t full = max_i32(gqa_row_past(row), 0) / r->call.shape.selection_size;
    return min_i32(full, row->kv_len > newest ? blocks_of(r, row->kv_len - newest) : 0);
}

static enum pkv_status take_args(const pkv_workspace *workspace, const struct pkv_gqa_args *args,
                                 const struct pkv_rank_args *rank, struct ranking *r)
{
    if (workspace == NULL) {
        return INVALID("workspace is NULL");
    }
    enum pkv_status status = sized_read("args", args, cu_bidirectional, &r->args);
    if (status == PKV_OK) {
        status = sized_read("rank", rank, scores_stride, &r->rank);
    }
    if (status != PKV_OK) {
        return status;
    }
    if (r->rank.bounds == NULL) {
        return INVALID("rank.bounds is NULL");
    }
    if (r->rank.selected == NULL || r->rank.cu_selected == NULL) {
        return INVALID("rank.%s is NULL", r->rank.selected == NULL ? "selected" : "cu_selected");
    }
    if (r->rank.max_selected < 1) {
        return INVALID("rank.max_selected = %d, below 1", r->rank.max_selected);
    }
    if (r->rank.scores == NULL && r->rank.scores_stride != 0) {
        return INVALID("rank.scores is NULL with rank.scores_stride = %zu", r->rank.scores_stride);
    }
    /* the lists that attention will get */
    r->args.selected = r->rank.selected;
    r->args.cu_selected = r->rank.cu_selected;
    return PKV_OK;
}

/* What attention takes and this call does not. */
static enum pkv_status check_kind(const struct ranking *r)
{
    const struct gqa_shape *shape = &r->call.shape;
    const enum pkv_cache_form form = r->args.form;
    if (form == PKV_CACHE_NONE || form == PKV_CACHE_DENSE_COPY) {
        return INVALID("form = %d: there is no cache whose blocks have bounds", (int)form);
    }
    if (form == PKV_CACHE_PAGED && shape->selection_size != shape->block_size) {
        return INVALID("selection_size = %d, not past.block_size = %d, whose blocks have bounds",
                       shape->selection_size, shape->block_size);
    }
    if (shape->k_width > BLOCK_SCORES_MAX_WIDTH) {
        return refuse(PKV_UNSUPPORTED, "k_width = %d, above %d", shape->k_width,
                      BLOCK_SCORES_MAX_WIDTH);
    }
    return r->args.q == NULL && r->args.num_tokens > 0 ? INVALID("q is NULL") : PKV_OK;
}

/* The entries of a row's candidates. */
static enum pkv_status check_entries(const struct ranking *r, int32_t b, int32_t count)
{
    const int32_t *table = r->rows[b].table;
    for (int32_t n = 0; n < count; n++) {
        if (table[n] < -1 || table[n] >= r->call.cache.num_blocks) {
            return INVALID("block_table[%d][%d] = %d, outside [0, %d)", b, n, table[n],
                           r->call.cache.num_blocks);
        }
    }
    return PKV_OK;
}

static enum pkv_status check_candidates(struct ranking *r)
{
    const bool is_paged = r->args.form == PKV_CACHE_PAGED;
    const int64_t lists = r->args.batch > 0 ? r->args.num_selected_lists / r->args.batch : 0;
    int64_t most = 0;
    for (int32_t b = 0; b < r->args.batch; b++) {
        const int32_t count = num_candidates(r, b);
        const int32_t blocks = blocks_of(r, r->rows[b].kv_len);
        if (count < 0 || count > blocks) {
            return INVALID("rank.num_candidates[%d] = %d, outside [0, %d], its row's blocks", b,
                           count, blocks);
        }
        if (is_paged) {
            r->rows[b].table = r->args.block_table + (size_t)b * (size_t)r->args.max_blocks;
        }
        const enum pkv_status status = is_paged ? check_entries(r, b, count) : PKV_OK;
        if (status != PKV_OK) {
            return status;
        }
        most += lists * min_i32(count, r->rank.max_selected);
        r->max_candidates = max_i32(r->max_candidates, count);
    }
    return most > INT32_MAX
               ? INVALID("the lists have %lld blocks, which no int32_t counts", (long long)most)
               : PKV_OK;
}

static enum pkv_status check_rows_and_candidates(pkv_workspace *workspace, struct ranking *r)
{
    enum pkv_status status = check_row_queries(&r->call, r->rows);
    if (status == PKV_OK && r->args.slot_ids != NULL) {
        status = check_slots(workspace, &r->call, r->rows);
    }
    if (status == PKV_OK) {
        status = check_candidates(r);
    }
    if (status == PKV_OK) {
        const struct call_reach reach = check_reach_of_rows(&r->call, r->rows);
        status = check_reach(&r->args, &reach);
    }
    return status;
}

static struct overlap_array queries_of(const struct ranking *r)
{
    const size_t element = pkv_dtype_bytes(r->args.dtype);
    return (struct overlap_array){
        .name = "q",
        .base = (uintptr_t)r->args.q,
        .bytes = (size_t)r->args.num_heads * (size_t)r->args.k_width * element,
        .stride = r->call.q_stride * element,
        .count = (size_t)r->args.num_tokens,
    };
}

/* Sizes of what is written, and that it lies over nothing that is read. */
static enum pkv_status check_outputs(struct ranking *r)
{
    const struct gqa_shape *shape = &r->call.shape;
    const size_t lists = (size_t)r->args.num_selected_lists;
    const size_t batch = (size_t)r->args.batch;
    const size_t slots = r->args.form == PKV_CACHE_PAGED ? 1 : (size_t)r->slot_blocks;
    size_t selected = 0, scores = 0, bounds = 0;
    r->scores_stride = r->rank.scores_stride != 0 ? r->rank.scores_stride : (size_t)r->slot_blocks;
    if (r->scores_stride < (size_t)r->max_candidates) {
        return INVALID("rank.scores_stride = %zu, below the %d candidates of a row",
                       r->scores_stride, r->max_candidates);
    }
    if (!checked_mul(lists, (size_t)r->rank.max_selected * sizeof(int32_t), &selected) ||
        !checked_mul(lists, sizeof(float), &scores) ||
        !checked_mul(scores, r->scores_stride, &scores) ||
        !checked_mul((size_t)shape->kv_heads * 2, (size_t)shape->k_width * sizeof(float),
                     &bounds) ||
        !checked_mul(bounds, slots, &bounds) ||
        !checked_mul(bounds, (size_t)r->call.cache.num_blocks, &bounds)) {
        return INVALID("rank: the bytes of its arrays overflow");
    }
    const struct overlap_array arrays[] = {
        overlap_packed("rank.selected", r->rank.selected, selected, 1),
        overlap_packed("rank.cu_selected", r->rank.cu_selected, lists + 1, sizeof(int32_t)),
        overlap_packed("rank.scores", r->rank.scores, scores, 1),
        overlap_packed("rank.bounds", r->rank.bounds, bounds, 1),
        overlap_packed("rank.num_candidates", r->rank.num_candidates, batch, sizeof(int32_t)),
        queries_of(r),
        overlap_packed("cu_seqlens_q", r->args.cu_seqlens_q, batch + 1, sizeof(int32_t)),
        overlap_packed("kv_lens", r->args.kv_lens, batch, sizeof(int32_t)),
        overlap_packed("slot_ids", r->args.slot_ids, batch, sizeof(int32_t)),
        overlap_packed("block_table", r->args.block_table, batch * (size_t)r->args.max_blocks,
                       sizeof(int32_t)),
        overlap_packed("position_ids", r->args.position_ids, (size_t)r->args.num_tokens,
                       sizeof(int64_t)),
    };
    enum pkv_status status = PKV_OK;
    for (size_t i = 0; i < 3; i++) { /* those that are written */
        for (size_t j = i + 1; status == PKV_OK && j < sizeof arrays / sizeof arrays[0]; j++) {
            status = overlap_check(&arrays[i], &arrays[j]);
        }
    }
    return status;
}

/* Scores row by row, and the lists of the best. */
static void rank_rows(const struct ranking *r, const struct block_scores *s)
{
    int32_t *cu = r->rank.cu_selected;
    int32_t *to = r->rank.selected;
    float *scores = r->rank.scores;
    cu[0] = 0;
    for (int32_t b = 0; b < r->args.batch; b++) {
        const int32_t count = num_candidates(r, b);
        const size_t stride = scores != NULL ? r->scores_stride : (size_t)count;
        float *of_row = scores != NULL ? scores : s->scores;
        block_scores_row(s, &r->rows[b], count, of_row, stride);
        for (int32_t i = 0; i < s->num_lists; i++, cu++) {
            cu[1] = cu[0] + top_blocks(of_row + (size_t)i * stride, count, r->rank.max_selected,
                                       to + cu[0]);
        }
        scores = scores != NULL ? scores + (size_t)s->num_lists * stride : NULL;
    }
}

/* Scratch, and what the scores take of a layer. */
static enum pkv_status rank_layer(pkv_workspace *workspace, const struct ranking *r)
{
    const struct gqa_layer layer = {
        .dtype = r->args.dtype,
        .num_heads = r->args.num_heads,
        .q = r->args.q,
        .q_stride = r->call.q_stride,
        .position_ids = r->args.position_ids,
    };
    const struct run run = {
        .plan = workspace->plan,
        .layer = &layer,
        .kernels = workspace->kernels,
        .constants = &r->args.constants,
        .heads_per_kv = r->args.num_heads / r->args.kv_heads,
    };
    struct block_scores scores = {
        .run = &run,
        .bounds = r->rank.bounds,
        .slot_blocks = r->slot_blocks,
        .num_lists = r->args.batch > 0 ? r->args.num_selected_lists / r->args.batch : 1,
    };
    const size_t kept = r->rank.scores == NULL ? (size_t)r->max_candidates : 0;
    size_t bytes = 0;
    workspace->plan->shape = r->call.shape;
    if (!block_scores_carve(&scores, kept, NULL, &bytes) ||
        !buffer_grow(&workspace->hooks, &workspace->block_scores, bytes)) {
        return refuse(PKV_NO_MEMORY, "no memory for the scores of %d blocks", r->max_candidates);
    }
    (void)block_scores_carve(&scores, kept, workspace->block_scores.memory, &bytes);
    rank_rows(r, &scores);
    return PKV_OK;
}

enum pkv_status pkv_block_rank(pkv_workspace *workspace, const struct pkv_gqa_args *args,
                               const struct pkv_rank_args *rank)
{
    struct ranking r = {.max_candidates = 0};
    enum pkv_status status = take_args(workspace, args, rank, &r);
    if (status == PKV_OK) {
        status = check_args(&r.args, CALL_GQA, &r.call);
    }
    if (status == PKV_OK) {
        status = check_kind(&r);
    }
    if (status != PKV_OK) {
        return status;
    }
    r.slot_blocks =
        r.args.form == PKV_CACHE_PAGED ? r.args.max_blocks : blocks_of(&r, r.call.shape.block_size);
    r.rows = gqa_plan_rows(workspace, workspace->plan, r.args.batch);
    if (r.rows == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for %d rows", r.args.batch);
    }
    status = check_rows_and_candidates(workspace, &r);
    if (status == PKV_OK) {
        status = check_outputs(&r);
    }
    return status == PKV_OK ? rank_layer(workspace, &r) : status;
}
