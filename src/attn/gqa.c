/* SPDX-License-Identifier: MIT
 *
 * gqa.c: the raw calls of attn.h. Each is validation, plan, run: pkv_gqa does all three,
 * pkv_gqa_plan the first two, and a run by a plan checks again what it may bring anew. Nothing is
 * written before the last check has passed. */
#include <string.h>

#include "attn/call.h"
#include "attn/check_args.h"
#include "attn/check_pointers.h"
#include "attn/check_reach.h"
#include "attn/check_rows.h"
#include "attn/gqa_plan.h"
#include "attn/gqa_run.h"
#include "attn/tree.h"
#include "attn/workspace.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/sized.h"

/* Checks the handles and reads what the caller passes into *args. */
static enum pkv_status take_args(const pkv_workspace *workspace, const pkv_plan *plan,
                                 const struct pkv_gqa_args *given, struct pkv_gqa_args *args)
{
    if (workspace == NULL || plan == NULL) {
        return INVALID("%s is NULL", workspace == NULL ? "workspace" : "plan");
    }
    if (plan->workspace != workspace) {
        return INVALID("plan belongs to another workspace");
    }
    return sized_read("args", given, cu_bidirectional, args);
}

/* Where a cache-less call stores keys that it rotates or norms. */
static bool grow_new_keys(pkv_workspace *workspace, const struct call *call)
{
    const struct pkv_gqa_args *args = call->args;
    const int32_t tokens =
        args->cu_seqlens_k != NULL ? args->cu_seqlens_k[args->batch] : args->num_tokens;
    size_t bytes = 0;
    return checked_mul((size_t)tokens, (size_t)args->kv_heads * (size_t)args->k_width, &bytes) &&
           checked_mul(bytes, pkv_dtype_bytes(args->dtype), &bytes) &&
           buffer_grow(&workspace->hooks, &workspace->new_keys, bytes);
}

static struct call_planned planned_of(const struct call *call, const struct call_reach *reach)
{
    const struct pkv_gqa_args *args = call->args;
    return (struct call_planned){
        .form = args->form,
        .dtype = args->dtype,
        .num_heads = args->num_heads,
        .num_tokens = args->num_tokens,
        .cache = call->cache,
        .past = call->past,
        .reach = *reach,
        .has_k = args->k != NULL,
        .all_new = call->shape.all_new,
        .has_mask = call->shape.has_mask,
        .sliding_window = call->shape.sliding_window,
        .selection_size = call->shape.selection_size,
        .selected_newest = call->shape.selected_newest,
        .selects_by_head = call->shape.selects_by_head,
        .not_causal = call->shape.not_causal,
        .v_in_k = args->v_in_k,
    };
}

/* Rows keep bidirectional ranges of the plan's own: a plan does not refer to the caller's list. */
static bool copy_ranges(const struct pkv_gqa_args *args, pkv_plan *plan)
{
    struct gqa_row *rows = plan->rows.memory;
    const int32_t *cu = args->cu_bidirectional;
    const int32_t count = cu != NULL && args->batch > 0 ? cu[args->batch] : 0;
    const size_t bytes = (size_t)count * sizeof *args->bidirectional;
    if (count == 0) {
        return true;
    }
    if (!buffer_grow(plan->hooks, &plan->ranges, bytes)) {
        return false;
    }
    memcpy(plan->ranges.memory, args->bidirectional, bytes);
    for (int32_t b = 0; b < args->batch; b++) {
        rows[b].ranges = (const struct pkv_token_range *)plan->ranges.memory + cu[b];
    }
    return true;
}

