/* SPDX-License-Identifier: MIT
 *
 * A configuration is checked field by field against a table of ranges, then as a whole: layers
 * against their groups, products against size_t. Everything after config_check may rely on it. */
#include "runtime/config_check.h"

#include <stdio.h>

#include "attn/gqa_constants.h"
#include "attn/team.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/hooks.h"
#include "base/sized.h"
#include "prefix/prefix_key.h"
#include "runtime/config.h"
#include "runtime/label.h"

#define MAX_NAMESPACES (1 << 24)
#define MAX_STATE_BYTES ((int64_t)1 << 32)
#define MAX_STATE_REWIND (1 << 16)

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
            return INVALID("%s%s = %lld, outside [%lld, %lld]", prefix, bound->field,
                           (long long)bound->value, (long long)bound->low, (long long)bound->high);
        }
    }
    return PKV_OK;
}

static enum pkv_status check_cache_dtype(const char *prefix, const char *field,
                                         enum pkv_dtype dtype)
{
    if (pkv_dtype_bytes(dtype) == 0) {
        return INVALID("%s%s = %d is none", prefix, field, (int)dtype);
    }
    return PKV_OK;
}

/* One number divides another, where it says anything. */
static enum pkv_status check_multiple(const char *prefix, const char *field, int64_t value,
                                      const char *unit, int64_t of)
{
    return value % of == 0 ? PKV_OK
                           : INVALID("%s%s = %lld, not a multiple of %s, %lld", prefix, field,
                                     (long long)value, unit, (long long)of);
}

static enum pkv_status check_state_group(const struct pkv_cache_config *config, int32_t g,
                                         const char *prefix)
{
    const struct pkv_group_config *group = &config->groups[g];
    const bool is_huge = group->state_bytes > MAX_STATE_BYTES;
    const struct bound bounds[] = {
        {"state_bytes", is_huge ? INT64_MAX : (int64_t)group->state_bytes, 1, MAX_STATE_BYTES},
        {"snapshot_interval", group->snapshot_interval, 0, INT32_MAX},
        {"max_rewind", group->max_rewind, 0, MAX_STATE_REWIND},
        {"segment_tokens", group->segment_tokens, 0, INT64_MAX},
        {"num_blocks", group->num_blocks, 0, INT32_MAX - 1},
        {"layers", config_num_owners(config, g), 1, INT32_MAX},
    };
    enum pkv_status status = check_bounds(prefix, bounds, sizeof bounds / sizeof bounds[0]);
    const int32_t hit_tokens = config_hit_tokens(config);
    if (status == PKV_OK && config->prefix_cache) {
        status = check_multiple(prefix, "snapshot_interval", group->snapshot_interval,
                                "the block sizes", hit_tokens);
    }
    const int32_t interval = group->snapshot_interval > 0 ? group->snapshot_interval : hit_tokens;
    if (status == PKV_OK && config->prefix_cache) {
        status = check_multiple(prefix, "segment_tokens", group->segment_tokens,
                                "snapshot_interval", interval);
    }
    return status == PKV_OK ? sized_check_reserved(prefix, group->reserved) : status;
}

/* State groups are the last ones, and what they are not built for is not asked. */
static enum pkv_status check_states(const struct pkv_cache_config *config)
{
    for (int32_t g = 0; g < config->num_groups; g++) {
        const bool is_state = config->groups[g].kind == PKV_GROUP_STATE;
        if (is_state && g == 0) {
            return refuse(PKV_UNSUPPORTED,
                          "groups[0] is a state group: one with attention is needed");
        }
        if (!is_state && g > 0 && config->groups[g - 1].kind == PKV_GROUP_STATE) {
            return INVALID("groups[%d] stands behind a state group", g);
        }
        if (is_state && config->num_tiers > 0) {
            return refuse(PKV_UNSUPPORTED, "groups[%d]: states do not go to tiers", g);
        }
    }
    return PKV_OK;
}

