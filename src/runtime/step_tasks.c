/* SPDX-License-Identifier: MIT
 *
 * One layer of the open step task by task, in threads of the caller. The last task marks the layer
 * attended. */
#include "attn/gqa_plan.h"
#include "attn/gqa_run.h"
#include "base/error.h"
#include "runtime/step_layer.h"

enum pkv_status pkv_step_layer_begin(pkv_cache *cache, pkv_step step, int32_t layer,
                                     const struct pkv_layer_io *io)
{
    struct gqa_layer prepared;
    const pkv_plan *plan;
    const enum pkv_status status = step_layer_prepare(cache, step, layer, io, &prepared, &plan);
    if (status != PKV_OK) {
        return status;
    }
    int32_t num_tasks = 0;
    if (cache->step.num_tokens > 0) {
        gqa_start_layer(cache->workspace, plan, &prepared);
        cache->step.keys_begun = gqa_plan_read_keys(plan);
        for (int phase = PKV_PHASE_APPEND; phase < PKV_NUM_PHASES; phase++) {
            num_tasks += gqa_num_tasks(cache->workspace, (enum pkv_phase)phase);
        }
    }
    cache->step.layer_begun = layer;
    atomic_store(&cache->step.tasks_left, num_tasks);
    cache->layers[layer].is_attended = num_tasks == 0;
    return PKV_OK;
}

/* Tasks of a phase of the layer under way; the step is known to be open. */
static int32_t num_tasks_of(const pkv_cache *cache, enum pkv_phase phase)
{
    return atomic_load(&cache->step.tasks_left) > 0 ? gqa_num_tasks(cache->workspace, phase) : 0;
}

int32_t pkv_step_num_tasks(pkv_cache *cache, pkv_step step, enum pkv_phase phase)
{
    if (cache == NULL) {
        return 0;
    }
    cache_lock(cache);
    const enum pkv_status status = step_check(&cache->step, step);
    cache_unlock(cache);
    return status == PKV_OK ? num_tasks_of(cache, phase) : 0;
}

enum pkv_status pkv_step_run_task(pkv_cache *cache, pkv_step step, enum pkv_phase phase,
                                  int32_t task, int worker)
{
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    cache_lock(cache);
    const enum pkv_status status = step_check(&cache->step, step);
    cache_unlock(cache);
    if (status != PKV_OK) {
        return status;
    }
    const enum pkv_status checked =
        gqa_check_task(cache->workspace, phase, num_tasks_of(cache, phase), task, worker);
    if (checked != PKV_OK) {
        return checked;
    }
    gqa_run_task(cache->workspace, phase, task, worker);
    if (atomic_fetch_sub(&cache->step.tasks_left, 1) == 1) {
        struct layer *layer = &cache->layers[cache->step.layer_begun];
        layer->num_read_keys += (uint64_t)cache->step.keys_begun;
        layer->is_attended = true;
    }
    return PKV_OK;
}
