/* SPDX-License-Identifier: MIT
 *
 * Building a cache and taking it apart. Everything but payload, block tables and what the modules
 * below take for themselves is cut from one allocation, by carve_cache: it runs once without memory
 * to count and once with memory to assign, so the size that pkv_cache_size reports is the size that
 * create takes. A half-built cache is zeroed memory with some members set, and free_cache frees it
 * like any other. */
#include "runtime/cache.h"

#include <string.h>

#include "alloc/block_pool.h"
#include "attn/view.h"
#include "base/carve.h"
#include "base/checked.h"
#include "base/error.h"
#include "pages/page_store.h"
#include "runtime/blocks.h"
#include "runtime/config.h"
#include "runtime/constants.h"
#include "runtime/handle.h"
#include "runtime/prefix.h"
#include "runtime/reservation.h"
#include "runtime/sequence.h"
#include "slots/slot_map.h"

static void carve_group(const struct pkv_cache_config *config, const struct config_group *of,
                        struct group *group, struct carver *carver)
{
    const size_t max_rows = (size_t)config->max_step_rows;
    group->seq_tables = carve(carver, (size_t)config->max_seqs, sizeof *group->seq_tables);
    group->step.kept_prefix = carve(carver, max_rows, sizeof *group->step.kept_prefix);
    if (of->max_blocks > 0) {
        group->blocks = carve(carver, (size_t)of->config.num_blocks, sizeof *group->blocks);
        group->step.reservations = carve(carver, max_rows, sizeof *group->step.reservations);
        group->step.copies = carve(carver, max_rows, sizeof *group->step.copies);
    } else {
        group->step.slot_ids = carve(carver, max_rows, sizeof *group->step.slot_ids);
    }
}

/* The prefix cache's arrays: none without it. max_blocks is that of a table; all groups have one
 * block_size. */
static void carve_prefix(const struct pkv_cache_config *config, struct prefix_cache *prefix,
                         struct carver *carver)
{
    if (!config->prefix_cache) {
        return;
    }
    const size_t max_blocks =
        (size_t)config_blocks_of_cells(config->max_seq_len, config->groups[0].block_size);
    const size_t num_groups = (size_t)config->num_groups;
    prefix->matched = carve(carver, max_blocks, sizeof *prefix->matched);
    prefix->windows = carve(carver, num_groups, sizeof *prefix->windows);
    prefix->pools = carve(carver, num_groups, sizeof *prefix->pools);
    prefix->pins = carve(carver, (size_t)config->max_pinned_blocks, sizeof *prefix->pins);
    prefix->events.ring = carve(carver, (size_t)config->num_events, sizeof *prefix->events.ring);
}

/* Every array of a cache. *cache holds no more than they need while counting. */
static enum pkv_status carve_cache(const struct pkv_cache_config *config,
                                   const struct config_budget *budget, pkv_cache *cache,
                                   struct carver *carver)
{
    const size_t max_seqs = (size_t)config->max_seqs;
    const size_t num_groups = (size_t)config->num_groups;
    const size_t num_layers = (size_t)config->num_layers;
    cache->group_configs = carve(carver, num_groups, sizeof *cache->group_configs);
    cache->layer_configs = carve(carver, num_layers, sizeof *cache->layer_configs);
    cache->groups = carve(carver, num_groups, sizeof *cache->groups);
    cache->layers = carve(carver, num_layers, sizeof *cache->layers);
    cache->seqs = carve(carver, max_seqs, sizeof *cache->seqs);
    step_carve(config, &cache->step, carver);
    for (int32_t i = 0; i < config->num_layers; i++) {
        constants_copy(config, i, carver, cache->layer_configs);
    }
    size_t most_blocks = 0;
    for (int32_t g = 0; g < config->num_groups; g++) {
        struct config_group of;
        const enum pkv_status status = config_group_of(config, budget, g, &of);
        if (status != PKV_OK) {
            return status;
        }
        struct group counted;
        carve_group(config, &of, carver->base != NULL ? &cache->groups[g] : &counted, carver);
        const size_t blocks = of.max_blocks > 0 ? (size_t)of.config.num_blocks : 0;
        most_blocks = blocks > most_blocks ? blocks : most_blocks;
    }
    cache->check_cells = carve(carver, most_blocks, sizeof *cache->check_cells);
    carve_prefix(config, &cache->prefix, carver);
    return carver->overflows ? refuse(PKV_INVALID_ARGUMENT, "the cache's tables overflow size_t")
                             : PKV_OK;
}

