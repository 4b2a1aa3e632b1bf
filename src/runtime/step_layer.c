/* SPDX-License-Identifier: MIT
 *
 * The mutex is held only to check the handle; what a layer reads afterwards stays as it is until
 * commit or abort. */
#include "runtime/step_layer.h"

#include "attn/check_pointers.h"
#include "attn/token_stride.h"
#include "base/error.h"
#include "base/sized.h"
#include "runtime/step_select.h"

/* One of q, k, v, out. */
struct tensor {
    const char *name;
    const char *stride_name;
    const void *elements;
    bool is_needed;
    size_t width;
    size_t *stride;
};

/* It is there when it is needed, and its tokens do not overlap; resolves its stride. */
static enum pkv_status check_tensor(const struct pkv_cache_config *config, int32_t num_tokens,
                                    const struct tensor *tensor)
{
    if ((tensor->elements != NULL) != tensor->is_needed) {
        return INVALID("%s is %s", tensor->name,
                       tensor->is_needed ? "NULL" : "given, but this layer takes none");
    }
    const struct token_stride_rows rows = {
        .num_tokens = num_tokens,
        .dtype = config->dtype,
        .width = tensor->is_needed ? tensor->width : 0,
    };
    return token_stride_resolve(tensor->stride_name, *tensor->stride, &rows, tensor->stride);
}

static enum pkv_status check_tensors(const pkv_cache *cache, int32_t layer, struct gqa_layer *of)
{
    const struct pkv_layer_config *layer_config = &cache->config.layers[layer];
    const struct pkv_group_config *group = &cache->config.groups[layer_config->group];
    const size_t num_heads = (size_t)layer_config->num_heads;
    const size_t kv_heads = (size_t)group->kv_heads;
    const size_t k_width = (size_t)group->k_width;
    const size_t v_width = (size_t)group->v_width;
    const bool has_k = !layer_config->shares_kv;
    const bool has_v = has_k && !group->v_in_k;
    const struct tensor tensors[] = {
        {"io->q", "io->q_stride", of->q, true, num_heads * k_width, &of->q_stride},
        {"io->k", "io->k_stride", of->k, has_k, kv_heads * k_width, &of->k_stride},
        {"io->v", "io->v_stride", of->v, has_v, kv_heads * v_width, &of->v_stride},
        {"io->out", "io->out_stride", of->out, true, num_heads * v_width, &of->out_stride},
    };
    enum pkv_status status = PKV_OK;
    for (size_t i = 0; status == PKV_OK && i < sizeof tensors / sizeof tensors[0]; i++) {
        status = check_tensor(&cache->config, cache->step.num_tokens, &tensors[i]);
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
    if (owner == LAYER_OF_STATES) {
        return INVALID("layer %d keeps states, which pkv_step_describe_states shows", layer);
    }
    if (owner == layer && cache->layers[layer].is_attended) {
        return INVALID("layer %d was appended in this step already", layer);
    }
    if (owner != layer && !cache->layers[owner].is_attended) {
        return INVALID("layer %d reads the pages of layer %d, which was not appended yet", layer,
                       owner);
    }
    return PKV_OK;
}

enum pkv_status step_layer_prepare(pkv_cache *cache, pkv_step step, int32_t layer,
                                   const struct pkv_layer_io *given, struct gqa_layer *prepared,
                                   const pkv_plan **plan)
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
    if (status == PKV_OK) {
        status = step_select_check(cache, layer, io);
    }
    if (status != PKV_OK) {
        return status;
    }
    const struct layer *of = &cache->layers[layer];
    *plan = cache->groups[of->group].step.plan;
    *prepared = (struct gqa_layer){
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
    status = check_tensors(cache, layer, prepared);
    if (status == PKV_OK) {
        status =
            check_layer_pointers(prepared, &cache->groups[of->group].shape, cache->step.num_tokens);
    }
    if (status == PKV_OK && io->cu_selected != NULL) {
        *plan = cache->selected_plan;
        status = step_select_plan(cache, layer, io);
    }
    return status;
}
