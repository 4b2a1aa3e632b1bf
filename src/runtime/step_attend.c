/* SPDX-License-Identifier: MIT
 *
 * One layer of the open step, run by its group's plan: in one call, or task by task in threads of
 * the caller. The mutex is held only to check the handle; what a layer reads afterwards stays as it
 * is until commit or abort. A layer that shares pages runs by the same plan with nothing to append.
 */
#include "attn/check_pointers.h"
#include "attn/gqa_run.h"
#include "base/error.h"
#include "base/sized.h"
#include "runtime/cache.h"

/* One of q, k, v, out: there when it is needed, and its rows do not overlap. */
static enum pkv_status check_tensor(const char *name, const void *tensor, bool is_needed,
                                    size_t *stride, size_t width)
{
    if ((tensor != NULL) != is_needed) {
        return INVALID("io->%s is %s", name,
                       is_needed ? "NULL" : "given, but this layer takes none");
    }
    if (*stride == 0) {
        *stride = width;
    }
    if (*stride > SIZE_MAX / sizeof(float) / INT32_MAX) {
        return INVALID("io->%s_stride = %zu: its bytes overflow", name, *stride);
    }
    if (is_needed && *stride < width) {
        return INVALID("io->%s_stride = %zu, below its width %zu", name, *stride, width);
    }
    return PKV_OK;
}

/* Checks the tensors and resolves the strides of `run`. */
static enum pkv_status check_tensors(const struct pkv_cache_config *config, int32_t layer,
                                     struct gqa_layer *run)
{
    const struct pkv_layer_config *of_layer = &config->layers[layer];
    const struct pkv_group_config *group = &config->groups[of_layer->group];
    const size_t num_heads = (size_t)of_layer->num_heads;
    const size_t kv_heads = (size_t)group->kv_heads;
    const size_t k_width = (size_t)group->k_width;
    const size_t v_width = (size_t)group->v_width;
    const bool has_k = !of_layer->shares_kv;
    const bool has_v = has_k && !group->v_in_k;
    enum pkv_status status = check_tensor("q", run->q, true, &run->q_stride, num_heads * k_width);
    if (status == PKV_OK) {
        status = check_tensor("k", run->k, has_k, &run->k_stride, kv_heads * k_width);
    }
    if (status == PKV_OK) {
        status = check_tensor("v", run->v, has_v, &run->v_stride, kv_heads * v_width);
    }
    if (status == PKV_OK) {
        status = check_tensor("out", run->out, true, &run->out_stride, num_heads * v_width);
    }
    return status;
}

static enum pkv_status check_layer(pkv_cache *cache, pkv_step step, int32_t layer)
{
    cache_lock(cache);
    const enum pkv_status status = step_check(&cache->step, step);
    cache_unlock(cache);
    if (status != PKV_OK) {
        return status;
    }
    if (layer < 0 || layer >= cache->config.num_layers) {
        return INVALID("layer = %d, outside [0, %d)", layer, cache->config.num_layers);
    }
    const enum pkv_status tasks = step_check_no_tasks(&cache->step);
    if (tasks != PKV_OK) {
        return tasks;
    }
    const int32_t owner = cache->layers[layer].owner;
    if (owner == layer && cache->layers[layer].is_attended) {
        return INVALID("layer %d was appended in this step already", layer);
    }
    if (owner != layer && !cache->layers[owner].is_attended) {
        return INVALID("layer %d reads the pages of layer %d, which was not appended yet", layer,
                       owner);
    }
    return PKV_OK;
}

/* Checks everything and fills what attention takes for one layer. */
static enum pkv_status prepare_layer(pkv_cache *cache, pkv_step step, int32_t layer,
                                     const struct pkv_layer_io *given, struct gqa_layer *run)
{
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    struct pkv_layer_io read;
    const struct pkv_layer_io *io = &read;
    enum pkv_status status = sized_read("io", given, out_stride, &read);
    if (status == PKV_OK) {
        status = check_layer(cache, step, layer);
    }
    if (status != PKV_OK) {
        return status;
    }
    const struct layer *of = &cache->layers[layer];
    *run = (struct gqa_layer){
        .dtype = cache->config.dtype,
        .num_heads = of->num_heads,
        .q = io->q,
        .k = io->k,
        .v = io->v,
        .out = io->out,
        .lse = io->lse,
        .q_stride = io->q_stride,
        .k_stride = io->k_stride,
        .v_stride = io->v_stride,
        .out_stride = io->out_stride,
        .cache = of->view,
        .constants = of->constants,
        .position_ids = cache->step.has_position_ids ? cache->step.position_ids : NULL,
    };
    if (cache->step.num_tokens == 0) {
        return PKV_OK;
    }
    const enum pkv_status tensors = check_tensors(&cache->config, layer, run);
    return tensors != PKV_OK
               ? tensors
               : check_layer_pointers(run, &cache->groups[of->group].shape, cache->step.num_tokens);
}

static const pkv_plan *plan_of(const pkv_cache *cache, int32_t layer)
{
    return cache->groups[cache->layers[layer].group].step.plan;
}

enum pkv_status pkv_step_attend(pkv_cache *cache, pkv_step step, int32_t layer,
                                const struct pkv_layer_io *io)
{
    struct gqa_layer run;
    const enum pkv_status status = prepare_layer(cache, step, layer, io, &run);
    if (status != PKV_OK) {
        return status;
    }
    if (cache->step.num_tokens > 0) {
        gqa_run_layer(cache->workspace, plan_of(cache, layer), &run);
        cache->layers[layer].num_reads++;
    }
    cache->layers[layer].is_attended = true;
    return PKV_OK;
}

enum pkv_status pkv_step_layer_begin(pkv_cache *cache, pkv_step step, int32_t layer,
                                     const struct pkv_layer_io *io)
{
    struct gqa_layer run;
    const enum pkv_status status = prepare_layer(cache, step, layer, io, &run);
    if (status != PKV_OK) {
        return status;
    }
    int32_t num_tasks = 0;
    if (cache->step.num_tokens > 0) {
        gqa_start_layer(cache->workspace, plan_of(cache, layer), &run);
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
    const bool is_phase = (int)phase >= PKV_PHASE_APPEND && (int)phase < PKV_NUM_PHASES;
    const bool is_under_way = atomic_load(&cache->step.tasks_left) > 0;
    return is_phase && is_under_way ? gqa_num_tasks(cache->workspace, phase) : 0;
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
    const int num_workers = pkv_workspace_num_threads(cache->workspace);
    if (worker < 0 || worker >= num_workers) {
        return INVALID("worker = %d, outside [0, num_threads = %d)", worker, num_workers);
    }
    const int32_t num_tasks = num_tasks_of(cache, phase);
    if (task < 0 || task >= num_tasks) {
        return INVALID("task = %d, outside [0, %d) of phase %d", task, num_tasks, (int)phase);
    }
    gqa_run_task(cache->workspace, phase, task, worker);
    if (atomic_fetch_sub(&cache->step.tasks_left, 1) == 1) {
        cache->layers[cache->step.layer_begun].num_reads++;
        cache->layers[cache->step.layer_begun].is_attended = true;
    }
    return PKV_OK;
}