/* What the modules below take for themselves. */
static size_t module_bytes(const struct pkv_cache_config *config, const struct config_group *group)
{
    return page_store_bytes() + (group->max_blocks > 0 ? block_pool_bytes(group->config.num_blocks)
                                                       : slot_map_bytes(config->max_seqs));
}

static bool table_bytes_of(const struct pkv_cache_config *config, const struct config_group *group,
                           size_t *bytes)
{
    const size_t stride =
        group->max_blocks > 0 ? config_row_stride(group->max_blocks, sizeof(int32_t)) : 0;
    return checked_mul((size_t)config->max_seqs, stride, bytes) &&
           checked_mul(*bytes, sizeof(int32_t), bytes);
}

static enum pkv_status add_group_sizes(const struct pkv_cache_config *config,
                                       const struct config_budget *budget, int32_t g,
                                       struct pkv_cache_sizes *sizes)
{
    struct config_group group;
    enum pkv_status status = config_group_of(config, budget, g, &group);
    if (status != PKV_OK) {
        return status;
    }
    const struct pkv_page_geometry geometry = config_geometry(&group);
    struct pkv_page_sizes pages;
    status = pkv_page_sizes_of(&geometry, &pages);
    if (status != PKV_OK) {
        return status;
    }
    size_t tables = 0;
    const bool fits =
        table_bytes_of(config, &group, &tables) &&
        checked_add(sizes->table_bytes, tables, &sizes->table_bytes) &&
        checked_add(sizes->payload_bytes, pages.payload_bytes, &sizes->payload_bytes) &&
        checked_add(sizes->token_bytes, pages.token_bytes, &sizes->token_bytes) &&
        checked_add(sizes->metadata_bytes, module_bytes(config, &group), &sizes->metadata_bytes);
    return fits ? PKV_OK : refuse(PKV_INVALID_ARGUMENT, "groups[%d]: its bytes overflow size_t", g);
}

static enum pkv_status add_prefix_sizes(const struct pkv_cache_config *config,
                                        const struct config_budget *budget,
                                        struct pkv_cache_sizes *sizes)
{
    int32_t num_blocks[CONFIG_MAX_PREFIX_GROUPS] = {0};
    for (int32_t g = 0; config->prefix_cache && g < config->num_groups; g++) {
        struct config_group group;
        const enum pkv_status status = config_group_of(config, budget, g, &group);
        if (status != PKV_OK) {
            return status;
        }
        num_blocks[g] = group.config.num_blocks;
    }
    return config->prefix_cache ? prefix_size_of(config, num_blocks, sizes) : PKV_OK;
}

/* Sizes of a checked and resolved config. */
static enum pkv_status size_of(const struct pkv_cache_config *config,
                               const struct config_budget *budget, struct pkv_cache_sizes *sizes)
{
    pkv_cache counted;
    struct carver carver = {0};
    enum pkv_status status = carve_cache(config, budget, &counted, &carver);
    *sizes = (struct pkv_cache_sizes){0};
    for (int32_t g = 0; status == PKV_OK && g < config->num_groups; g++) {
        status = add_group_sizes(config, budget, g, sizes);
    }
    if (status == PKV_OK) {
        status = add_prefix_sizes(config, budget, sizes);
    }
    if (status == PKV_OK) {
        sizes->metadata_bytes +=
            hooks_array_bytes(1, sizeof(pkv_cache)) + hooks_array_bytes(carver.used, 1);
    }
    return status;
}

