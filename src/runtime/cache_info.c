/* SPDX-License-Identifier: MIT
 *
 * The public calls that read a cache back: its config in force, a layer's pages, counts of a group.
 */
#include "base/error.h"
#include "base/sized.h"
#include "runtime/cache.h"

static struct pkv_cache_config config_in_force(const pkv_cache *cache)
{
    struct pkv_cache_config config = cache->config;
    config.num_threads = pkv_workspace_num_threads(cache->workspace);
    config.isa = pkv_workspace_isa(cache->workspace);
    config.hooks = (struct pkv_hooks){0};
    const bool has_reuse = cache_has_reuse(cache);
    config.num_index_nodes = has_reuse ? prefix_index_num_nodes(cache->reuse.index) : 0;
    config.max_namespaces = has_reuse ? prefix_index_max_namespaces(cache->reuse.index) : 0;
    config.num_groups += cache->num_states;
    config.fingerprint = NULL;
    config.fingerprint_bytes = 0;
    return config;
}

enum pkv_status pkv_cache_describe(const pkv_cache *cache, struct pkv_cache_config *config)
{
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    const enum pkv_status status =
        sized_check("config", config, struct pkv_cache_config, masked_hash_bits);
    if (status == PKV_OK) {
        const struct pkv_cache_config found = config_in_force(cache);
        sized_fill(config, &found);
    }
    return status;
}

enum pkv_status pkv_cache_view(const pkv_cache *cache, int32_t layer, struct pkv_kv_view *view)
{
    if (cache == NULL || view == NULL) {
        return INVALID("%s is NULL", cache == NULL ? "cache" : "view");
    }
    if (layer < 0 || layer >= cache->config.num_layers) {
        return INVALID("layer = %d, outside [0, %d)", layer, cache->config.num_layers);
    }
    if (cache->layers[layer].owner == LAYER_OF_STATES) {
        return INVALID("layer %d keeps states, not keys and values", layer);
    }
    *view = cache->layers[layer].view;
    return PKV_OK;
}

static void read_states(pkv_cache *cache, const struct state_group *states,
                        struct pkv_group_usage *usage)
{
    cache_lock(cache);
    const int32_t num_free = block_num_free(&states->blocks);
    const struct pkv_group_usage found = {
        .num_blocks = states->config->num_blocks,
        .free = num_free,
        .held = states->config->num_blocks - num_free,
        .cached = block_num_cached(&states->blocks),
        .pinned = states->blocks.num_pinned,
        .promised = num_free - state_list_num_spare(states),
    };
    cache_unlock(cache);
    sized_fill(usage, &found);
}

enum pkv_status pkv_cache_usage(pkv_cache *cache, int32_t group, struct pkv_group_usage *usage)
{
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    const enum pkv_status status = sized_check("usage", usage, struct pkv_group_usage, pinned);
    if (status != PKV_OK) {
        return status;
    }
    if (group < 0 || group >= cache->config.num_groups + cache->num_states) {
        return INVALID("group = %d, outside [0, %d)", group,
                       cache->config.num_groups + cache->num_states);
    }
    if (group >= cache->config.num_groups) {
        read_states(cache, &cache->states[group - cache->config.num_groups], usage);
        return PKV_OK;
    }
    const struct group *of = &cache->groups[group];
    const bool is_paged = group_is_paged(of);
    const int32_t num_blocks = of->config->num_blocks;
    cache_lock(cache);
    const int32_t num_free = is_paged ? block_num_free(&of->blocks) : pkv_slots_num_free(of->slots);
    const struct pkv_group_usage found = {
        .num_blocks = num_blocks,
        .free = num_free,
        .held = num_blocks - num_free,
        .cached = is_paged ? block_num_cached(&of->blocks) : 0,
        .pinned = of->blocks.num_pinned,
        .promised = is_paged ? num_free - seq_table_num_spare(&of->tables) : 0,
    };
    cache_unlock(cache);
    sized_fill(usage, &found);
    return PKV_OK;
}
