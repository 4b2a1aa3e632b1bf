/* SPDX-License-Identifier: MIT
 *
 * The public calls that size a cache before anything is allocated. Sizes are exact: every module
 * computes what it will take. */
#include "base/checked.h"
#include "base/sized.h"
#include "runtime/cache_carve.h"
#include "runtime/config_check.h"

static enum pkv_status add_groups(const struct pkv_cache_config *config,
                                  const struct config_budget *budget, struct pkv_cache_sizes *sizes)
{
    int32_t num_blocks[CONFIG_MAX_PREFIX_GROUPS] = {0};
    enum pkv_status status = PKV_OK;
    for (int32_t g = 0; status == PKV_OK && g < config->num_groups + config_num_states(config);
         g++) {
        struct config_group of;
        status = config_group_of(config, budget, g, &of);
        if (status == PKV_OK) {
            status = g < config->num_groups ? group_add_sizes(config, g, &of, sizes)
                                            : state_group_add_sizes(&of, g, sizes);
        }
        if (status == PKV_OK && config->prefix_cache) {
            num_blocks[g] = of.config.num_blocks;
        }
    }
    return status == PKV_OK && config->prefix_cache ? reuse_add_sizes(config, num_blocks, sizes)
                                                    : status;
}

/* Sizes of a checked and resolved config. */
static enum pkv_status size_of(const struct pkv_cache_config *config,
                               const struct config_budget *budget, struct pkv_cache_sizes *sizes)
{
    pkv_cache counted;
    struct carver carver = {0};
    *sizes = (struct pkv_cache_sizes){0};
    enum pkv_status status = cache_carve(config, budget, &counted, &carver);
    if (status == PKV_OK) {
        status = add_groups(config, budget, sizes);
    }
    size_t tickets = 0;
    if (status == PKV_OK && config->num_tiers > 0 &&
        (!offload_size(config, &tickets) ||
         !checked_add(sizes->table_bytes, tickets, &sizes->table_bytes))) {
        status = INVALID("max_tickets = %d of max_seq_len %d: their tables overflow",
                         config->max_tickets, config->max_seq_len);
    }
    if (status == PKV_OK) {
        sizes->swap_bytes = counted.swap.bytes;
        sizes->metadata_bytes +=
            hooks_array_bytes(1, sizeof(pkv_cache)) + hooks_array_bytes(carver.used, 1);
    }
    return status;
}

enum pkv_status pkv_cache_size(const struct pkv_cache_config *given, struct pkv_cache_sizes *sizes)
{
    struct pkv_cache_config config;
    enum pkv_status status = sized_check("sizes", sizes, struct pkv_cache_sizes, token_bytes);
    if (status == PKV_OK) {
        status = config_take(given, &config);
    }
    if (status != PKV_OK) {
        return status;
    }
    const struct pkv_cache_config resolved = config_resolve(&config);
    struct config_budget budget;
    status = config_share(&resolved, resolved.bytes, false, &budget);
    struct pkv_cache_sizes found;
    if (status == PKV_OK) {
        status = size_of(&resolved, &budget, &found);
    }
    if (status == PKV_OK) {
        sized_fill(sizes, &found);
    }
    return status;
}

enum pkv_status pkv_cache_blocks_for_bytes(const struct pkv_cache_config *given, size_t bytes,
                                           int32_t *num_blocks)
{
    if (num_blocks == NULL) {
        return INVALID("num_blocks is NULL");
    }
    struct pkv_cache_config config;
    enum pkv_status status = config_take(given, &config);
    if (status != PKV_OK) {
        return status;
    }
    struct config_budget budget;
    status = config_share(&config, bytes, true, &budget);
    struct config_group group;
    for (int32_t g = 0; status == PKV_OK && g < config.num_groups; g++) {
        status = config_group_of(&config, &budget, g, &group);
    }
    for (int32_t g = 0; status == PKV_OK && g < config.num_groups; g++) {
        status = config_group_of(&config, &budget, g, &group);
        num_blocks[g] = group.config.num_blocks;
    }
    return status;
}
