/* SPDX-License-Identifier: MIT
 *
 * Sizing is exact: payload from the page store's own arithmetic, and the share of a budget by long
 * division, so that no rounding ever passes the budget. */
#include "runtime/config.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/minmax.h"

int32_t config_num_states(const struct pkv_cache_config *config)
{
    int32_t end = config->num_groups;
    for (int32_t i = 0; i < config->num_layers; i++) {
        end = max_i32(end, config->layers[i].group + 1);
    }
    return end - config->num_groups;
}

int32_t config_num_owners(const struct pkv_cache_config *config, int32_t g)
{
    int32_t count = 0;
    for (int32_t i = 0; i < config->num_layers; i++) {
        count += config->layers[i].group == g && !config->layers[i].shares_kv;
    }
    return count;
}

/* Groups in front of the state groups, of a config in force or not. */
static int32_t num_attention(const struct pkv_cache_config *config)
{
    int32_t g = 0;
    while (g < config->num_groups && config->groups[g].kind == PKV_GROUP_ATTENTION) {
        g++;
    }
    return g;
}

int32_t config_node_tokens(const struct pkv_cache_config *config)
{
    int32_t smallest = config->groups[0].block_size;
    for (int32_t g = 1; g < num_attention(config); g++) {
        smallest = min_i32(smallest, config->groups[g].block_size);
    }
    return smallest;
}

int32_t config_hit_tokens(const struct pkv_cache_config *config)
{
    int32_t common = 1;
    for (int32_t g = 0; g < num_attention(config); g++) {
        const bool is_paged = config->groups[g].storage == PKV_STORAGE_PAGED;
        const int32_t block_size = is_paged ? config->groups[g].block_size : 1;
        int32_t divisor = common;
        for (int32_t rest = block_size; rest != 0;) {
            const int32_t next = divisor % rest;
            divisor = rest;
            rest = next;
        }
        common = (int32_t)min_i64((int64_t)(common / divisor) * block_size, INT32_MAX);
    }
    return common;
}

int32_t config_nodes_per_block(const struct pkv_cache_config *config, int32_t g)
{
    return config->groups[g].block_size / config_node_tokens(config);
}

bool config_has_slots(const struct pkv_cache_config *config)
{
    int32_t g = 0;
    while (g < num_attention(config) && config->groups[g].storage == PKV_STORAGE_PAGED) {
        g++;
    }
    return g < num_attention(config);
}

bool config_is_mixed(const struct pkv_cache_config *config)
{
    int32_t g = 0;
    while (g < num_attention(config) &&
           config->groups[g].block_size == config->groups[0].block_size) {
        g++;
    }
    return config->prefix_cache && g < num_attention(config);
}

#define DEFAULT_TICKETS 64
#define STATE_ALIGNMENT 64

struct pkv_cache_config config_resolve(const struct pkv_cache_config *config)
{
    struct pkv_cache_config resolved = *config;
    resolved.num_groups = num_attention(config);
    /* A sequence is in a batch at most once, so a batch never has more rows than sequences. */
    if (resolved.max_step_rows == 0 || resolved.max_step_rows > resolved.max_seqs) {
        resolved.max_step_rows = resolved.max_seqs;
    }
    resolved.prefix_cache = config->prefix_cache && !config_has_slots(config);
    /* A state is that of one length. */
    resolved.no_partial_hits =
        config->no_partial_hits || config_is_mixed(&resolved) || config_num_states(&resolved) > 0;
    if (resolved.num_tiers == 0) {
        resolved.tiers = NULL;
        resolved.num_tier_threads = 0;
        resolved.max_tickets = 0;
        resolved.max_store_blocks = 0;
        resolved.no_write_behind = false;
    } else if (resolved.max_tickets == 0) {
        resolved.max_tickets = DEFAULT_TICKETS;
    }
    return resolved;
}

struct pkv_group_config config_resolve_group(const struct pkv_cache_config *config, int32_t g)
{
    struct pkv_group_config resolved = config->groups[g];
    if (resolved.kind == PKV_GROUP_STATE) {
        if (resolved.snapshot_interval == 0) {
            resolved.snapshot_interval = config_hit_tokens(config);
        }
        return resolved;
    }
    resolved.sliding_window = min_i64(resolved.sliding_window, config->max_seq_len);
    resolved.kept_prefix = min_i64(resolved.kept_prefix, config->max_seq_len);
    if (resolved.v_width == 0) {
        resolved.v_width = resolved.k_width;
    }
    if (resolved.v_in_k) {
        resolved.v_dtype = resolved.k_dtype;
    }
    if (resolved.storage == PKV_STORAGE_CONTINUOUS) {
        resolved.block_size = config->max_seq_len;
        resolved.num_blocks = config->max_seqs;
    }
    return resolved;
}