enum pkv_status pkv_cache_size(const struct pkv_cache_config *config, struct pkv_cache_sizes *sizes)
{
    if (sizes == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "sizes is NULL");
    }
    enum pkv_status status = config_check(config);
    if (status != PKV_OK) {
        return status;
    }
    const struct pkv_cache_config resolved = config_resolve(config);
    struct config_budget budget;
    status = config_share(&resolved, resolved.bytes, false, &budget);
    struct pkv_cache_sizes found;
    if (status == PKV_OK) {
        status = size_of(&resolved, &budget, &found);
    }
    if (status == PKV_OK) {
        *sizes = found;
    }
    return status;
}

static void free_group(pkv_cache *cache, struct group *group)
{
    pkv_plan_destroy(group->step.plan);
    pkv_slots_destroy(group->slots);
    pkv_pool_destroy(group->pool);
    pkv_pages_destroy(group->pages);
    mem_unmap(&cache->mem.routed, group->tables, group->table_bytes);
}

static void free_cache(pkv_cache *cache)
{
    const struct pkv_hooks hooks = cache->mem.user;
    prefix_free(cache);
    for (int32_t g = 0; cache->groups != NULL && g < cache->config.num_groups; g++) {
        free_group(cache, &cache->groups[g]);
    }
    pkv_workspace_destroy(cache->workspace);
    hooks_free_array(&cache->mem.routed, cache->arrays, cache->array_bytes, 1);
    if (cache->has_mutex) {
        pthread_mutex_destroy(&cache->mutex);
        pthread_mutex_destroy(&cache->gate);
    }
    mem_close(&cache->mem);
    hooks_free_array(&hooks, cache, 1, sizeof *cache);
}

static enum pkv_status build_arrays(pkv_cache *cache, const struct config_budget *budget)
{
    struct carver carver = {0};
    enum pkv_status status = carve_cache(&cache->config, budget, cache, &carver);
    if (status != PKV_OK) {
        return status;
    }
    cache->arrays = hooks_alloc_array(&cache->mem.routed, carver.used, 1);
    if (cache->arrays == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for %zu bytes of metadata", carver.used);
    }
    cache->array_bytes = carver.used;
    carver = (struct carver){.base = cache->arrays};
    return carve_cache(&cache->config, budget, cache, &carver);
}

