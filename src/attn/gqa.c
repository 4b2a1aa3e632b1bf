/* SPDX-License-Identifier: MIT
 *
 * gqa.c: running one layer by its plan, and the one door to OpenMP. A phase is a list of tasks
 * dealt to workers; a worker that has done its own takes from the others. The team may be smaller
 * than was asked for, or one thread inside a caller's parallel region: workers are loop iterations,
 * so each of them runs all the same, and scratch goes by worker, not by thread. */
#include "attn/gqa.h"

#include <math.h>
#include <unistd.h>

#include "attn/run.h"

int gqa_default_threads(void)
{
    int threads = 0;
#pragma omp parallel reduction(+ : threads)
    threads += 1;
    return threads < MAX_THREADS ? threads : MAX_THREADS;
}

typedef void task_function(const struct run *run, int32_t task, float *scratch);

/* Appends of one row (an index into appends) for one KV head. */
static void append_task(const struct run *run, int32_t task, float *scratch)
{
    const int32_t heads = run->plan->shape.kv_heads;
    const int32_t *appends = run->plan->appends.memory;
    const struct gqa_row *row = &run->rows[appends[task / heads]];
    append_cells(run, row, task % heads, 0, INT64_MAX, true, scratch);
}

/* The same for calls that only append, where every row is one task. */
static void append_row_task(const struct run *run, int32_t task, float *scratch)
{
    const int32_t heads = run->plan->shape.kv_heads;
    append_cells(run, &run->rows[task / heads], task % heads, 0, INT64_MAX, true, scratch);
}

static void unit_task(const struct run *run, int32_t task, float *scratch)
{
    const struct unit *unit = (const struct unit *)run->plan->units.memory + task;
    if (unit->num_members > 0) {
        attend_shared(run, unit, scratch);
    } else {
        attend_unit(run, unit, scratch);
    }
}

static void fold_task(const struct run *run, int32_t task, float *scratch)
{
    const int32_t heads = run->plan->shape.kv_heads;
    const struct fold *folds = run->plan->folds.memory;
    attend_fold(run, &folds[task / heads], task % heads, scratch);
}

/* Own tasks first, then what others have left. */
static void work(pkv_workspace *workspace, int self, int num_workers, const struct run *run,
                 task_function *function)
{
    float *scratch = (float *)workspace->scratch.memory + (size_t)self * workspace->scratch_floats;
    for (int i = 0; i < num_workers; i++) {
        struct worker *worker = &workspace->workers[(self + i) % num_workers];
        for (;;) {
            const int task = atomic_fetch_add_explicit(&worker->next, 1, memory_order_relaxed);
            if (task >= worker->end) {
                break;
            }
            function(run, task, scratch);
        }
    }
}

/* The shares are set in workers; those at the end that have none are not woken. */
static void run_workers(pkv_workspace *workspace, const struct run *run, task_function *function)
{
    int active = workspace->num_threads;
    while (active > 1 &&
           atomic_load_explicit(&workspace->workers[active - 1].next, memory_order_relaxed) ==
               workspace->workers[active - 1].end) {
        active--;
    }
    /* The runtime's threads did not come along into a forked child: there, one thread does it all.
     */
    if (active == 1 || getpid() != workspace->owner) {
        work(workspace, 0, active, run, function);
        return;
    }
#pragma omp parallel for num_threads(active) schedule(static, 1)
    for (int w = 0; w < active; w++) {
        work(workspace, w, active, run, function);
    }
}

static void set_share(struct worker *worker, int32_t begin, int32_t end)
{
    atomic_store_explicit(&worker->next, begin, memory_order_relaxed);
    worker->end = end;
}

/* Tasks dealt evenly. */
static void run_evenly(pkv_workspace *workspace, const struct run *run, int32_t count,
                       task_function *function)
{
    const int64_t threads = workspace->num_threads;
    if (count == 0) {
        return;
    }
    for (int64_t w = 0; w < threads; w++) {
        const int64_t begin = ((int64_t)count * w + threads - 1) / threads;
        const int64_t end = ((int64_t)count * (w + 1) + threads - 1) / threads;
        set_share(&workspace->workers[w], (int32_t)begin, (int32_t)end);
    }
    run_workers(workspace, run, function);
}

