/* SPDX-License-Identifier: MIT
 *
 * One layer of the open step in one call, run by its group's plan, or by its own where it selects
 * blocks. A layer that shares pages runs by the same plan with nothing to append. */
#include "attn/gqa_plan.h"
#include "attn/gqa_run.h"
#include "runtime/step_layer.h"

enum pkv_status pkv_step_attend(pkv_cache *cache, pkv_step step, int32_t layer,
                                const struct pkv_layer_io *io)
{
    struct gqa_layer prepared;
    const pkv_plan *plan;
    const enum pkv_status status = step_layer_prepare(cache, step, layer, io, &prepared, &plan);
    if (status != PKV_OK) {
        return status;
    }
    if (cache->step.num_tokens > 0) {
        gqa_run_layer(cache->workspace, plan, &prepared);
        cache->layers[layer].num_read_keys += (uint64_t)gqa_plan_read_keys(plan);
    }
    cache->layers[layer].is_attended = true;
    return PKV_OK;
}
