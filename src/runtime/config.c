/* SPDX-License-Identifier: MIT
 *
 * A configuration is checked field by field against a table of ranges, then as a whole: layers
 * against their groups, products against size_t. Everything after config_check may rely on it.
 *
 * Sizing is exact: payload from the page store's own arithmetic, and the share of a budget by
 * long division, so that no rounding ever passes the budget. */
#include "runtime/config.h"

#include <stdio.h>

#include "attn/gqa_constants.h"
#include "attn/team.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/hooks.h"
#include "prefix/prefix_key.h"

#define MAX_NAMESPACES (1 << 24)

struct bound {
    const char *field;
    int64_t value;
    int64_t low;
    int64_t high;
};

static enum pkv_status check_bounds(const char *prefix, const struct bound *bounds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct bound *bound = &bounds[i];
        if (bound->value < bound->low || bound->value > bound->high) {
            return refuse(PKV_INVALID_ARGUMENT, "%s%s = %lld, outside [%lld, %lld]", prefix,
                          bound->field, (long long)bound->value, (long long)bound->low,
                          (long long)bound->high);
        }
    }
    return PKV_OK;
}

static enum pkv_status check_cache_dtype(const char *prefix, const char *field,
                                         enum pkv_dtype dtype)
{
    if (pkv_dtype_bytes(dtype) == 0) {
        return refuse(PKV_INVALID_ARGUMENT, "%s%s = %d is none", prefix, field, (int)dtype);
    }
    return PKV_OK;
}

static int32_t count_owners(const struct pkv_cache_config *config, int32_t g)
{
    int32_t count = 0;
    for (int32_t i = 0; i < config->num_layers; i++) {
        count += config->layers[i].group == g && !config->layers[i].shares_kv;
    }
    return count;
}

static enum pkv_status check_group(const struct pkv_cache_config *config, int32_t g)
{
    const struct pkv_group_config *group = &config->groups[g];
    const bool is_paged = group->storage == PKV_STORAGE_PAGED;
    char prefix[32];
    snprintf(prefix, sizeof prefix, "groups[%d].", g);
    if (group->kind == PKV_GROUP_STATE) {
        return refuse(PKV_UNSUPPORTED, "%skind: state groups are not built", prefix);
    }
    const struct bound bounds[] = {
        {"kind", group->kind, PKV_GROUP_ATTENTION, PKV_GROUP_ATTENTION},
        {"storage", group->storage, PKV_STORAGE_PAGED, PKV_STORAGE_CONTINUOUS},
        {"kv_heads", group->kv_heads, 1, INT32_MAX},
        {"k_width", group->k_width, 1, INT32_MAX},
        {"v_width", group->v_width, 0, group->v_in_k ? group->k_width : INT32_MAX},
        {"block_size", group->block_size, is_paged ? 1 : INT32_MIN, INT32_MAX},
        {"sliding_window", group->sliding_window, 0, INT64_MAX},
        {"kept_prefix", group->kept_prefix, 0, INT64_MAX},
        {"num_blocks", group->num_blocks, is_paged ? 0 : INT32_MIN, INT32_MAX},
        {"layers that own pages", count_owners(config, g), 1, INT32_MAX},
    };
    enum pkv_status status = check_bounds(prefix, bounds, sizeof bounds / sizeof bounds[0]);
    if (status == PKV_OK) {
        status = check_cache_dtype(prefix, "k_dtype", group->k_dtype);
    }
    if (status == PKV_OK && !group->v_in_k) {
        status = check_cache_dtype(prefix, "v_dtype", group->v_dtype);
    }
    return status;
}

static bool same_floats(const float *a, int32_t a_count, const float *b, int32_t b_count)
{
    bool is_same = a_count == b_count && (a == NULL) == (b == NULL);
    for (int32_t i = 0; is_same && a != NULL && i < a_count; i++) {
        is_same = a[i] == b[i];
    }
    return is_same;
}

/* Codes mean the same to both. */
static bool same_scales(const struct pkv_attn_constants *a, const struct pkv_attn_constants *b)
{
    return same_floats(a->k_scale, a->k_scale_count, b->k_scale, b->k_scale_count) &&
           same_floats(a->v_scale, a->v_scale_count, b->v_scale, b->v_scale_count);
}

