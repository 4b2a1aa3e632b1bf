/* SPDX-License-Identifier: MIT
 *
 * gqa_run.h: one layer run by a plan, at once or task by task. Nothing here allocates, and nothing
 * but the check of a caller's task fails. */
#ifndef PKV_ATTN_GQA_RUN_H
#define PKV_ATTN_GQA_RUN_H

#include "attn/gqa_layer.h"

/* Appends and attends one layer. */
void gqa_run_layer(pkv_workspace *workspace, const pkv_plan *plan, const struct gqa_layer *layer);

/* The same in pieces, for callers with threads of their own: started, each phase's tasks are run in
 * any order by any threads, phase after phase; worker < num_threads names the scratch. The layer is
 * copied. */
void gqa_start_layer(pkv_workspace *workspace, const pkv_plan *plan, const struct gqa_layer *layer);

/* Tasks of a phase of the layer that was started; 0 when none is, or for no phase. */
int32_t gqa_num_tasks(const pkv_workspace *workspace, enum pkv_phase phase);

/* Whether a caller's task is one of num_tasks and its worker one of the workspace's.
 * PKV_INVALID_ARGUMENT. */
enum pkv_status gqa_check_task(const pkv_workspace *workspace, enum pkv_phase phase,
                               int32_t num_tasks, int32_t task, int worker);

void gqa_run_task(pkv_workspace *workspace, enum pkv_phase phase, int32_t task, int worker);

#endif
