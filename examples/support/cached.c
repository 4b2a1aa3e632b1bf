/* SPDX-License-Identifier: MIT
 *
 * cached.c: the few places where a model and pkv_cache meet. The cos/sin tables are the cache's
 * own once it is created; it rotates each query and each key before it stores or attends. */
#include "cached.h"

#include "report.h"

#include <stdlib.h>

/* What is the same in every layer of these models: all heads, and rope on adjacent channels. */
static struct pkv_layer_config layer_of(const struct model *m)
{
    const struct pkv_layer_config layer = {
        .num_heads = m->num_heads,
        .constants = {.rope_cos = m->rope_cos,
                      .rope_sin = m->rope_sin,
                      .rope_dtype = PKV_F32,
                      .rope_positions = m->seq_len,
                      .rope_width = m->head_dim / 2,
                      .rotary_mode = PKV_ROTARY_INTERLEAVED},
    };
    return layer;
}

bool cached_create(const struct model *model, const struct pkv_group_config *group,
                   const struct pkv_cache_config *config, pkv_cache **cache)
{
    struct pkv_layer_config *layers = calloc((size_t)model->num_layers, sizeof *layers);
    if (layers == NULL) {
        return complain("out of memory for %d layers", model->num_layers);
    }
    for (int32_t layer = 0; layer < model->num_layers; layer++) {
        layers[layer] = layer_of(model);
    }
    struct pkv_group_config own_group = *group;
    own_group.kv_heads = model->kv_heads;
    own_group.k_width = model->head_dim;
    struct pkv_cache_config own = *config;
    own.size = sizeof own;
    own.groups = &own_group;
    own.num_groups = 1;
    own.layers = layers;
    own.num_layers = model->num_layers;
    own.dtype = PKV_F32;
    const enum pkv_status status = pkv_cache_create(&own, cache);
    free(layers);
    return status == PKV_OK || complain("no cache: %s", pkv_last_error());
}

bool cached_check_empty(pkv_cache *cache)
{
    struct pkv_group_usage usage = {.size = sizeof usage};
    const int32_t broken = pkv_cache_check(cache);
    if (broken != 0) {
        return complain("the cache has %d broken invariants", broken);
    }
    if (pkv_cache_usage(cache, 0, &usage) != PKV_OK || usage.held != 0) {
        return complain("%d blocks are still held", usage.held);
    }
    return true;
}

bool cached_attend(void *context, int32_t layer, const float *q, const float *k, const float *v,
                   float *out)
{
    const struct cached_step *open = context;
    const struct pkv_layer_io io = {.size = sizeof io, .q = q, .k = k, .v = v, .out = out};
    return pkv_step_attend(open->cache, open->step, layer, &io) == PKV_OK ||
           complain("layer %d: %s", layer, pkv_last_error());
}