static enum pkv_status check_sharing(const struct pkv_cache_config *config, int32_t i)
{
    const struct pkv_layer_config *layer = &config->layers[i];
    if (layer->kv_layer < 0 || layer->kv_layer >= i) {
        return refuse(PKV_INVALID_ARGUMENT, "layers[%d].kv_layer = %d, outside [0, %d)", i,
                      layer->kv_layer, i);
    }
    const struct pkv_layer_config *owner = &config->layers[layer->kv_layer];
    if (owner->shares_kv || owner->group != layer->group) {
        return refuse(PKV_INVALID_ARGUMENT,
                      "layers[%d].kv_layer = %d, which owns no pages or is of another group", i,
                      layer->kv_layer);
    }
    if (!same_scales(&layer->constants, &owner->constants)) {
        return refuse(PKV_INVALID_ARGUMENT,
                      "layers[%d]: its k_scale or v_scale is not that of layer %d, whose pages it "
                      "reads",
                      i, layer->kv_layer);
    }
    return PKV_OK;
}

static enum pkv_status check_layer(const struct pkv_cache_config *config, int32_t i)
{
    const struct pkv_layer_config *layer = &config->layers[i];
    char prefix[32];
    snprintf(prefix, sizeof prefix, "layers[%d].", i);
    const struct bound bounds[] = {
        {"group", layer->group, 0, config->num_groups - 1},
        {"num_heads", layer->num_heads, 1, INT32_MAX},
    };
    const enum pkv_status status = check_bounds(prefix, bounds, sizeof bounds / sizeof bounds[0]);
    if (status != PKV_OK) {
        return status;
    }
    const struct pkv_group_config *group = &config->groups[layer->group];
    if (layer->num_heads % group->kv_heads != 0) {
        return refuse(PKV_INVALID_ARGUMENT, "%snum_heads = %d, no multiple of kv_heads = %d",
                      prefix, layer->num_heads, group->kv_heads);
    }
    const struct gqa_constants_geometry geometry = {
        .num_heads = layer->num_heads,
        .kv_heads = group->kv_heads,
        .k_width = group->k_width,
        .v_width = group->v_width != 0 ? group->v_width : group->k_width,
        .v_in_k = group->v_in_k,
        .k_dtype = group->k_dtype,
        .v_dtype = group->v_dtype,
    };
    const enum pkv_status sharing = layer->shares_kv ? check_sharing(config, i) : PKV_OK;
    return sharing != PKV_OK ? sharing : gqa_constants_check(&layer->constants, &geometry, prefix);
}

/* One key names a block in every group, so all must cut a prompt at the same places. */
static enum pkv_status check_prefix_cache(const struct pkv_cache_config *config)
{
    if (!config->prefix_cache) {
        return PKV_OK;
    }
    if (config->fingerprint == NULL && config->fingerprint_bytes > 0) {
        return refuse(PKV_INVALID_ARGUMENT, "fingerprint is NULL, fingerprint_bytes = %d",
                      config->fingerprint_bytes);
    }
    if (config->num_groups > CONFIG_MAX_PREFIX_GROUPS) {
        return refuse(PKV_UNSUPPORTED, "num_groups = %d: with prefix_cache at most %d",
                      config->num_groups, CONFIG_MAX_PREFIX_GROUPS);
    }
    for (int32_t g = 0; g < config->num_groups; g++) {
        if (config->groups[g].storage != PKV_STORAGE_PAGED ||
            config->groups[g].block_size != config->groups[0].block_size) {
            return refuse(PKV_UNSUPPORTED,
                          "groups[%d]: with prefix_cache all groups are paged and have one "
                          "block_size",
                          g);
        }
    }
    return PKV_OK;
}

