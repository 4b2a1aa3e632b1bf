/* SPDX-License-Identifier: MIT
 *
 * Owners take the layers of their group's page store in order; a layer that shares pages reads
 * those of its owner, which comes before it. O(layers^2), at create alone. */
#include "runtime/layer.h"

#include "attn/view.h"

/* Which layer of its group's store an owner has: the number of owners before it. */
static int32_t store_layer_of(const struct pkv_cache_config *config, int32_t layer)
{
    int32_t count = 0;
    for (int32_t i = 0; i < layer; i++) {
        count +=
            config->layers[i].group == config->layers[layer].group && !config->layers[i].shares_kv;
    }
    return count;
}

enum pkv_status layer_build(struct layer *layers, const struct pkv_cache_config *config,
                            struct group *groups)
{
    for (int32_t i = 0; i < config->num_layers; i++) {
        const struct pkv_layer_config *of = &config->layers[i];
        struct layer *layer = &layers[i];
        if (config_is_state_layer(config, i)) {
            *layer = (struct layer){.group = of->group, .owner = LAYER_OF_STATES};
            continue;
        }
        struct group *group = &groups[of->group];
        layer->group = of->group;
        layer->num_heads = of->num_heads;
        layer->owner = of->kv_layer;
        layer->constants = &of->constants;
        if (of->num_heads > group->shape.max_heads) {
            group->shape.max_heads = of->num_heads;
        }
        if (of->shares_kv) {
            layer->view = layers[layer->owner].view;
            continue;
        }
        const enum pkv_status status =
            pkv_pages_view(group->blocks.pages, store_layer_of(config, i), &layer->view);
        if (status != PKV_OK) {
            return status;
        }
        view_resolve(&layer->view);
    }
    return PKV_OK;
}
