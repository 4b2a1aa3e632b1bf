/* SPDX-License-Identifier: MIT
 *
 * The step as such: its arrays, and the checks that every call on an open step begins with. O(1).
 */
#include "runtime/step.h"

#include "base/error.h"
#include "runtime/handle.h"

void step_carve(const struct pkv_cache_config *config, struct step *step, struct carver *carver)
{
    const size_t max_rows = (size_t)config->max_step_rows;
    const size_t max_tokens = (size_t)config->max_step_tokens;
    step->seqs = carve(carver, max_rows, sizeof *step->seqs);
    step->cu_seqlens = carve(carver, max_rows + 1, sizeof *step->cu_seqlens);
    step->kv_lens = carve(carver, max_rows, sizeof *step->kv_lens);
    step->publishing = carve(carver, max_rows, sizeof *step->publishing);
    step->position_ids = carve(carver, max_tokens, sizeof *step->position_ids);
    step->ranges = carve(carver, max_tokens, sizeof *step->ranges);
    step->cu_ranges = carve(carver, max_rows + 1, sizeof *step->cu_ranges);
    step->parents = carve(carver, max_tokens, sizeof *step->parents);
    step->depths = carve(carver, max_tokens, sizeof *step->depths);
}

pkv_step step_handle(const struct step *step)
{
    return (pkv_step){HANDLE_STEP | handle_make(step->generation, 0)};
}

enum pkv_status step_check(const struct step *step, pkv_step handle)
{
    if (!step->is_open || step_handle(step).id != handle.id) {
        return refuse(PKV_STALE_HANDLE, "step %016llx is not open", (unsigned long long)handle.id);
    }
    return PKV_OK;
}

enum pkv_status step_check_no_tasks(const struct step *step)
{
    const int tasks_left = atomic_load(&step->tasks_left);
    if (tasks_left > 0) {
        return INVALID("layer %d is under way, %d of its tasks are left", step->layer_begun,
                       tasks_left);
    }
    return PKV_OK;
}