/* All of a group but the blocks that a budget decides: those stay 0. */
static void resolve_group(const struct pkv_cache_config *config, int32_t g,
                          struct config_group *group)
{
    group->config = config_resolve_group(config, g);
    const bool is_paged =
        group->config.kind == PKV_GROUP_ATTENTION && group->config.storage == PKV_STORAGE_PAGED;
    group->num_owners = config_num_owners(config, g);
    group->max_blocks =
        is_paged ? config_blocks_of_cells(config->max_seq_len, group->config.block_size) : 0;
}

/* A state is one key of one head, with one more state than the pool has: that of zeros. */
static struct pkv_page_geometry state_geometry(const struct config_group *group)
{
    const int64_t lines = divide_up((int64_t)group->config.state_bytes, STATE_ALIGNMENT);
    const int64_t words = lines * (STATE_ALIGNMENT / (int64_t)sizeof(float));
    return (struct pkv_page_geometry){
        .size = sizeof(struct pkv_page_geometry),
        .num_layers = group->num_owners,
        .num_blocks = group->config.num_blocks + 1,
        .kv_heads = 1,
        .block_size = 1,
        .k_width = (int32_t)words,
        .v_width = 1,
        .v_in_k = true,
        .k_dtype = PKV_F32,
        .v_dtype = PKV_F32,
    };
}

struct pkv_page_geometry config_geometry(const struct config_group *group)
{
    const struct pkv_group_config *config = &group->config;
    if (config->kind == PKV_GROUP_STATE) {
        return state_geometry(group);
    }
    return (struct pkv_page_geometry){
        .size = sizeof(struct pkv_page_geometry),
        .num_layers = group->num_owners,
        .num_blocks = config->num_blocks,
        .kv_heads = config->kv_heads,
        .block_size = config->block_size,
        .k_width = config->k_width,
        .v_width = config->v_width,
        .v_in_k = config->v_in_k,
        .k_dtype = config->k_dtype,
        .v_dtype = config->v_dtype,
    };
}

int32_t config_blocks_for(const struct pkv_group_config *group, int32_t max_step_tokens,
                          int64_t num_cells, int64_t kept_prefix, int64_t max_rewind)
{
    const int32_t all = config_blocks_of_cells(num_cells, group->block_size);
    if (group->sliding_window == 0) {
        return all;
    }
    const int64_t seen = group->sliding_window + max_rewind + max_step_tokens;
    const int64_t block_size = group->block_size;
    /* One more, for a window that does not begin at a block's first cell. */
    const int64_t bound = divide_up(seen, block_size) + 1 + divide_up(kept_prefix, block_size);
    return (int32_t)min_i64(all, bound);
}

/* floor(a * b / c) for b <= c <= SIZE_MAX / 4, by long division: the product may not fit size_t. */
static size_t scaled(size_t a, size_t b, size_t c)
{
    size_t quotient = 0;
    size_t remainder = 0;
    for (size_t bit = SIZE_MAX / 2 + 1; bit != 0; bit >>= 1) {
        quotient *= 2;
        remainder = 2 * remainder + ((a & bit) != 0 ? b : 0);
        quotient += remainder / c;
        remainder %= c;
    }
    return quotient;
}

static enum pkv_status sizes_with(const struct config_group *group, int32_t num_blocks,
                                  struct pkv_page_sizes *sizes)
{
    struct config_group of = *group;
    of.config.num_blocks = num_blocks;
    const struct pkv_page_geometry geometry = config_geometry(&of);
    return pkv_page_sizes_of(&geometry, sizes);
}

/* Windows that stay cached for each sequence that runs: hits need one wherever prompts part and
 * turns end. Found by trying, see docs/performance.md. */
#define CACHED_WINDOWS 3

/* What decides a group's share of a budget: what max_seqs full sequences need, and what as many
 * more take that are cached; in a group with a window, that is one window for each. */
struct need {
    size_t needed_bytes;
    size_t cached_bytes;
};

static bool need_of(const struct pkv_cache_config *config, const struct config_group *group,
                    size_t block_bytes, struct need *need)
{
    const struct pkv_group_config *of = &group->config;
    const int64_t num_seqs = config->max_seqs;
    if (of->kind == PKV_GROUP_STATE) {
        const size_t own =
            (size_t)num_seqs * (size_t)config_num_own_states(config->prefix_cache, of->max_rewind);
        return checked_mul(block_bytes, own, &need->needed_bytes) &&
               checked_mul(block_bytes, (size_t)num_seqs, &need->cached_bytes);
    }
    const int64_t all = num_seqs * config_blocks_of_cells(config->max_seq_len, of->block_size);
    int64_t needed = all;
    int64_t cached = all;
    if (of->sliding_window > 0) { /* a step's tokens count once, as in promise.h */
        const int64_t window = config_blocks_of_cells(of->sliding_window - 1, of->block_size) +
                               config_blocks_of_cells(of->kept_prefix, of->block_size);
        const int64_t running = config_blocks_for(of, 1, config->max_seq_len, of->kept_prefix, 0);
        needed =
            num_seqs * running + config_blocks_of_cells(config->max_step_tokens, of->block_size);
        needed = min_i64(needed, all);
        cached = needed;
        if (config->prefix_cache) {
            needed = min_i64(needed + CACHED_WINDOWS * num_seqs * window, all);
            cached = num_seqs * max_i64(window, 1);
        }
    }
    return checked_mul(block_bytes, (size_t)needed, &need->needed_bytes) &&
           checked_mul(block_bytes, (size_t)cached, &need->cached_bytes);
}

