/* SPDX-License-Identifier: MIT
 *
 * gqa_run.c: the phases of a layer: which tasks each has, and what a task does. The layer is copied
 * into the workspace, so that tasks may run after the call that started it has returned. */
#include "attn/gqa_run.h"

#include <math.h>

#include "attn/append.h"
#include "attn/attend.h"
#include "attn/partial.h"
#include "attn/run.h"
#include "attn/workspace.h"
#include "base/error.h"

/* A task of a phase, in the scratch of the worker that runs it. */
typedef void task_function(const struct run *run, int32_t task, float *scratch);

/* Appends of one row (an index into appends) for one KV head. */
static void append_task(const struct run *run, int32_t task, float *scratch)
{
    const int32_t heads = run->plan->shape.kv_heads;
    const int32_t *appends = run->plan->appends.memory;
    append_row(run, &run->rows[appends[task / heads]], task % heads, scratch);
}

/* The same for calls that only append, where every row has its tasks. */
static void append_only_task(const struct run *run, int32_t task, float *scratch)
{
    const int32_t heads = run->plan->shape.kv_heads;
    append_row(run, &run->rows[task / heads], task % heads, scratch);
}

static void attend_task(const struct run *run, int32_t task, float *scratch)
{
    const struct plan_task *tasks = run->plan->tasks.memory;
    if (tasks[task].num_shared_rows > 0) {
        attend_shared(run, &tasks[task], scratch);
    } else {
        attend_own(run, &tasks[task], scratch);
    }
}

static void merge_task(const struct run *run, int32_t task, float *scratch)
{
    const int32_t heads = gqa_shape_heads_alike(&run->plan->shape);
    const struct plan_merge *merges = run->plan->merges.memory;
    const struct plan_merge *merge = &merges[task / heads];
    partial_merge(run, merge, merge->head + task % heads, scratch);
}

/* Whether q is packed into bf16 parts, and how many carry something: the second is zero throughout
 * when q comes as bf16 and nothing changes it. Decided by the layer alone, so that all its rows
 * share one arithmetic; never where the output is f32. */
static int packed_parts(const struct run *run)
{
    const struct gqa_layer *layer = run->layer;
    const struct pkv_attn_constants *c = run->constants;
    const bool has_pairs = layer->cache.k_dtype == PKV_BF16;
    if (run->kernels->pack == NULL || layer->dtype == PKV_F32 || !has_pairs) {
        return 0;
    }
    const bool is_raw = c->rope_cos == NULL && c->q_norm_gain == NULL && c->k_scale_count <= 1;
    return layer->dtype == PKV_BF16 && is_raw ? 1 : 2;
}

/* Whether int8 keys and values are multiplied as whole numbers. With fewer query heads a KV head a
 * decode step is as fast by floats. By the layer alone, as above. */
static bool has_int8(const struct run *run)
{
    return run->kernels->pack_int8 != NULL && run->heads_per_kv >= INT8_MIN_HEADS &&
           run->plan->shape.k_width <= INT8_MAX_WIDTH;
}

static struct run run_of(const pkv_workspace *workspace)
{
    const pkv_plan *plan = workspace->running;
    const struct gqa_layer *layer = &workspace->layer.layer;
    const struct pkv_attn_constants *constants = layer->constants;
    struct run run = {
        .plan = plan,
        .layer = layer,
        .rows = plan->rows.memory,
        .kernels = workspace->kernels,
        .partials = workspace->partials.memory,
        .constants = constants,
        .heads_per_kv = layer->num_heads / plan->shape.kv_heads,
        .v_dtype = plan->shape.v_in_k ? layer->cache.k_dtype : layer->cache.v_dtype,
        .logit_scale = constants->q_scale != NULL ? *constants->q_scale
                                                  : 1.0f / sqrtf((float)plan->shape.k_width),
    };
    run.packed_parts = packed_parts(&run);
    run.int8_keys = has_int8(&run) && layer->cache.k_dtype == PKV_INT8;
    run.int8_values = has_int8(&run) && run.v_dtype == PKV_INT8;
    run.logit_scale *= value_scale_of(layer->cache.k_dtype);
    if (constants->k_scale_count == 1) {
        run.logit_scale *= constants->k_scale[0];
    }
    return run;
}

