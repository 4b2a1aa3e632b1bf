/* SPDX-License-Identifier: MIT
 *
 * Each module carves the arrays that it alone understands; those that the cache composes are carved
 * here. */
#include "runtime/cache_carve.h"

#include "runtime/admission.h"
#include "runtime/check_group.h"
#include "runtime/constants.h"
#include "runtime/label.h"
#include "runtime/reservation.h"

static enum pkv_status carve_states(const struct pkv_cache_config *config,
                                    const struct config_budget *budget, pkv_cache *cache,
                                    struct carver *carver, size_t *max_blocks)
{
    for (int32_t s = 0; s < config_num_states(config); s++) {
        struct config_group of;
        const enum pkv_status status = config_group_of(config, budget, config->num_groups + s, &of);
        if (status != PKV_OK) {
            return status;
        }
        struct state_group counted;
        state_group_carve(config, &of, carver->base != NULL ? &cache->states[s] : &counted, carver);
        const size_t num_blocks = (size_t)of.config.num_blocks;
        *max_blocks = num_blocks > *max_blocks ? num_blocks : *max_blocks;
    }
    return PKV_OK;
}

static enum pkv_status carve_groups(const struct pkv_cache_config *config,
                                    const struct config_budget *budget, pkv_cache *cache,
                                    struct carver *carver)
{
    size_t max_blocks = 0;
    for (int32_t g = 0; g < config->num_groups; g++) {
        struct config_group of;
        const enum pkv_status status = config_group_of(config, budget, g, &of);
        if (status != PKV_OK) {
            return status;
        }
        struct group counted;
        struct group *group = carver->base != NULL ? &cache->groups[g] : &counted;
        group_carve(config, &of, group, carver);
        reservation_carve(config, of.max_blocks > 0, &group->step, carver);
        const size_t num_blocks = of.max_blocks > 0 ? (size_t)of.config.num_blocks : 0;
        max_blocks = num_blocks > max_blocks ? num_blocks : max_blocks;
    }
    const enum pkv_status status = carve_states(config, budget, cache, carver, &max_blocks);
    if (status != PKV_OK) {
        return status;
    }
    cache->tallies = carve(carver, max_blocks, sizeof *cache->tallies);
    return PKV_OK;
}

/* Where events keep tokens, none unless they are to. */
static void carve_event_tokens(const struct pkv_cache_config *config, struct events *events,
                               struct carver *carver)
{
    const size_t num_events = (size_t)config->num_events;
    const size_t block_size = (size_t)config_node_tokens(config);
    if (config->event_tokens && num_events > 0) {
        events->token_ids = carve(carver, num_events, block_size * sizeof *events->token_ids);
        events->token_extra = carve(carver, num_events, block_size * sizeof *events->token_extra);
    }
}

/* The arrays of tiers: none without them. */
static enum pkv_status carve_offload(const struct pkv_cache_config *config,
                                     const struct config_budget *budget, pkv_cache *cache,
                                     struct carver *carver)
{
    int32_t num_blocks[CONFIG_MAX_PREFIX_GROUPS];
    for (int32_t g = 0; config->num_tiers > 0 && g < config->num_groups; g++) {
        struct config_group of;
        const enum pkv_status status = config_group_of(config, budget, g, &of);
        if (status != PKV_OK) {
            return status;
        }
        num_blocks[g] = of.config.num_blocks;
    }
    if (config->num_tiers > 0) {
        offload_carve(config, num_blocks, reuse_num_nodes(config, num_blocks), &cache->offload,
                      carver);
    }
    return PKV_OK;
}

/* The arrays of the prefix cache: none without it. */
static void carve_reuse(const struct pkv_cache_config *config, pkv_cache *cache,
                        struct carver *carver)
{
    if (config->prefix_cache) {
        const size_t num_pins = (size_t)config->max_pinned_blocks;
        const size_t num_events = (size_t)config->num_events;
        reuse_carve(config, &cache->reuse, carver);
        cache->pins.at = carve(carver, num_pins, sizeof *cache->pins.at);
        cache->events.ring = carve(carver, num_events, sizeof *cache->events.ring);
        carve_event_tokens(config, &cache->events, carver);
    }
}

enum pkv_status cache_carve(const struct pkv_cache_config *config,
                            const struct config_budget *budget, pkv_cache *cache,
                            struct carver *carver)
{
    const size_t num_states = (size_t)config_num_states(config);
    const size_t num_groups = (size_t)config->num_groups + num_states;
    const size_t num_layers = (size_t)config->num_layers;
    cache->group_configs = carve(carver, num_groups, sizeof *cache->group_configs);
    cache->layer_configs = carve(carver, num_layers, sizeof *cache->layer_configs);
    cache->groups = carve(carver, (size_t)config->num_groups, sizeof *cache->groups);
    cache->states = carve(carver, num_states, sizeof *cache->states);
    cache->num_states = (int32_t)num_states;
    cache->layers = carve(carver, num_layers, sizeof *cache->layers);
    cache->seqs.at = carve(carver, (size_t)config->max_seqs, sizeof *cache->seqs.at);
    step_carve(config, &cache->step, carver);
    cache->label = label_copy(config->metrics_label, carver);
    for (int32_t i = 0; i < config->num_layers; i++) {
        if (config_is_state_layer(config, i)) {
            continue;
        }
        constants_copy(config, i, carver, cache->layer_configs);
    }
    enum pkv_status status = carve_groups(config, budget, cache, carver);
    if (status == PKV_OK) {
        status = carve_offload(config, budget, cache, carver);
    }
    if (status != PKV_OK) {
        return status;
    }
    carve_reuse(config, cache, carver);
    const enum pkv_status swap = swap_area_carve(config, &cache->swap, carver);
    if (swap != PKV_OK) {
        return swap;
    }
    return carver->overflows ? INVALID("the cache's tables overflow size_t") : PKV_OK;
}
