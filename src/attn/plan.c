/* SPDX-License-Identifier: MIT
 *
 * plan.c: a plan's memory, and its list of tasks. */
#include "attn/plan.h"

pkv_plan *plan_create(pkv_workspace *workspace, const struct pkv_hooks *hooks, int32_t num_threads)
{
    pkv_plan *plan = hooks_alloc_array(hooks, 1, sizeof *plan);
    if (plan != NULL) {
        plan->workspace = workspace;
        plan->hooks = hooks;
        plan->num_threads = num_threads;
    }
    return plan;
}

void plan_destroy(pkv_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    struct buffer *const buffers[] = {
        &plan->rows,         &plan->appends,     &plan->tasks,         &plan->merges,
        &plan->first_tasks,  &plan->shared,      &plan->shared_parts,  &plan->shared_rows,
        &plan->search_order, &plan->search_sets, &plan->search_chains, &plan->ranges,
        &plan->selected,     &plan->trees,
    };
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        buffer_free(plan->hooks, buffers[i]);
    }
    hooks_free_array(plan->hooks, plan, 1, sizeof *plan);
}

bool plan_push_tasks(pkv_plan *plan, const struct plan_task *task, int32_t span0, int32_t span1,
                     int32_t partial, int64_t cost)
{
    const int32_t count = gqa_shape_heads_alike(&plan->shape) / task->num_heads;
    const size_t bytes = ((size_t)plan->num_tasks + (size_t)count) * sizeof *task;
    if (count > INT32_MAX - plan->num_tasks || !buffer_grow(plan->hooks, &plan->tasks, bytes)) {
        return false;
    }
    struct plan_task *to = (struct plan_task *)plan->tasks.memory + plan->num_tasks;
    for (int32_t i = 0; i < count; i++, to++) {
        *to = *task;
        to->head = task->head + i * task->num_heads;
        to->span0 = span0;
        to->span1 = span1;
        to->partial = partial;
        to->cost = cost;
    }
    plan->num_tasks += count;
    return true;
}

bool plan_can_number(const pkv_plan *plan, int32_t num_partials)
{
    return num_partials <= INT32_MAX - plan->num_partials;
}

int32_t plan_task_heads(const pkv_plan *plan, int64_t rows, int64_t cost)
{
    const int32_t alike = gqa_shape_heads_alike(&plan->shape);
    int32_t heads = alike;
    while (heads > 1 && (alike % heads != 0 || heads * cost > plan->cost_limit ||
                         heads * rows > MAX_TASK_ROWS)) {
        heads--;
    }
    return heads;
}
