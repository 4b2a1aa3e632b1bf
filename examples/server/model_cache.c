/* SPDX-License-Identifier: MIT */
#include "model_cache.h"

#include "report.h"

#include <stdlib.h>
#include <string.h>

enum { TENANT_FIELD = 1 };

/* Gives the group of a window, a new one when no layer before had it. */
static int32_t group_of(const struct language_model *model, int64_t window,
                        struct pkv_group_config *groups, int32_t *num_groups)
{
    for (int32_t g = 0; g < *num_groups; g++) {
        if (groups[g].sliding_window == window) {
            return g;
        }
    }
    groups[*num_groups] = (struct pkv_group_config){
        .kv_heads = model->kv_heads, .k_width = model->head_dim, .sliding_window = window};
    return (*num_groups)++;
}

static size_t token_bytes(const struct language_model *model, enum pkv_dtype dtype)
{
    return (size_t)2 * (size_t)model->kv_heads * (size_t)model->head_dim * pkv_dtype_bytes(dtype);
}

/* Fills groups and layers, which have room for one a layer of the model. */
static int32_t describe(const struct language_model *model, const struct engine_options *options,
                        struct pkv_group_config *groups, struct pkv_layer_config *layers)
{
    int32_t num_groups = 0;
    for (int32_t layer = 0; layer < model->num_layers; layer++) {
        layers[layer].num_heads = model->num_heads;
        layers[layer].constants = model->constants[layer];
        layers[layer].group = group_of(model, model->windows[layer], groups, &num_groups);
    }
    for (int32_t g = 0; g < num_groups; g++) {
        groups[g].k_dtype = options->dtype;
        groups[g].v_dtype = options->dtype;
        groups[g].block_size = options->block_size;
    }
    return num_groups;
}

bool model_cache_create(const struct language_model *model, const struct engine_options *options,
                        int32_t max_step_tokens, pkv_cache **cache)
{
    const size_t num_layers = (size_t)model->num_layers;
    struct pkv_group_config *groups = calloc(num_layers, sizeof *groups);
    struct pkv_layer_config *layers = calloc(num_layers, sizeof *layers);
    if (groups == NULL || layers == NULL) {
        free(groups);
        free(layers);
        return complain("out of memory for %zu layers", num_layers);
    }
    const size_t all = token_bytes(model, options->dtype) * num_layers *
                       (size_t)options->max_seq_len * (size_t)options->max_batch;
    const struct pkv_cache_config config = {
        .size = sizeof config,
        .groups = groups,
        .num_groups = describe(model, options, groups, layers),
        .layers = layers,
        .num_layers = model->num_layers,
        .dtype = PKV_F32,
        .bytes = options->cache_bytes > 0 ? options->cache_bytes : all,
        .max_seqs = options->max_batch,
        .max_seq_len = options->max_seq_len,
        .max_step_tokens = max_step_tokens,
        .num_threads = options->threads,
        .prefix_cache = options->prefix_cache,
        .max_pinned_blocks = 0,
        .metrics_label = model->name,
    };
    const enum pkv_status status = pkv_cache_create(&config, cache);
    free(groups);
    free(layers);
    return status == PKV_OK || complain("no cache: %s", pkv_last_error());
}

struct pkv_seq_options model_cache_seq_options(const struct job_request *request, uint64_t tag,
                                               struct pkv_namespace_field *field)
{
    *field = (struct pkv_namespace_field){
        .tag = TENANT_FIELD, .bytes = request->tenant, .length = (int32_t)strlen(request->tenant)};
    return (struct pkv_seq_options){
        .size = sizeof(struct pkv_seq_options),
        .tag = tag,
        .namespace_fields = field,
        .num_namespace_fields = field->length > 0 ? 1 : 0,
        .priority = request->priority,
    };
}