static enum pkv_status plan_call(pkv_workspace *workspace, const struct call *call, pkv_plan *plan)
{
    const struct pkv_gqa_args *args = call->args;
    struct gqa_row *rows = gqa_plan_rows(workspace, plan, args->batch);
    if (rows == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for %d rows", args->batch);
    }
    enum pkv_status status = check_rows(workspace, call, rows);
    if (status != PKV_OK) {
        return status;
    }
    if (args->parents != NULL && !tree_fill_rows(plan, &call->shape, args->parents)) {
        return refuse(PKV_NO_MEMORY, "no memory for trees of drafts");
    }
    const struct call_reach reach = check_reach_of_rows(call, rows);
    plan->call = planned_of(call, &reach);
    status = check_reach(args, &reach);
    if (status == PKV_OK) {
        status = check_call_pointers(call);
    }
    if (status == PKV_OK && call->shape.all_new && !grow_new_keys(workspace, call)) {
        status = refuse(PKV_NO_MEMORY, "no memory for the keys of a cache-less call");
    }
    if (status == PKV_OK && !copy_ranges(args, plan)) {
        status = refuse(PKV_NO_MEMORY, "no memory for bidirectional ranges");
    }
    if (status == PKV_OK && args->cu_selected != NULL && args->batch > 0) {
        const struct selection selection = call_selection(call);
        status = selection_copy(&selection, plan);
    }
    return status == PKV_OK ? gqa_plan_split(workspace, plan, &call->shape) : status;
}

/* The view of a call's own keys and values is only read. */
static void *unconst(const void *pointer)
{
    union {
        const void *in;
        void *out;
    } p = {pointer};
    return p.out;
}

static struct gqa_layer_mask mask_of(const struct pkv_gqa_args *args)
{
    const size_t keys = (size_t)args->mask_keys;
    const size_t head = (size_t)args->mask_queries * keys;
    return (struct gqa_layer_mask){
        .entries = args->attn_mask,
        .dtype = args->mask_dtype,
        .row_stride = args->mask_batch > 1 ? (size_t)args->mask_heads * head : 0,
        .head_stride = args->mask_heads > 1 ? head : 0,
        .query_stride = keys,
    };
}

typedef void layer_function(pkv_workspace *workspace, const pkv_plan *plan,
                            const struct gqa_layer *layer);

/* Passes the call as a layer to gqa_run_layer or gqa_start_layer. */
static void run_call(pkv_workspace *workspace, const struct call *call, const pkv_plan *plan,
                     layer_function *function)
{
    const struct pkv_gqa_args *args = call->args;
    workspace->running = NULL;
    if (args->num_tokens == 0) {
        return;
    }
    const struct gqa_layer_mask mask = mask_of(args);
    struct gqa_layer layer = {
        .dtype = args->dtype,
        .num_heads = args->num_heads,
        .q = args->q,
        .k = call->appends || call->shape.all_new ? args->k : NULL,
        .v = call->appends ? args->v : NULL,
        .out = args->out,
        .lse = args->lse,
        .q_stride = call->q_stride,
        .k_stride = call->k_stride,
        .v_stride = call->v_stride,
        .out_stride = call->out_stride,
        .cache = call->cache,
        .copy_from = args->form == PKV_CACHE_DENSE_COPY ? &call->past : NULL,
        .constants = &args->constants,
        .position_ids = args->position_ids,
        .mask = args->attn_mask != NULL ? &mask : NULL,
    };
    if (args->form == PKV_CACHE_NONE) {
        layer.cache.k = call->shape.all_new ? workspace->new_keys.memory : unconst(args->k);
        layer.cache.v = unconst(args->v);
    }
    function(workspace, plan, &layer);
}

/* Everything at once, by the workspace's own plan. */
static enum pkv_status call_now(pkv_workspace *workspace, const struct pkv_gqa_args *given,
                                enum call_kind kind)
{
    struct call call;
    struct pkv_gqa_args args;
    if (workspace == NULL) {
        return INVALID("workspace is NULL");
    }
    enum pkv_status status = take_args(workspace, workspace->plan, given, &args);
    if (status == PKV_OK) {
        status = check_args(&args, kind, &call);
    }
    if (status == PKV_OK) {
        status = plan_call(workspace, &call, workspace->plan);
    }
    if (status == PKV_OK) {
        run_call(workspace, &call, workspace->plan, gqa_run_layer);
    }
    return status;
}

enum pkv_status pkv_gqa(pkv_workspace *workspace, const struct pkv_gqa_args *args)
{
    return call_now(workspace, args, CALL_GQA);
}

enum pkv_status pkv_append(pkv_workspace *workspace, const struct pkv_gqa_args *args)
{
    return call_now(workspace, args, CALL_APPEND);
}

enum pkv_status pkv_attention_over_cache(pkv_workspace *workspace, const struct pkv_gqa_args *args)
{
    return call_now(workspace, args, CALL_READ_ONLY);
}