/* Copies the config's arrays, constants apart, which carve_cache copied; the cache's config points
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
    for (int32_t g = 0; g < config->num_groups; g++) {
        struct config_group of;
        const enum pkv_status status = config_group_of(config, budget, g, &of);
        if (status != PKV_OK) {
            return status;
        }
        cache->group_configs[g] = of.config;
        cache->groups[g].num_owners = of.num_owners;
        cache->groups[g].max_blocks = of.max_blocks;
        cache->groups[g].config = &cache->group_configs[g];
        cache->groups[g].index = g;
    }
    config->groups = cache->group_configs;
    config->layers = cache->layer_configs;
    cache->rope_positions = constants_rope_positions(config);
    return PKV_OK;
}

static enum pkv_status build_tables(pkv_cache *cache, struct group *group,
                                    const struct config_group *of)
{
    size_t bytes = 0;
    if (!table_bytes_of(&cache->config, of, &bytes)) {
        return refuse(PKV_INVALID_ARGUMENT, "block tables overflow size_t");
    }
    group->tables = mem_map(&cache->mem.routed, bytes);
    if (group->tables == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for %zu bytes of block tables", bytes);
    }
    group->table_bytes = bytes;
    group->table_stride = config_row_stride(group->max_blocks, sizeof(int32_t));
    for (int32_t i = 0; i < group->config->num_blocks; i++) {
        group->blocks[i].writer = NO_SEQ;
    }
    return pkv_pool_create(group->config->num_blocks, &cache->mem.routed, &group->pool);
}

static enum pkv_status build_group(pkv_cache *cache, struct group *group)
{
    const struct config_group of = {
        .config = *group->config, .num_owners = group->num_owners, .max_blocks = group->max_blocks};
    const struct pkv_page_geometry geometry = config_geometry(&of);
    enum pkv_status status = pkv_pages_create(&geometry, &cache->mem.routed, &group->pages);
    if (status == PKV_OK) {
        status = group->max_blocks > 0
                     ? build_tables(cache, group, &of)
                     : pkv_slots_create(cache->config.max_seqs, cache->config.max_seq_len,
                                        &cache->mem.routed, &group->slots);
    }
    if (status == PKV_OK) {
        status = pkv_pages_view(group->pages, 0, &group->first_view);
    }
    struct pkv_page_sizes sizes;
    if (status == PKV_OK) {
        status = pkv_page_sizes_of(&geometry, &sizes);
    }
    if (status != PKV_OK) {
        return status;
    }
    view_resolve(&group->first_view);
    group->layer_stride_bytes = sizes.payload_bytes / (size_t)group->num_owners;
    group->shape = (struct gqa_shape){
        .kv_heads = group->config->kv_heads,
        .k_width = group->config->k_width,
        .v_width = group->config->v_width,
        .v_in_k = group->config->v_in_k,
        .block_size = group->config->block_size,
        .sliding_window = (int32_t)group->config->sliding_window,
    };
    return PKV_OK;
}

/* Which layer of its group's store an owner has: the number of owners before it. */
static int32_t store_layer_of(const pkv_cache *cache, int32_t layer)
{
    int32_t count = 0;
    for (int32_t i = 0; i < layer; i++) {
        count += cache->layer_configs[i].group == cache->layer_configs[layer].group &&
                 !cache->layer_configs[i].shares_kv;
    }
    return count;
}

static enum pkv_status build_layers(pkv_cache *cache)
{
    for (int32_t i = 0; i < cache->config.num_layers; i++) {
        const struct pkv_layer_config *config = &cache->layer_configs[i];
        struct layer *layer = &cache->layers[i];
        struct group *group = &cache->groups[config->group];
        layer->group = config->group;
        layer->num_heads = config->num_heads;
        layer->owner = config->kv_layer;
        layer->constants = &config->constants;
        if (config->num_heads > group->shape.max_heads) {
            group->shape.max_heads = config->num_heads;
        }
        if (config->shares_kv) {
            layer->view = cache->layers[layer->owner].view;
            continue;
        }
        const enum pkv_status status =
            pkv_pages_view(group->pages, store_layer_of(cache, i), &layer->view);
        if (status != PKV_OK) {
            return status;
        }
        view_resolve(&layer->view);
    }
    return PKV_OK;
}

static void build_seqs(pkv_cache *cache)
{
    const uint64_t generation = handle_first_generation(cache);
    const int32_t max_seqs = cache->config.max_seqs;
    for (int32_t i = 0; i < max_seqs; i++) {
        cache->seqs[i].generation = generation;
        cache->seqs[i].next_free = i + 1 < max_seqs ? i + 1 : NO_SEQ;
    }
    cache->first_free_seq = 0;
    cache->num_free_seqs = max_seqs;
    cache->step.generation = generation;
}

static enum pkv_status build_attention(pkv_cache *cache)
{
    enum pkv_status status = pkv_workspace_create(cache->config.num_threads, cache->config.isa,
                                                  &cache->mem.routed, &cache->workspace);
    for (int32_t g = 0; status == PKV_OK && g < cache->config.num_groups; g++) {
        status = pkv_plan_create(cache->workspace, &cache->groups[g].step.plan);
    }
    return status;
}