/* Appends and merges are tasks per KV head. */
static int32_t num_phase_tasks(const pkv_plan *plan, const struct gqa_layer *layer,
                               enum pkv_phase phase)
{
    const int32_t heads = plan->shape.kv_heads;
    if (layer->q == NULL) {
        return phase == PKV_PHASE_APPEND ? plan->num_rows * heads : 0;
    }
    switch (phase) {
    case PKV_PHASE_APPEND: return layer->k != NULL ? plan->num_appends * heads : 0;
    case PKV_PHASE_ATTEND: return plan->num_tasks;
    case PKV_PHASE_MERGE: break;
    }
    return plan->num_merges * gqa_shape_heads_alike(&plan->shape);
}

static task_function *phase_function(const struct gqa_layer *layer, enum pkv_phase phase)
{
    switch (phase) {
    case PKV_PHASE_APPEND: return layer->q == NULL ? append_only_task : append_task;
    case PKV_PHASE_ATTEND: return attend_task;
    case PKV_PHASE_MERGE: break;
    }
    return merge_task;
}

/* The plan has chosen which attend tasks each worker begins with; the tasks of other phases are
 * alike. */
static struct team_deal deal_of(const pkv_plan *plan, enum pkv_phase phase, int32_t num_tasks)
{
    return (struct team_deal){
        .num_tasks = num_tasks,
        .num_workers = plan->num_active,
        .first = phase == PKV_PHASE_ATTEND ? plan->first_tasks.memory : NULL,
    };
}

/* What a team's worker needs to run a phase. */
struct phase {
    const pkv_workspace *workspace;
    const struct run *run;
    task_function *function;
};

static void run_phase_task(const void *context, int32_t task, int worker)
{
    const struct phase *phase = context;
    phase->function(phase->run, task, workspace_scratch(phase->workspace, worker));
}

void gqa_start_layer(pkv_workspace *workspace, const pkv_plan *plan, const struct gqa_layer *layer)
{
    workspace->running = plan;
    gqa_layer_copy(&workspace->layer, layer);
}

int32_t gqa_num_tasks(const pkv_workspace *workspace, enum pkv_phase phase)
{
    const pkv_plan *plan = workspace->running;
    const bool is_phase = (int)phase >= PKV_PHASE_APPEND && (int)phase < PKV_NUM_PHASES;
    return plan != NULL && is_phase ? num_phase_tasks(plan, &workspace->layer.layer, phase) : 0;
}

enum pkv_status gqa_check_task(const pkv_workspace *workspace, enum pkv_phase phase,
                               int32_t num_tasks, int32_t task, int worker)
{
    const int num_workers = workspace->team.num_threads;
    if (worker < 0 || worker >= num_workers) {
        return INVALID("worker = %d, outside [0, num_threads = %d)", worker, num_workers);
    }
    if (task < 0 || task >= num_tasks) {
        return INVALID("task = %d, outside [0, %d) of phase %d", task, num_tasks, (int)phase);
    }
    return PKV_OK;
}

void gqa_run_task(pkv_workspace *workspace, enum pkv_phase phase, int32_t task, int worker)
{
    const struct run run = run_of(workspace);
    phase_function(run.layer, phase)(&run, task, workspace_scratch(workspace, worker));
}

void gqa_run_layer(pkv_workspace *workspace, const pkv_plan *plan, const struct gqa_layer *layer)
{
    gqa_start_layer(workspace, plan, layer);
    const struct run run = run_of(workspace);
    for (int p = PKV_PHASE_APPEND; p < PKV_NUM_PHASES; p++) {
        const enum pkv_phase phase = (enum pkv_phase)p;
        const int32_t num_tasks = num_phase_tasks(plan, layer, phase);
        const struct phase work = {workspace, &run, phase_function(layer, phase)};
        const struct team_deal deal = deal_of(plan, phase, num_tasks);
        if (num_tasks > 0) {
            team_run(&workspace->team, &deal, run_phase_task, &work);
        }
    }
    workspace->running = NULL;
}