static void run_units(pkv_workspace *workspace, const struct run *run)
{
    const int32_t *first = run->plan->first_units.memory;
    for (int w = 0; w < workspace->num_threads; w++) {
        set_share(&workspace->workers[w], first[w], first[w + 1]);
    }
    run_workers(workspace, run, unit_task);
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

static struct run run_of(const pkv_workspace *workspace)
{
    const pkv_plan *plan = workspace->started;
    const struct gqa_layer *layer = &workspace->layer;
    const struct pkv_attn_constants *constants = layer->constants;
    struct run run = {
        .plan = plan,
        .layer = layer,
        .rows = plan->rows.memory,
        .kernels = workspace->kernels,
        .partials = workspace->partials.memory,
        .constants = constants,
        .group = layer->num_heads / plan->shape.kv_heads,
        .v_dtype = plan->shape.v_in_k ? layer->cache.k_dtype : layer->cache.v_dtype,
        .logit_scale = constants->q_scale != NULL ? *constants->q_scale
                                                  : 1.0f / sqrtf((float)plan->shape.k_width),
    };
    run.packed_parts = packed_parts(&run);
    run.logit_scale *= value_scale_of(layer->cache.k_dtype);
    if (constants->k_scale_count == 1) {
        run.logit_scale *= constants->k_scale[0];
    }
    return run;
}

void gqa_start_layer(pkv_workspace *workspace, const pkv_plan *plan, const struct gqa_layer *layer)
{
    workspace->started = plan;
    workspace->constants = *layer->constants;
    workspace->layer = *layer;
    workspace->layer.constants = &workspace->constants;
    if (layer->mask != NULL) {
        workspace->mask = *layer->mask;
        workspace->layer.mask = &workspace->mask;
    }
    if (layer->copy_from != NULL) {
        workspace->copy_from = *layer->copy_from;
        workspace->layer.copy_from = &workspace->copy_from;
    }
}

/* Appends and folds are tasks per KV head, a unit is one. */
static int32_t phase_tasks(const pkv_workspace *workspace, enum pkv_phase phase)
{
    const pkv_plan *plan = workspace->started;
    const struct gqa_layer *layer = &workspace->layer;
    const int32_t heads = plan->shape.kv_heads;
    if (layer->q == NULL) {
        return phase == PKV_PHASE_APPEND ? plan->num_rows * heads : 0;
    }
    switch (phase) {
    case PKV_PHASE_APPEND: return layer->k != NULL ? plan->num_appends * heads : 0;
    case PKV_PHASE_ATTEND: return plan->num_units;
    case PKV_PHASE_MERGE: break;
    }
    return plan->num_folds * heads;
}

static task_function *phase_function(const pkv_workspace *workspace, enum pkv_phase phase)
{
    switch (phase) {
    case PKV_PHASE_APPEND: return workspace->layer.q == NULL ? append_row_task : append_task;
    case PKV_PHASE_ATTEND: return unit_task;
    case PKV_PHASE_MERGE: break;
    }
    return fold_task;
}

int32_t gqa_num_tasks(const pkv_workspace *workspace, enum pkv_phase phase)
{
    return workspace->started == NULL ? 0 : phase_tasks(workspace, phase);
}

void gqa_run_task(pkv_workspace *workspace, enum pkv_phase phase, int32_t task, int worker)
{
    const struct run run = run_of(workspace);
    float *scratch =
        (float *)workspace->scratch.memory + (size_t)worker * workspace->scratch_floats;
    phase_function(workspace, phase)(&run, task, scratch);
}

void gqa_run_layer(pkv_workspace *workspace, const pkv_plan *plan, const struct gqa_layer *layer)
{
    gqa_start_layer(workspace, plan, layer);
    const struct run run = run_of(workspace);
    for (int phase = PKV_PHASE_APPEND; phase < PKV_NUM_PHASES; phase++) {
        const int32_t tasks = phase_tasks(workspace, (enum pkv_phase)phase);
        task_function *function = phase_function(workspace, (enum pkv_phase)phase);
        if (phase == PKV_PHASE_ATTEND && tasks > 0) {
            run_units(workspace, &run);
        } else {
            run_evenly(workspace, &run, tasks, function);
        }
    }
    workspace->started = NULL;
}
