/* SPDX-License-Identifier: MIT
 *
 * cached.c: the few places where a model and pkv_cache meet. The cos/sin tables are the cache's
 * own once it is created; it rotates each query and each key before it stores or attends. */
#include "cached.h"

#include "report.h"

#include <stdlib.h>

/* All heads, rope and norms of heads as the model has them. */
static struct pkv_layer_config layer_of(const struct model *m, int32_t layer)
{
    const struct model_layer *l = &m->layers[layer];
    struct pkv_layer_config config = {
        .num_heads = m->num_heads,
        .constants = {.rope_cos = m->rope_cos,
                      .rope_sin = m->rope_sin,
                      .rope_dtype = PKV_F32,
                      .rope_positions = m->seq_len,
                      .rope_width = m->head_dim / 2,
                      .rotary_mode = m->rotary_mode},
    };
    config.constants.q_norm_gain = l->q_norm.data;
    config.constants.q_norm_gain_dtype = l->q_norm.dtype;
    config.constants.q_norm_gain_count = l->q_norm.columns;
    config.constants.k_norm_gain = l->k_norm.data;
    config.constants.k_norm_gain_dtype = l->k_norm.dtype;
    config.constants.k_norm_gain_count = l->k_norm.columns;
    if (l->q_norm.data != NULL || l->k_norm.data != NULL) {
        config.constants.qk_norm_eps = m->norm_eps;
        config.constants.norm_order = PKV_NORM_BEFORE_ROPE;
    }
    return config;
}

/* The groups of the model's layers so far, from one that says what the caller wants of each. */
struct groups {
    struct pkv_group_config list[CACHED_MAX_GROUPS];
    int32_t count;
};

/* Finds or adds the group of a layer; its index, or -1 after a complaint. */
static int32_t group_of(struct groups *groups, const struct model *m, int32_t layer,
                        const struct pkv_group_config *group)
{
    const struct model_layer *l = &m->layers[layer];
    for (int32_t g = 0; g < groups->count; g++) {
        if (groups->list[g].sliding_window == l->window &&
            groups->list[g].kept_prefix == l->kept_prefix) {
            return g;
        }
    }
    if (groups->count == CACHED_MAX_GROUPS) {
        complain("layer %d: more than %d kinds of windows", layer, CACHED_MAX_GROUPS);
        return -1;
    }
    struct pkv_group_config *added = &groups->list[groups->count];
    *added = *group;
    added->kv_heads = m->kv_heads;
    added->k_width = m->head_dim;
    added->sliding_window = l->window;
    added->kept_prefix = l->kept_prefix;
    return groups->count++;
}

bool cached_create(const struct model *model, const struct pkv_group_config *group,
                   const struct pkv_cache_config *config, pkv_cache **cache)
{
    struct groups groups = {.count = 0};
    struct pkv_layer_config *layers = calloc((size_t)model->num_layers, sizeof *layers);
    if (layers == NULL) {
        return complain("out of memory for %d layers", model->num_layers);
    }
    for (int32_t layer = 0; layer < model->num_layers; layer++) {
        layers[layer] = layer_of(model, layer);
        layers[layer].group = group_of(&groups, model, layer, group);
        if (layers[layer].group < 0) {
            free(layers);
            return false;
        }
    }
    struct pkv_cache_config own = *config;
    own.size = sizeof own;
    own.groups = groups.list;
    own.num_groups = groups.count;
    own.layers = layers;
    own.num_layers = model->num_layers;
    own.dtype = PKV_F32;
    const enum pkv_status status = pkv_cache_create(&own, cache);
    free(layers);
    return status == PKV_OK || complain("no cache: %s", pkv_last_error());
}

bool cached_usage(pkv_cache *cache, int32_t *num_blocks, int32_t *held)
{
    struct pkv_cache_config config = {.size = sizeof config};
    struct pkv_group_usage usage = {.size = sizeof usage};
    if (pkv_cache_describe(cache, &config) != PKV_OK) {
        return complain("the cache's groups: %s", pkv_last_error());
    }
    *num_blocks = 0;
    *held = 0;
    for (int32_t group = 0; group < config.num_groups; group++) {
        if (pkv_cache_usage(cache, group, &usage) != PKV_OK) {
            return complain("usage: %s", pkv_last_error());
        }
        *num_blocks += usage.num_blocks;
        *held += usage.held;
    }
    return true;
}

bool cached_check_empty(pkv_cache *cache)
{
    int32_t num_blocks = 0;
    int32_t held = 0;
    const int32_t broken = pkv_cache_check(cache);
    if (broken != 0) {
        return complain("the cache has %d broken invariants", broken);
    }
    if (!cached_usage(cache, &num_blocks, &held)) {
        return false;
    }
    return held == 0 || complain("%d of %d blocks are still held", held, num_blocks);
}

bool cached_attend(void *context, int32_t layer, const float *q, const float *k, const float *v,
                   float *out)
{
    const struct cached_step *open = context;
    const struct pkv_layer_io io = {.size = sizeof io, .q = q, .k = k, .v = v, .out = out};
    return pkv_step_attend(open->cache, open->step, layer, &io) == PKV_OK ||
           complain("layer %d: %s", layer, pkv_last_error());
}