static enum pkv_status check_whole(const struct pkv_cache_config *config)
{
    const struct bound bounds[] = {
        {"num_groups", config->num_groups, 1, INT32_MAX},
        {"num_layers", config->num_layers, 1, INT32_MAX},
        {"max_seqs", config->max_seqs, 1, CONFIG_MAX_SEQS},
        {"max_seq_len", config->max_seq_len, 1, INT32_MAX},
        {"max_step_rows", config->max_step_rows, 0, INT32_MAX},
        {"max_step_tokens", config->max_step_tokens, 1, INT32_MAX},
        {"num_threads", config->num_threads, 0, MAX_THREADS},
        {"isa", config->isa, PKV_ISA_BEST, PKV_NUM_ISAS - 1},
        {"watermark_blocks", config->watermark_blocks, 0, INT32_MAX},
        {"num_index_nodes", config->num_index_nodes, 0, INT32_MAX},
        {"max_namespaces", config->max_namespaces, 0, MAX_NAMESPACES},
        {"max_pinned_blocks", config->max_pinned_blocks, 0, CONFIG_MAX_SEQS},
        {"num_events", config->num_events, 0, INT32_MAX},
        {"fingerprint_bytes", config->fingerprint_bytes, 0, INT32_MAX},
        {"masked_hash_bits", config->masked_hash_bits, 0, PREFIX_KEY_BITS},
    };
    const enum pkv_status status = check_bounds("", bounds, sizeof bounds / sizeof bounds[0]);
    if (status != PKV_OK) {
        return status;
    }
    if (config->groups == NULL || config->layers == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "%s is NULL",
                      config->groups == NULL ? "groups" : "layers");
    }
    if (!dtype_is_float(config->dtype)) {
        return refuse(PKV_INVALID_ARGUMENT, "dtype = %d: activations are f32, f16 or bf16",
                      (int)config->dtype);
    }
    if (config->poison_freed && config->zero_freed) {
        return refuse(PKV_INVALID_ARGUMENT, "poison_freed and zero_freed exclude each other");
    }
    struct pkv_hooks hooks;
    return hooks_copy(&config->hooks, &hooks);
}

enum pkv_status config_check(const struct pkv_cache_config *config)
{
    if (config == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "config is NULL");
    }
    if (config->size != sizeof *config) {
        return refuse(PKV_INVALID_ARGUMENT, "config->size = %zu, not %zu", config->size,
                      sizeof *config);
    }
    enum pkv_status status = check_whole(config);
    for (int32_t g = 0; status == PKV_OK && g < config->num_groups; g++) {
        status = check_group(config, g);
    }
    for (int32_t i = 0; status == PKV_OK && i < config->num_layers; i++) {
        status = check_layer(config, i);
    }
    return status == PKV_OK ? check_prefix_cache(config) : status;
}