static bool add_need(struct config_budget *budget, const struct need *need)
{
    return checked_add(budget->needed_bytes, need->needed_bytes, &budget->needed_bytes) &&
           checked_add(budget->cached_bytes, need->cached_bytes, &budget->cached_bytes) &&
           budget->needed_bytes <= SIZE_MAX / 4 && budget->cached_bytes <= SIZE_MAX / 4;
}

static enum pkv_status add_group(const struct pkv_cache_config *config, int32_t g,
                                 size_t *fixed_bytes, struct config_budget *budget)
{
    struct config_group group;
    resolve_group(config, g, &group);
    const int32_t num_blocks = group.config.num_blocks;
    struct pkv_page_sizes sizes = {.size = sizeof sizes};
    const enum pkv_status status = sizes_with(&group, num_blocks > 0 ? num_blocks : 1, &sizes);
    if (status != PKV_OK) {
        return status;
    }
    bool fits = true;
    if (num_blocks > 0) {
        fits = checked_add(*fixed_bytes, sizes.payload_bytes, fixed_bytes);
    } else {
        struct need need;
        fits = need_of(config, &group, sizes.block_bytes, &need) && add_need(budget, &need);
    }
    return fits ? PKV_OK : INVALID("groups[%d]: its bytes overflow size_t", g);
}

enum pkv_status config_share(const struct pkv_cache_config *config, size_t bytes, bool all_fit,
                             struct config_budget *budget)
{
    size_t fixed_bytes = 0;
    *budget = (struct config_budget){0};
    for (int32_t g = 0; g < config->num_groups + config_num_states(config); g++) {
        const enum pkv_status status = add_group(config, g, &fixed_bytes, budget);
        if (status != PKV_OK) {
            return status;
        }
    }
    if ((all_fit || budget->needed_bytes > 0) && fixed_bytes > bytes) {
        return refuse(PKV_NEVER_FITS, "bytes = %zu, below the %zu of groups with fixed blocks",
                      bytes, fixed_bytes);
    }
    budget->shared_bytes = fixed_bytes > bytes ? 0 : bytes - fixed_bytes;
    return PKV_OK;
}

/* Up to what is needed, in proportion to that; the rest in proportion to what is cached. */
static size_t share_of(const struct config_budget *budget, const struct need *need)
{
    if (budget->shared_bytes <= budget->needed_bytes) {
        return scaled(budget->shared_bytes, need->needed_bytes, budget->needed_bytes);
    }
    return need->needed_bytes + scaled(budget->shared_bytes - budget->needed_bytes,
                                       need->cached_bytes, budget->cached_bytes);
}

/* The largest number of blocks whose payload, padding included, stays within the group's share. */
static enum pkv_status blocks_of_share(const struct pkv_cache_config *config,
                                       const struct config_budget *budget,
                                       const struct config_group *group, int32_t *num_blocks)
{
    struct pkv_page_sizes sizes = {.size = sizeof sizes};
    enum pkv_status status = sizes_with(group, 1, &sizes);
    struct need need = {0};
    if (status != PKV_OK || !need_of(config, group, sizes.block_bytes, &need)) {
        return status;
    }
    const size_t share = share_of(budget, &need);
    const size_t max_blocks = share / sizes.block_bytes;
    int32_t blocks = (int32_t)(max_blocks < INT32_MAX ? max_blocks : INT32_MAX);
    while (blocks > 0) {
        status = sizes_with(group, blocks, &sizes);
        if (status != PKV_OK || sizes.payload_bytes <= share) {
            break;
        }
        blocks--;
    }
    *num_blocks = blocks;
    return status;
}

enum pkv_status config_group_of(const struct pkv_cache_config *config,
                                const struct config_budget *budget, int32_t g,
                                struct config_group *group)
{
    struct config_group resolved;
    resolve_group(config, g, &resolved);
    if (resolved.config.num_blocks == 0) {
        const enum pkv_status status =
            blocks_of_share(config, budget, &resolved, &resolved.config.num_blocks);
        if (status != PKV_OK) {
            return status;
        }
        if (resolved.config.num_blocks == 0) {
            return refuse(PKV_NEVER_FITS, "groups[%d] gets no block of the %zu bytes shared out", g,
                          budget->shared_bytes);
        }
    }
    *group = resolved;
    return PKV_OK;
}