enum pkv_status pkv_gqa_plan(pkv_workspace *workspace, const struct pkv_gqa_args *given,
                             pkv_plan *plan)
{
    struct call call;
    struct pkv_gqa_args args;
    enum pkv_status status = take_args(workspace, plan, given, &args);
    if (status != PKV_OK) {
        return status;
    }
    plan->ready = false;
    status = check_args(&args, CALL_GQA, &call);
    return status == PKV_OK ? plan_call(workspace, &call, plan) : status;
}

static bool same_geometry(const struct pkv_kv_view *a, const struct pkv_kv_view *b)
{
    return a->k_dtype == b->k_dtype && a->v_dtype == b->v_dtype && a->num_blocks == b->num_blocks &&
           a->kv_heads == b->kv_heads && a->block_size == b->block_size &&
           a->k_width == b->k_width && a->v_width == b->v_width;
}

static bool same_selection(const struct gqa_shape *shape, const struct call_planned *planned)
{
    return shape->selection_size == planned->selection_size &&
           shape->selected_newest == planned->selected_newest &&
           shape->selects_by_head == planned->selects_by_head;
}

/* What a plan has fixed. */
static bool is_as_planned(const struct call *call, const pkv_plan *plan)
{
    const struct pkv_gqa_args *args = call->args;
    const struct call_planned *planned = &plan->call;
    return args->form == planned->form && args->dtype == planned->dtype &&
           args->num_heads == planned->num_heads && args->num_tokens == planned->num_tokens &&
           args->batch == plan->num_rows && (args->k != NULL) == planned->has_k &&
           args->v_in_k == planned->v_in_k && call->shape.all_new == planned->all_new &&
           call->shape.has_mask == planned->has_mask &&
           call->shape.sliding_window == planned->sliding_window &&
           call->shape.not_causal == planned->not_causal && same_selection(&call->shape, planned) &&
           same_geometry(&call->cache, &planned->cache) &&
           same_geometry(&call->past, &planned->past) &&
           (call->past.k == NULL) == (planned->past.k == NULL);
}

/* A planned call, checked again in what a run may change. */
static enum pkv_status run_planned(pkv_workspace *workspace, const struct pkv_gqa_args *given,
                                   const pkv_plan *plan, layer_function *function)
{
    struct call call;
    struct pkv_gqa_args args;
    enum pkv_status status = take_args(workspace, plan, given, &args);
    if (status != PKV_OK) {
        return status;
    }
    if (!plan->ready) {
        return INVALID("plan is empty: it was refused or never made");
    }
    status = check_args(&args, CALL_GQA, &call);
    if (status != PKV_OK) {
        return status;
    }
    if (!is_as_planned(&call, plan)) {
        return INVALID(
            "form, dtype, geometry, window, selection, or presence of k and attn_mask are "
            "not as planned");
    }
    status = check_reach(&args, &plan->call.reach);
    if (status == PKV_OK) {
        status = check_call_pointers(&call);
    }
    if (status == PKV_OK) {
        run_call(workspace, &call, plan, function);
    }
    return status;
}

enum pkv_status pkv_gqa_run(pkv_workspace *workspace, const struct pkv_gqa_args *args,
                            const pkv_plan *plan)
{
    return run_planned(workspace, args, plan, gqa_run_layer);
}

enum pkv_status pkv_gqa_start(pkv_workspace *workspace, const struct pkv_gqa_args *args,
                              const pkv_plan *plan)
{
    return run_planned(workspace, args, plan, gqa_start_layer);
}

int32_t pkv_gqa_num_tasks(const pkv_workspace *workspace, enum pkv_phase phase)
{
    return workspace != NULL ? gqa_num_tasks(workspace, phase) : 0;
}

enum pkv_status pkv_gqa_run_task(pkv_workspace *workspace, enum pkv_phase phase, int32_t task,
                                 int worker)
{
    if (workspace == NULL) {
        return INVALID("workspace is NULL");
    }
    const enum pkv_status status =
        gqa_check_task(workspace, phase, gqa_num_tasks(workspace, phase), task, worker);
    if (status == PKV_OK) {
        gqa_run_task(workspace, phase, task, worker);
    }
    return status;
}