struct pkv_cache_config config_resolve(const struct pkv_cache_config *config)
{
    struct pkv_cache_config resolved = *config;
    /* A sequence stands once in a batch, so more rows than sequences never come. */
    if (resolved.max_step_rows == 0 || resolved.max_step_rows > resolved.max_seqs) {
        resolved.max_step_rows = resolved.max_seqs;
    }
    return resolved;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* All of a group but the blocks that a budget decides: those stay 0. */
static void resolve_group(const struct pkv_cache_config *config, int32_t g,
                          struct config_group *group)
{
    struct pkv_group_config *resolved = &group->config;
    *resolved = config->groups[g];
    resolved->sliding_window = smaller(resolved->sliding_window, config->max_seq_len);
    resolved->kept_prefix = smaller(resolved->kept_prefix, config->max_seq_len);
    if (resolved->v_width == 0) {
        resolved->v_width = resolved->k_width;
    }
    if (resolved->v_in_k) {
        resolved->v_dtype = resolved->k_dtype;
    }
    if (resolved->storage == PKV_STORAGE_CONTINUOUS) {
        resolved->block_size = config->max_seq_len;
        resolved->num_blocks = config->max_seqs;
    }
    const bool is_paged = resolved->storage == PKV_STORAGE_PAGED;
    group->num_owners = count_owners(config, g);
    group->max_blocks =
        is_paged ? config_blocks_of_cells(config->max_seq_len, resolved->block_size) : 0;
}

struct pkv_page_geometry config_geometry(const struct config_group *group)
{
    const struct pkv_group_config *config = &group->config;
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
    const int64_t bound =
        (seen + block_size - 1) / block_size + 1 + (kept_prefix + block_size - 1) / block_size;
    return (int32_t)smaller(all, bound);
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
    struct pkv_page_geometry geometry = config_geometry(group);
    geometry.num_blocks = num_blocks;
    return pkv_page_sizes_of(&geometry, sizes);
}

/* What max_seqs full sequences need of a group: its weight in sharing a budget. */
static bool needed_of(const struct pkv_cache_config *config, const struct config_group *group,
                      size_t block_bytes, size_t *bytes)
{
    const int32_t blocks = config_blocks_for(&group->config, config->max_step_tokens,
                                             config->max_seq_len, group->config.kept_prefix, 0);
    return checked_mul(block_bytes, (size_t)blocks, bytes) &&
           checked_mul(*bytes, (size_t)config->max_seqs, bytes);
}

static enum pkv_status add_group(const struct pkv_cache_config *config, int32_t g,
                                 size_t *fixed_bytes, size_t *needed_bytes)
{
    struct config_group group;
    resolve_group(config, g, &group);
    const int32_t num_blocks = group.config.num_blocks;
    struct pkv_page_sizes sizes;
    const enum pkv_status status = sizes_with(&group, num_blocks > 0 ? num_blocks : 1, &sizes);
    if (status != PKV_OK) {
        return status;
    }
    bool fits = true;
    if (num_blocks > 0) {
        fits = checked_add(*fixed_bytes, sizes.payload_bytes, fixed_bytes);
    } else {
        size_t bytes = 0;
        fits = needed_of(config, &group, sizes.block_bytes, &bytes) &&
               checked_add(*needed_bytes, bytes, needed_bytes) && *needed_bytes <= SIZE_MAX / 4;
    }
    return fits ? PKV_OK : refuse(PKV_INVALID_ARGUMENT, "groups[%d]: its bytes overflow size_t", g);
}

enum pkv_status config_share(const struct pkv_cache_config *config, size_t bytes, bool all_fit,
                             struct config_budget *budget)
{
    size_t fixed_bytes = 0;
    size_t needed_bytes = 0;
    for (int32_t g = 0; g < config->num_groups; g++) {
        const enum pkv_status status = add_group(config, g, &fixed_bytes, &needed_bytes);
        if (status != PKV_OK) {
            return status;
        }
    }
    if ((all_fit || needed_bytes > 0) && fixed_bytes > bytes) {
        return refuse(PKV_NEVER_FITS, "bytes = %zu, below the %zu of groups with fixed blocks",
                      bytes, fixed_bytes);
    }
    budget->shared_bytes = fixed_bytes > bytes ? 0 : bytes - fixed_bytes;
    budget->needed_bytes = needed_bytes;
    return PKV_OK;
}

/* The most blocks whose payload, padding included, stays within the group's share. */
static enum pkv_status blocks_of_share(const struct pkv_cache_config *config,
                                       const struct config_budget *budget,
                                       const struct config_group *group, int32_t *num_blocks)
{
    struct pkv_page_sizes sizes;
    enum pkv_status status = sizes_with(group, 1, &sizes);
    size_t needed = 0;
    if (status != PKV_OK || !needed_of(config, group, sizes.block_bytes, &needed)) {
        return status;
    }
    const size_t share = scaled(budget->shared_bytes, needed, budget->needed_bytes);
    const size_t most = share / sizes.block_bytes;
    int32_t blocks = (int32_t)(most < INT32_MAX ? most : INT32_MAX);
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

enum pkv_status pkv_cache_blocks_for_bytes(const struct pkv_cache_config *config, size_t bytes,
                                           int32_t *num_blocks)
{
    if (num_blocks == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "num_blocks is NULL");
    }
    enum pkv_status status = config_check(config);
    if (status != PKV_OK) {
        return status;
    }
    struct config_budget budget;
    status = config_share(config, bytes, true, &budget);
    struct config_group group;
    for (int32_t g = 0; status == PKV_OK && g < config->num_groups; g++) {
        status = config_group_of(config, &budget, g, &group);
    }
    for (int32_t g = 0; status == PKV_OK && g < config->num_groups; g++) {
        status = config_group_of(config, &budget, g, &group);
        num_blocks[g] = group.config.num_blocks;
    }
    return status;
}