static enum pkv_status check_group(const struct pkv_cache_config *config, int32_t g)
{
    const struct pkv_group_config *group = &config->groups[g];
    const bool is_paged = group->storage == PKV_STORAGE_PAGED;
    char prefix[32];
    snprintf(prefix, sizeof prefix, "groups[%d].", g);
    if (group->kind == PKV_GROUP_STATE) {
        return check_state_group(config, g, prefix);
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
        {"layers that own pages", config_num_owners(config, g), 1, INT32_MAX},
        {"state_bytes", group->state_bytes > 0, 0, 0},
        {"snapshot_interval", group->snapshot_interval, 0, 0},
        {"max_rewind", group->max_rewind, 0, 0},
        {"segment_tokens", group->segment_tokens, 0, group->sliding_window > 0 ? INT64_MAX : 0},
    };
    enum pkv_status status = check_bounds(prefix, bounds, sizeof bounds / sizeof bounds[0]);
    if (status == PKV_OK) {
        status = check_cache_dtype(prefix, "k_dtype", group->k_dtype);
    }
    if (status == PKV_OK && !group->v_in_k) {
        status = check_cache_dtype(prefix, "v_dtype", group->v_dtype);
    }
    if (status == PKV_OK && config->prefix_cache && group->segment_tokens > 0) {
        status = check_multiple(prefix, "segment_tokens", group->segment_tokens, "the block sizes",
                                config_hit_tokens(config));
    }
    return status == PKV_OK ? sized_check_reserved(prefix, group->reserved) : status;
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
        return INVALID("layers[%d].kv_layer = %d, outside [0, %d)", i, layer->kv_layer, i);
    }
    const struct pkv_layer_config *owner = &config->layers[layer->kv_layer];
    if (owner->shares_kv || owner->group != layer->group) {
        return INVALID("layers[%d].kv_layer = %d, which owns no pages or is of another group", i,
                       layer->kv_layer);
    }
    if (!same_scales(&layer->constants, &owner->constants)) {
        return INVALID("layers[%d]: its k_scale or v_scale is not that of layer %d, whose pages it "
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
    const bool is_in_group = layer->group >= 0 && layer->group < config->num_groups;
    const bool has_states = is_in_group && config->groups[layer->group].kind == PKV_GROUP_STATE;
    const struct bound bounds[] = {
        {"group", layer->group, 0, config->num_groups - 1},
        {"num_heads", layer->num_heads, has_states ? INT32_MIN : 1, INT32_MAX},
        {"shares_kv", layer->shares_kv, 0, !has_states},
    };
    enum pkv_status status = check_bounds(prefix, bounds, sizeof bounds / sizeof bounds[0]);
    if (status == PKV_OK) {
        status = sized_check_reserved(prefix, layer->reserved);
    }
    if (status != PKV_OK || has_states) {
        return status;
    }
    const struct pkv_group_config *group = &config->groups[layer->group];
    if (layer->num_heads % group->kv_heads != 0) {
        return INVALID("%snum_heads = %d, no multiple of kv_heads = %d", prefix, layer->num_heads,
                       group->kv_heads);
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

/* A hit ends where a block of every group does, and tiers name blocks by the keys of nodes, each of
 * which then has one block of every group. */
static enum pkv_status check_block_sizes(const struct pkv_cache_config *config)
{
    const int32_t smallest = config_node_tokens(config);
    for (int32_t g = 0; g < config->num_groups; g++) {
        const int32_t block_size = config->groups[g].block_size;
        if (config->groups[g].kind == PKV_GROUP_STATE) {
            break;
        }
        if (block_size % smallest != 0) {
            return refuse(PKV_UNSUPPORTED,
                          "groups[%d].block_size = %d: with prefix_cache a multiple of the "
                          "smallest one, %d",
                          g, block_size, smallest);
        }
        if (config->num_tiers > 0 && block_size != smallest) {
            return refuse(PKV_UNSUPPORTED,
                          "groups[%d].block_size = %d: with tiers all groups have one, not %d too",
                          g, block_size, smallest);
        }
    }
    return PKV_OK;
}

/* Nobody shares a slot: no prompt can be hit, and no tier keeps anything. */
static enum pkv_status check_slots(const struct pkv_cache_config *config)
{
    const bool is_required = (config->required & PKV_REQUIRE_HITS) != 0;
    for (int32_t g = 0; g < config->num_groups; g++) {
        if (config->groups[g].kind == PKV_GROUP_ATTENTION &&
            config->groups[g].storage != PKV_STORAGE_PAGED &&
            (is_required || config->num_tiers > 0)) {
            return refuse(PKV_UNSUPPORTED, "groups[%d] is continuous, so there are no hits, but %s",
                          g, is_required ? "PKV_REQUIRE_HITS" : "tiers");
        }
    }
    return PKV_OK;
}

static enum pkv_status check_prefix_cache(const struct pkv_cache_config *config)
{
    if ((config->required & ~(uint64_t)PKV_REQUIRE_HITS) != 0) {
        return refuse(PKV_UNSUPPORTED, "required = %llx: none but PKV_REQUIRE_HITS",
                      (unsigned long long)config->required);
    }
    if (!config->prefix_cache) {
        return (config->required & PKV_REQUIRE_HITS) == 0
                   ? PKV_OK
                   : refuse(PKV_UNSUPPORTED, "PKV_REQUIRE_HITS without prefix_cache");
    }
    if (config->fingerprint == NULL && config->fingerprint_bytes > 0) {
        return INVALID("fingerprint is NULL, fingerprint_bytes = %d", config->fingerprint_bytes);
    }
    if (config->num_groups > CONFIG_MAX_PREFIX_GROUPS) {
        return refuse(PKV_UNSUPPORTED, "num_groups = %d: with prefix_cache at most %d",
                      config->num_groups, CONFIG_MAX_PREFIX_GROUPS);
    }
    return config_has_slots(config) ? check_slots(config) : check_block_sizes(config);
}

/* Without tiers their fields are not read. */
static enum pkv_status check_tiers(const struct pkv_cache_config *config)
{
    const struct bound bounds[] = {
        {"num_tier_threads", config->num_tier_threads, 0, CONFIG_MAX_TIER_THREADS},
        {"max_tickets", config->max_tickets, 0, CONFIG_MAX_TICKETS},
        {"max_store_blocks", config->max_store_blocks, 0, INT32_MAX},
    };
    if (config->num_tiers == 0) {
        return PKV_OK;
    }
    if (!config->prefix_cache) {
        return INVALID("num_tiers = %d without prefix_cache", config->num_tiers);
    }
    for (int32_t t = 0; t < config->num_tiers; t++) {
        if (config->tiers == NULL || config->tiers[t] == NULL) {
            return INVALID("tiers[%d] is NULL", t);
        }
    }
    return check_bounds("", bounds, sizeof bounds / sizeof bounds[0]);
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
        {"min_blank_percent", config->min_blank_percent, 0, 100},
        {"num_tiers", config->num_tiers, 0, PKV_MAX_TIERS},
    };
    enum pkv_status status = check_bounds("", bounds, sizeof bounds / sizeof bounds[0]);
    if (status == PKV_OK) {
        status = label_check(config->metrics_label);
    }
    if (status == PKV_OK) {
        status = check_tiers(config);
    }
    if (status != PKV_OK) {
        return status;
    }
    if (config->groups == NULL || config->layers == NULL) {
        return INVALID("%s is NULL", config->groups == NULL ? "groups" : "layers");
    }
    if (!dtype_is_float(config->dtype)) {
        return INVALID("dtype = %d: activations are f32, f16 or bf16", (int)config->dtype);
    }
    if (config->poison_freed && config->zero_freed) {
        return INVALID("poison_freed and zero_freed exclude each other");
    }
    struct pkv_hooks hooks;
    return hooks_copy(&config->hooks, &hooks);
}

enum pkv_status config_take(const struct pkv_cache_config *given, struct pkv_cache_config *config)
{
    enum pkv_status status = sized_read("config", given, masked_hash_bits, config);
    if (status == PKV_OK) {
        status = check_whole(config);
    }
    if (status == PKV_OK) {
        status = check_states(config);
    }
    for (int32_t g = 0; status == PKV_OK && g < config->num_groups; g++) {
        status = check_group(config, g);
    }
    for (int32_t i = 0; status == PKV_OK && i < config->num_layers; i++) {
        status = check_layer(config, i);
    }
    if (status == PKV_OK) {
        status = check_prefix_cache(config);
    }
    if (status == PKV_OK) {
        config->prefix_cache = config->prefix_cache && !config_has_slots(config);
    }
    return status;
}
