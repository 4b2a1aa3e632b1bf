/* SPDX-License-Identifier: MIT
 *
 * A cache is built part by part, from bottom to top, and taken apart. A half-built cache is zeroed
 * memory with some members set, and free_cache frees it like any other. */
#include "base/sized.h"
#include "runtime/cache_carve.h"
#include "runtime/constants.h"
#include "runtime/fingerprint.h"
#include "runtime/handle.h"
#include "runtime/tier_work.h"

static void free_cache(pkv_cache *cache)
{
    const struct pkv_hooks hooks = cache->mem.user;
    tier_threads_stop(cache);
    offload_free(&cache->offload, &cache->mem.routed);
    reuse_free(&cache->reuse, &cache->mem.routed);
    for (int32_t g = 0; cache->groups != NULL && g < cache->config.num_groups; g++) {
        pkv_plan_destroy(cache->groups[g].step.plan);
        group_free(&cache->groups[g], &cache->mem.routed);
    }
    for (int32_t s = 0; cache->states != NULL && s < cache->num_states; s++) {
        state_group_free(&cache->states[s]);
    }
    swap_area_free(&cache->swap, &cache->mem.routed);
    pkv_plan_destroy(cache->selected_plan);
    pkv_workspace_destroy(cache->workspace);
    hooks_free_array(&cache->mem.routed, cache->arrays, cache->array_bytes, 1);
    if (cache->has_mutex) {
        pthread_mutex_destroy(&cache->mutex);
        pthread_mutex_destroy(&cache->gate);
    }
    mem_close(&cache->mem);
    hooks_free_array(&hooks, cache, 1, sizeof *cache);
}

static enum pkv_status build_mutex(pkv_cache *cache)
{
    if (pthread_mutex_init(&cache->mutex, NULL) != 0) {
        return refuse(PKV_NO_MEMORY, "no memory for a mutex");
    }
    if (pthread_mutex_init(&cache->gate, NULL) != 0) {
        pthread_mutex_destroy(&cache->mutex);
        return refuse(PKV_NO_MEMORY, "no memory for a mutex");
    }
    cache->has_mutex = true;
    return PKV_OK;
}

static enum pkv_status build_arrays(pkv_cache *cache, const struct config_budget *budget)
{
    struct carver carver = {0};
    enum pkv_status status = cache_carve(&cache->config, budget, cache, &carver);
    if (status != PKV_OK) {
        return status;
    }
    cache->arrays = hooks_alloc_array(&cache->mem.routed, carver.used, 1);
    if (cache->arrays == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for %zu bytes of metadata", carver.used);
    }
    cache->array_bytes = carver.used;
    carver = (struct carver){.base = cache->arrays};
    return cache_carve(&cache->config, budget, cache, &carver);
}

/* Copies the config's arrays, constants apart, which cache_carve copied; the cache's config points
 * to the copies from now on. */
static enum pkv_status copy_config(pkv_cache *cache, const struct config_budget *budget)
{
    struct pkv_cache_config *config = &cache->config;
    for (int32_t i = 0; i < config->num_layers; i++) {
        const struct pkv_layer_config *from = &config->layers[i];
        struct pkv_layer_config *layer = &cache->layer_configs[i];
        layer->group = from->group;
        layer->num_heads = from->num_heads;
        layer->shares_kv = from->shares_kv;
        layer->kv_layer = from->shares_kv ? from->kv_layer : i;
    }
    for (int32_t g = 0; g < config->num_groups + cache->num_states; g++) {
        struct config_group of;
        const enum pkv_status status = config_group_of(config, budget, g, &of);
        if (status != PKV_OK) {
            return status;
        }
        cache->group_configs[g] = of.config;
    }
    config->groups = cache->group_configs;
    config->layers = cache->layer_configs;
    config->metrics_label = cache->label;
    cache->rope_positions = constants_rope_positions(config);
    return PKV_OK;
}

static enum pkv_status build_groups(pkv_cache *cache, const struct config_budget *budget)
{
    const struct pkv_cache_config *config = &cache->config;
    enum pkv_status status = PKV_OK;
    for (int32_t g = 0; status == PKV_OK && g < config->num_groups; g++) {
        struct config_group of;
        status = config_group_of(config, budget, g, &of);
        if (status == PKV_OK) {
            status = group_build(&cache->groups[g], g, config, &of, &cache->mem.routed);
        }
        cache->groups[g].blocks.context = &cache->block_context;
    }
    for (int32_t s = 0; status == PKV_OK && s < cache->num_states; s++) {
        const int32_t g = config->num_groups + s;
        struct config_group of;
        status = config_group_of(config, budget, g, &of);
        if (status == PKV_OK) {
            status = state_group_build(&cache->states[s], g, config, &of, &cache->mem.routed);
        }
        cache->states[s].blocks.context = &cache->block_context;
    }
    return status == PKV_OK ? layer_build(cache->layers, config, cache->groups) : status;
}

static void build_records(pkv_cache *cache, uint64_t generation)
{
    const struct pkv_cache_config *config = &cache->config;
    sequence_init(&cache->seqs, config->max_seqs, generation);
    cache->step.generation = generation;
    cache->block_context.counters = &cache->counters;
    cache->pins.context = &cache->block_context;
    cache->block_context.scrub = config->poison_freed ? BLOCK_SCRUB_POISON
                                 : config->zero_freed ? BLOCK_SCRUB_ZERO
                                                      : BLOCK_SCRUB_NONE;
}

