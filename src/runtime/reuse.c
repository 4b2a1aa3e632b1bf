/* SPDX-License-Identifier: MIT
 *
 * Sizes come from the very same configuration that the build uses. */
#include "runtime/reuse.h"

#include "base/checked.h"
#include "base/error.h"
#include "runtime/fingerprint.h"

/* Of the index. */
static int32_t num_groups_of(const struct pkv_cache_config *config)
{
    return config->num_groups + config_num_states(config);
}

/* A snapshot is the block of one node. */
static int32_t nodes_per_block(const struct pkv_cache_config *config, int32_t g)
{
    return g < config->num_groups ? config_nodes_per_block(config, g) : 1;
}

/* What the index needs to know of each group. */
struct index_groups {
    int32_t nodes_per_block[CONFIG_MAX_PREFIX_GROUPS];
};

/* Of the nodes, not of the pools; refers to *groups. */
static struct prefix_config index_config(const struct pkv_cache_config *config,
                                         struct index_groups *groups)
{
    for (int32_t g = 0; g < num_groups_of(config); g++) {
        groups->nodes_per_block[g] = nodes_per_block(config, g);
    }
    return (struct prefix_config){
        .block_size = config_node_tokens(config),
        .num_groups = num_groups_of(config),
        .nodes_per_block = groups->nodes_per_block,
        .num_nodes = config->num_index_nodes,
        .max_namespaces = config->max_namespaces,
        .masked_key_bits = config->masked_hash_bits,
        .finds_partial = !config->no_partial_hits,
    };
}

/* With fewer nodes than blocks may need, an index full of old nodes would keep new ones out until
 * the pools fill up. */
static enum pkv_status check_num_nodes(const struct pkv_cache_config *config,
                                       const int32_t *num_blocks)
{
    int64_t spanned = 0;
    for (int32_t g = 0; g < num_groups_of(config); g++) {
        spanned += (int64_t)num_blocks[g] * nodes_per_block(config, g);
    }
    if (config->num_index_nodes != 0 && config->num_index_nodes < spanned) {
        return INVALID("num_index_nodes = %d, below the %lld that all blocks span",
                       config->num_index_nodes, (long long)spanned);
    }
    return PKV_OK;
}

int64_t reuse_num_nodes(const struct pkv_cache_config *config, const int32_t *num_blocks)
{
    struct index_groups groups;
    const struct prefix_config of = index_config(config, &groups);
    return prefix_index_nodes_of(&of, num_blocks);
}

enum pkv_status reuse_add_sizes(const struct pkv_cache_config *config, const int32_t *num_blocks,
                                struct pkv_cache_sizes *sizes)
{
    struct prefix_sizes index;
    struct index_groups groups;
    const struct prefix_config of = index_config(config, &groups);
    enum pkv_status status = check_num_nodes(config, num_blocks);
    if (status == PKV_OK) {
        status = prefix_index_size(&of, num_blocks, &index);
    }
    if (status != PKV_OK) {
        return status;
    }
    size_t mapped = 0;
    const bool fits =
        seq_tokens_size(config->max_seqs, config->max_seq_len, &mapped) &&
        checked_add(mapped, index.mapped_bytes, &mapped) &&
        checked_add(sizes->table_bytes, mapped, &sizes->table_bytes) &&
        checked_add(sizes->metadata_bytes, index.metadata_bytes, &sizes->metadata_bytes);
    return fits ? PKV_OK : INVALID("the prefix cache overflows size_t");
}

void reuse_carve(const struct pkv_cache_config *config, struct reuse *reuse, struct carver *carver)
{
    const int32_t max_blocks =
        config_blocks_of_cells(config->max_seq_len, config_node_tokens(config));
    const size_t num_groups = (size_t)num_groups_of(config);
    reuse->matched = carve(carver, (size_t)max_blocks, sizeof *reuse->matched);
    reuse->windows = carve(carver, num_groups, sizeof *reuse->windows);
}

enum pkv_status reuse_build(struct reuse *reuse, const struct pkv_cache_config *config,
                            const struct group *groups, const struct state_group *states,
                            uint64_t seed, struct events *events, struct mem *mem)
{
    pkv_pool *pools[CONFIG_MAX_PREFIX_GROUPS];
    int64_t windows[CONFIG_MAX_PREFIX_GROUPS];
    for (int32_t g = 0; g < config->num_groups; g++) {
        pools[g] = groups[g].blocks.pool;
        windows[g] = groups[g].config->sliding_window;
    }
    for (int32_t g = config->num_groups; g < num_groups_of(config); g++) {
        const struct state_group *of = &states[g - config->num_groups];
        pools[g] = of->blocks.pool;
        /* The snapshot in front of a retention point is as far away as that. */
        windows[g] = (int64_t)of->config->snapshot_interval + 1;
    }
    struct index_groups of_groups;
    struct prefix_config of = index_config(config, &of_groups);
    of.pools = pools;
    of.windows = windows;
    of.fingerprint = fingerprint_of(config);
    of.seed = seed;
    of.observer = events_observe;
    of.observer_context = events;
    const size_t before = mem->bytes_used + mem->bytes_mapped;
    enum pkv_status status =
        seq_tokens_map(&reuse->tokens, config->max_seqs, config->max_seq_len, &mem->routed);
    if (status == PKV_OK) {
        status = prefix_index_create(&of, &mem->routed, &reuse->index);
    }
    reuse->block_size = of.block_size;
    reuse->index_bytes = mem->bytes_used + mem->bytes_mapped - before;
    return status;
}

void reuse_free(struct reuse *reuse, const struct pkv_hooks *hooks)
{
    prefix_index_destroy(reuse->index);
    seq_tokens_unmap(&reuse->tokens, hooks);
}