static enum pkv_status build(pkv_cache *cache, const struct config_budget *budget)
{
    if (pthread_mutex_init(&cache->mutex, NULL) != 0) {
        return refuse(PKV_NO_MEMORY, "no memory for a mutex");
    }
    if (pthread_mutex_init(&cache->gate, NULL) != 0) {
        pthread_mutex_destroy(&cache->mutex);
        return refuse(PKV_NO_MEMORY, "no memory for a mutex");
    }
    cache->has_mutex = true;
    enum pkv_status status = build_arrays(cache, budget);
    if (status == PKV_OK) {
        status = copy_config(cache, budget);
    }
    for (int32_t g = 0; status == PKV_OK && g < cache->config.num_groups; g++) {
        status = build_group(cache, &cache->groups[g]);
    }
    if (status == PKV_OK) {
        status = build_layers(cache);
    }
    if (status == PKV_OK) {
        build_seqs(cache);
        status = prefix_build(cache);
    }
    return status == PKV_OK ? build_attention(cache) : status;
}

enum pkv_status pkv_cache_create(const struct pkv_cache_config *config, pkv_cache **cache)
{
    if (cache == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "cache is NULL");
    }
    struct pkv_cache_sizes sizes;
    enum pkv_status status = pkv_cache_size(config, &sizes);
    if (status != PKV_OK) {
        return status;
    }
    struct config_budget budget;
    const struct pkv_cache_config resolved = config_resolve(config);
    status = config_share(&resolved, resolved.bytes, false, &budget);
    if (status != PKV_OK) {
        return status;
    }
    pkv_cache *built = hooks_alloc_array(&config->hooks, 1, sizeof *built);
    if (built == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for a cache");
    }
    built->config = resolved;
    status = mem_open(&built->mem, &config->hooks);
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
    cache_unlock(cache);
    if (is_open && !force) {
        return refuse(PKV_BUSY, "a step is open");
    }
    free_cache(cache);
    return PKV_OK;
}

enum pkv_status pkv_cache_describe(const pkv_cache *cache, struct pkv_cache_config *config)
{
    if (cache == NULL || config == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "%s is NULL", cache == NULL ? "cache" : "config");
    }
    *config = cache->config;
    config->num_threads = pkv_workspace_num_threads(cache->workspace);
    config->isa = pkv_workspace_isa(cache->workspace);
    config->hooks = (struct pkv_hooks){0};
    const bool has_prefix = cache_has_prefix(cache);
    config->num_index_nodes = has_prefix ? prefix_index_num_nodes(cache->prefix.index) : 0;
    config->max_namespaces = has_prefix ? prefix_index_max_namespaces(cache->prefix.index) : 0;
    config->fingerprint = NULL;
    config->fingerprint_bytes = 0;
    return PKV_OK;
}

enum pkv_status pkv_cache_view(const pkv_cache *cache, int32_t layer, struct pkv_kv_view *view)
{
    if (cache == NULL || view == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "%s is NULL", cache == NULL ? "cache" : "view");
    }
    if (layer < 0 || layer >= cache->config.num_layers) {
        return refuse(PKV_INVALID_ARGUMENT, "layer = %d, outside [0, %d)", layer,
                      cache->config.num_layers);
    }
    *view = cache->layers[layer].view;
    return PKV_OK;
}

enum pkv_status pkv_cache_usage(pkv_cache *cache, int32_t group, struct pkv_group_usage *usage)
{
    if (cache == NULL || usage == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "%s is NULL", cache == NULL ? "cache" : "usage");
    }
    if (group < 0 || group >= cache->config.num_groups) {
        return refuse(PKV_INVALID_ARGUMENT, "group = %d, outside [0, %d)", group,
                      cache->config.num_groups);
    }
    const struct group *of = &cache->groups[group];
    const bool is_paged = group_is_paged(of);
    const int32_t num_blocks = of->config->num_blocks;
    cache_lock(cache);
    const int32_t num_free = is_paged ? blocks_num_free(of) : pkv_slots_num_free(of->slots);
    *usage = (struct pkv_group_usage){
        .num_blocks = num_blocks,
        .free = num_free,
        .held = num_blocks - num_free,
        .cached = is_paged ? blocks_num_cached(of) : 0,
        .pinned = of->num_pinned,
    };
    cache_unlock(cache);
    return PKV_OK;
}
