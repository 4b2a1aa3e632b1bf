/* SPDX-License-Identifier: MIT
 *
 * One layer of the open step in one call, run by its group's plan. A layer that shares pages runs
 * by the same plan with nothing to append. */
#include "attn/gqa_run.h"
#include "runtime/step_layer.h"

enum pkv_status pkv_step_attend(pkv_cache *cache, pkv_step step, int32_t layer,
                                const struct pkv_layer_io *io)
{
    struct gqa_layer prepared;
    const enum pkv_status status = step_layer_prepare(cache, step, layer, io, &prepared);
    if (status != PKV_OK) {
        return status;
    }
    if (cache->step.num_tokens > 0) {
        gqa_run_layer(cache->workspace, step_layer_plan(cache, layer), &prepared);
        cache->layers[layer].num_reads++;
    }
    cache->layers[layer].is_attended = true;
    return PKV_OK;
}
