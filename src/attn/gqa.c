/* SPDX-License-Identifier: MIT
 *
 * gqa.c: running one layer by its plan, and the one door to OpenMP. A phase is a list of tasks
 * dealt to workers; a worker that has done its own takes from the others. The team may be smaller
 * than was asked for, or one thread inside a caller's parallel region: workers are loop iterations,
 * so each of them runs all the same, and scratch goes by worker, not by thread. */
#include "attn/gqa.h"

#include <math.h>

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
    const int32_t heads = run->plan->shape.kv_heads;
    const struct unit *units = run->plan->units.memory;
    attend_unit(run, &units[task / heads], task % heads, scratch);
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
    if (active == 1) {
        work(workspace, 0, 1, run, function);
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

/* count items of kv_heads tasks each, dealt evenly to as many workers as there are items. */
static void run_evenly(pkv_workspace *workspace, const struct run *run, int32_t count,
                       task_function *function)
{
    const int32_t heads = run->plan->shape.kv_heads;
    const int64_t threads = workspace->num_threads;
    if (count == 0) {
        return;
    }
    for (int64_t w = 0; w < threads; w++) {
        const int64_t begin = ((int64_t)count * heads * w + threads - 1) / threads;
        const int64_t end = ((int64_t)count * heads * (w + 1) + threads - 1) / threads;
        set_share(&workspace->workers[w], (int32_t)begin, (int32_t)end);
    }
    run_workers(workspace, run, function);
}

static void run_units(pkv_workspace *workspace, const struct run *run)
{
    const int32_t heads = run->plan->shape.kv_heads;
    const int32_t *first = run->plan->first_units.memory;
    for (int w = 0; w < workspace->num_threads; w++) {
        set_share(&workspace->workers[w], first[w] * heads, first[w + 1] * heads);
    }
    run_workers(workspace, run, unit_task);
}

void gqa_run_layer(pkv_workspace *workspace, const pkv_plan *plan, const struct gqa_layer *layer)
{
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
    if (constants->k_scale_count == 1) {
        run.logit_scale *= constants->k_scale[0];
    }
    if (layer->q == NULL) {
        run_evenly(workspace, &run, plan->num_rows, append_row_task);
        return;
    }
    if (layer->k != NULL) {
        run_evenly(workspace, &run, plan->num_appends, append_task);
    }
    run_units(workspace, &run);
    run_evenly(workspace, &run, plan->num_folds, fold_task);
}
