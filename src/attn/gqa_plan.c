/* SPDX-License-Identifier: MIT
 *
 * gqa_plan.c: a plan made with its workspace. It is ready only when both have all that a run needs:
 * the tasks here, scratch and partial results there. */
#include "attn/gqa_plan.h"

#include "attn/attend.h"
#include "attn/partial.h"
#include "attn/split.h"
#include "attn/workspace.h"
#include "base/error.h"

enum pkv_status pkv_plan_create(pkv_workspace *workspace, pkv_plan **plan)
{
    if (workspace == NULL || plan == NULL) {
        return INVALID("%s is NULL", workspace == NULL ? "workspace" : "plan");
    }
    pkv_plan *created = plan_create(workspace, &workspace->hooks, workspace->team.num_threads);
    if (created == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for a plan");
    }
    *plan = created;
    return PKV_OK;
}

/* Tasks of this plan cannot be run any more. */
static void stop_running(pkv_workspace *workspace, const pkv_plan *plan)
{
    if (workspace->running == plan) {
        workspace->running = NULL;
    }
}

void pkv_plan_destroy(pkv_plan *plan)
{
    if (plan != NULL) {
        stop_running(plan->workspace, plan);
        plan_destroy(plan);
    }
}

struct gqa_row *gqa_plan_rows(pkv_workspace *workspace, pkv_plan *plan, int32_t num_rows)
{
    plan->ready = false;
    stop_running(workspace, plan);
    plan->num_rows = num_rows;
    const size_t count = num_rows > 0 ? (size_t)num_rows : 1;
    if (!buffer_grow(plan->hooks, &plan->rows, count * sizeof(struct gqa_row))) {
        plan->num_rows = 0;
        return NULL;
    }
    return plan->rows.memory;
}

enum pkv_status gqa_plan_split(pkv_workspace *workspace, pkv_plan *plan,
                               const struct gqa_shape *shape)
{
    plan->ready = false;
    plan->shape = *shape;
    plan->thread_ns = workspace->thread_ns;
    const enum pkv_status status = split_plan(plan);
    if (status != PKV_OK) {
        return status;
    }
    const size_t query_rows =
        (size_t)plan->block_queries * (size_t)gqa_shape_heads_per_kv(&plan->shape);
    plan->partial_floats = partial_floats(shape, query_rows);
    plan->scratch_floats = plan->num_tasks > 0 ? attend_scratch_floats(shape, query_rows) : 0;
    const enum pkv_status reserved = workspace_reserve(workspace, plan);
    plan->ready = reserved == PKV_OK;
    return reserved;
}

int64_t gqa_plan_read_keys(const pkv_plan *plan)
{
    return plan->num_read_keys;
}