/* The index, and what needs it. */
static enum pkv_status build_reuse(pkv_cache *cache, uint64_t generation)
{
    struct pkv_cache_config *config = &cache->config;
    if (!config->prefix_cache) {
        return PKV_OK;
    }
    const enum pkv_status status = reuse_build(&cache->reuse, config, cache->groups, cache->states,
                                               generation, &cache->events, &cache->mem);
    config->fingerprint = NULL; /* the caller's */
    cache->block_context.index = cache->reuse.index;
    events_init(&cache->events, cache->reuse.index, config->num_events);
    cache->pins.groups = cache->groups;
    cache->pins.states = cache->states;
    cache->pins.num_states = cache->num_states;
    cache->pins.num_groups = config->num_groups;
    pin_init(&cache->pins, config->max_pinned_blocks, generation);
    return status;
}

/* Tiers, and the threads that read and write them. */
static enum pkv_status build_offload(pkv_cache *cache, uint64_t generation)
{
    struct pkv_cache_config *config = &cache->config;
    if (config->num_tiers == 0) {
        return PKV_OK;
    }
    enum pkv_status status = offload_build(&cache->offload, config, cache->reuse.index,
                                           cache->groups, generation, &cache->mem.routed);
    config->tiers = cache->offload.tiers;
    cache->events.known = &cache->offload.known;
    return status == PKV_OK ? tier_threads_start(cache) : status;
}

static enum pkv_status build_attention(pkv_cache *cache)
{
    enum pkv_status status = pkv_workspace_create(cache->config.num_threads, cache->config.isa,
                                                  &cache->mem.routed, &cache->workspace);
    for (int32_t g = 0; status == PKV_OK && g < cache->config.num_groups; g++) {
        status = pkv_plan_create(cache->workspace, &cache->groups[g].step.plan);
    }
    return status == PKV_OK ? pkv_plan_create(cache->workspace, &cache->selected_plan) : status;
}

static enum pkv_status build(pkv_cache *cache, const struct config_budget *budget)
{
    const uint64_t generation = handle_first_generation(cache);
    enum pkv_status status = build_mutex(cache);
    if (status == PKV_OK) {
        status = build_arrays(cache, budget);
    }
    if (status == PKV_OK) {
        status = copy_config(cache, budget);
    }
    if (status == PKV_OK) {
        status = build_groups(cache, budget);
    }
    if (status == PKV_OK) {
        build_records(cache, generation);
        status = build_reuse(cache, generation);
    }
    if (status == PKV_OK) {
        status = swap_area_build(&cache->config, &cache->swap, &cache->mem.routed);
        cache->config.swap_bytes = cache->swap.bytes;
        cache->config.swap_path = NULL; /* the caller's */
    }
    if (status == PKV_OK) {
        status = build_attention(cache);
    }
    return status == PKV_OK ? build_offload(cache, generation) : status;
}

enum pkv_status pkv_cache_create(const struct pkv_cache_config *given, pkv_cache **cache)
{
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    struct pkv_cache_config config;
    enum pkv_status status = sized_read("config", given, masked_hash_bits, &config);
    if (status == PKV_OK && given->size < SIZED_UP_TO(struct pkv_cache_config, no_partial_hits)) {
        config.no_partial_hits = true; /* what the caller's headers promise */
    }
    if (status == PKV_OK) {
        status = pkv_cache_size(&config, &sizes);
    }
    if (status != PKV_OK) {
        return status;
    }
    struct config_budget budget;
    const struct pkv_cache_config resolved = config_resolve(&config);
    status = config_share(&resolved, resolved.bytes, false, &budget);
    if (status != PKV_OK) {
        return status;
    }
    pkv_cache *built = hooks_alloc_array(&config.hooks, 1, sizeof *built);
    if (built == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for a cache");
    }
    built->config = resolved;
    built->fingerprint = fingerprint_of(&resolved);
    status = mem_open(&built->mem, &config.hooks);
    if (status == PKV_OK) {
        status = build(built, &budget);
    }
    if (status != PKV_OK) {
        free_cache(built);
        return status;
    }
    *cache = built;
    return PKV_OK;
}

void pkv_cache_close(pkv_cache *cache)
{
    if (cache != NULL) {
        cache_lock(cache);
        cache->is_closed = true;
        if (cache->offload.num_tiers > 0) {
            pthread_cond_broadcast(&cache->offload.has_work);
        }
        cache_unlock(cache);
    }
}

enum pkv_status pkv_cache_destroy(pkv_cache *cache, bool force)
{
    if (cache == NULL) {
        return PKV_OK;
    }
    cache_lock(cache);
    const bool is_open = cache->step.is_open;
    const int32_t num_tickets = cache->offload.tickets.num_open;
    cache_unlock(cache);
    if (is_open && !force) {
        return refuse(PKV_BUSY, "a step is open");
    }
    if (num_tickets > 0 && !force) {
        return refuse(PKV_BUSY, "%d tickets are open", num_tickets);
    }
    free_cache(cache);
    return PKV_OK;
}
