/* SPDX-License-Identifier: MIT
 *
 * block_rank.c: pkv_block_rank. The arguments are those of an attention call and are checked by
 * its checks, but for what attention alone needs: block tables have to be sound only where bounds
 * are read. Nothing is written before the last check has passed.
 *
 * Tasks are ranges of a row's blocks, then lists. No task reads what another of its phase writes,
 * and a score is of one block, so that bits do not depend on how rows are cut. */
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

/* Tasks that a thread should have to choose from, as long ones that hold the same queries. */
#define TASKS_PER_THREAD 8

/* What one thread does, about: floats of bounds in a nanosecond, and a candidate of a list. */
#define FLOATS_PER_NS 8
#define CHOOSE_NS 3

/* A call under way. */
struct ranking {
    struct pkv_rank_args rank;
    struct pkv_gqa_args args;
    struct call call;
    struct gqa_row *rows;
    int32_t slot_blocks; /* of a slot or dense row; of a block table, max_blocks */
    int32_t max_candidates;
    size_t scores_stride;

    struct block_scores scores;
    int32_t num_workers, task_blocks, num_tasks;
    size_t kept_scores;            /* of all lists, where the caller wants none */
    float *kept;                   /* [kept_scores] */
    struct block_range *tasks;     /* [num_tasks] */
    struct block_range *lists;     /* [batch], each a row's candidates */
    struct block_scratch *scratch; /* [num_workers] */
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

/* Threads that have thread_ns of work each, as a plan counts it, and no more than there are. */
static int32_t worth_threads(const pkv_workspace *workspace, int64_t ns)
{
    const int64_t worth = max_i64(ns / workspace->thread_ns, 1);
    return (int32_t)min_i64(worth, workspace->team.num_threads);
}

/* Bounds that a row reads: its candidates, with each of its queries. */
static int64_t num_reads(const struct ranking *r, int32_t b)
{
    return (int64_t)num_candidates(r, b) * r->rows[b].q_len;
}

/* How many threads, and how many blocks a task takes: for one thread whole rows. */
static void plan_tasks(const pkv_workspace *workspace, struct ranking *r)
{
    const int64_t block_floats = 2 * (int64_t)r->call.shape.kv_heads * r->call.shape.k_width;
    int64_t reads = 0, blocks = 0;
    for (int32_t b = 0; b < r->args.batch; b++) {
        reads = capped_add(reads, num_reads(r, b));
        blocks += num_candidates(r, b);
    }
    r->num_workers = worth_threads(workspace, capped_mul(reads, block_floats) / FLOATS_PER_NS);
    r->task_blocks =
        r->num_workers == 1
            ? INT32_MAX
            : (int32_t)min_i64(divide_up(blocks, (int64_t)r->num_workers * TASKS_PER_THREAD),
                               INT32_MAX);
    for (int32_t b = 0; b < r->args.batch; b++) {
        r->num_tasks += (int32_t)divide_up(num_candidates(r, b), r->task_blocks);
    }
}

/* Cuts what the tasks need from memory. */
static void carve_tasks(struct ranking *r, struct carver *carver)
{
    const size_t workers = (size_t)r->num_workers;
    r->tasks = carve(carver, (size_t)r->num_tasks, sizeof r->tasks[0]);
    r->scratch = carve(carver, workers, sizeof r->scratch[0]);
    r->lists = carve(carver, (size_t)r->args.batch, sizeof r->lists[0]);
    for (size_t w = 0; w < workers; w++) {
        struct block_scratch scratch;
        block_scores_carve(&r->scores, carver, &scratch);
        if (carver->base != NULL) {
            r->scratch[w] = scratch;
        }
    }
    r->kept = carve(carver, r->rank.scores == NULL ? r->kept_scores : 0, sizeof(float));
}

static void fill_tasks(struct ranking *r)
{
    const size_t lists = (size_t)r->scores.num_lists;
    struct block_range *task = r->tasks;
    float *kept = r->kept;
    for (int32_t b = 0; b < r->args.batch; b++) {
        const int32_t count = num_candidates(r, b);
        struct block_range range = {.row = b, .scores = kept, .stride = (size_t)count};
        if (r->rank.scores != NULL) {
            range.scores = r->rank.scores + (size_t)b * lists * r->scores_stride;
            range.stride = r->scores_stride;
        } else {
            kept += lists * range.stride;
        }
        r->lists[b] = range;
        while (range.end < count) {
            range.first = range.end;
            range.end = count - range.end > r->task_blocks ? range.end + r->task_blocks : count;
            *task++ = range;
        }
        r->lists[b].end = count;
    }
}

static void score_task(const void *context, int32_t task, int worker)
{
    const struct ranking *r = context;
    block_scores_range(&r->scores, &r->tasks[task], &r->scratch[worker]);
}

static void choose_task(const void *context, int32_t list, int worker)
{
    const struct ranking *r = context;
    const struct block_range *of = &r->lists[list / r->scores.num_lists];
    const size_t in_row = (size_t)(list % r->scores.num_lists);
    (void)worker;
    (void)top_blocks(of->scores + in_row * of->stride, of->end, r->rank.max_selected,
                     r->rank.selected + r->rank.cu_selected[list]);
}

/* Where each list begins: blocks that are mapped are chosen, as long as there is room. */
static void number_lists(const struct ranking *r)
{
    int32_t *cu = r->rank.cu_selected;
    cu[0] = 0;
    for (int32_t b = 0; b < r->args.batch; b++) {
        const int32_t *table = r->rows[b].table;
        int32_t count = r->lists[b].end;
        for (int32_t n = 0; table != NULL && n < r->lists[b].end; n++) {
            count -= table[n] < 0;
        }
        for (int32_t i = 0; i < r->scores.num_lists; i++, cu++) {
            cu[1] = cu[0] + min_i32(count, r->rank.max_selected);
        }
    }
}

/* Scores by ranges of blocks, then the lists of the best. */
static void run_tasks(pkv_workspace *workspace, const struct ranking *r)
{
    const int32_t lists = r->args.num_selected_lists;
    const int64_t choose_ns = capped_mul(lists, (int64_t)r->max_candidates * CHOOSE_NS);
    const struct team_deal score = {.num_tasks = r->num_tasks, .num_workers = r->num_workers};
    const struct team_deal choose = {
        .num_tasks = lists,
        .num_workers = min_i32(r->num_workers, worth_threads(workspace, choose_ns))};
    if (r->num_tasks > 0) {
        team_run(&workspace->team, &score, score_task, r);
    }
    number_lists(r);
    if (lists > 0) {
        team_run(&workspace->team, &choose, choose_task, r);
    }
}

/* Memory for the tasks, and the tasks. */
static enum pkv_status rank_run(pkv_workspace *workspace, struct ranking *r)
{
    struct carver carver = {.base = NULL};
    for (int32_t b = 0; b < r->args.batch; b++) {
        r->kept_scores += (size_t)num_candidates(r, b) * (size_t)r->scores.num_lists;
    }
    plan_tasks(workspace, r);
    carve_tasks(r, &carver);
    if (carver.overflows ||
        !buffer_grow(&workspace->hooks, &workspace->block_scores, carver.used)) {
        return refuse(PKV_NO_MEMORY, "no memory for the scores of %d blocks", r->max_candidates);
    }
    carver = (struct carver){.base = workspace->block_scores.memory};
    carve_tasks(r, &carver);
    fill_tasks(r);
    run_tasks(workspace, r);
    return PKV_OK;
}

/* What the scores take of a layer. */
static enum pkv_status rank_layer(pkv_workspace *workspace, struct ranking *r)
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
        .rows = r->rows,
        .kernels = workspace->kernels,
        .constants = &r->args.constants,
        .heads_per_kv = r->args.num_heads / r->args.kv_heads,
    };
    r->scores = (struct block_scores){
        .run = &run,
        .bounds = r->rank.bounds,
        .slot_blocks = r->slot_blocks,
        .num_lists = r->args.batch > 0 ? r->args.num_selected_lists / r->args.batch : 1,
    };
    workspace->plan->shape = r->call.shape;
    block_scores_start(&r->scores);
    const enum pkv_status status = rank_run(workspace, r);
    r->scores.run = NULL;
    return status;
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
