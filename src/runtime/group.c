/* SPDX-License-Identifier: MIT
 *
 * A group is built in the order pages, pool and block tables (or slots), shape. A half-built one is
 * zeroed memory with some members set, and group_free frees it like any other. */
#include "runtime/group.h"

#include "alloc/block_pool.h"
#include "alloc/mem.h"
#include "attn/view.h"
#include "base/checked.h"
#include "base/error.h"
#include "pages/page_store.h"
#include "runtime/row_stride.h"
#include "slots/slot_map.h"

static bool entry_bytes_of(const struct pkv_cache_config *config, const struct config_group *of,
                           size_t *bytes)
{
    const size_t stride = of->max_blocks > 0 ? row_stride_of(of->max_blocks, sizeof(int32_t)) : 0;
    return checked_mul((size_t)config->max_seqs, stride, bytes) &&
           checked_mul(*bytes, sizeof(int32_t), bytes);
}

/* What the modules below take for themselves. */
static size_t module_bytes(const struct pkv_cache_config *config, const struct config_group *of)
{
    return page_store_bytes() + (of->max_blocks > 0 ? block_pool_bytes(of->config.num_blocks)
                                                    : slot_map_bytes(config->max_seqs));
}

enum pkv_status group_add_sizes(const struct pkv_cache_config *config, int32_t index,
                                const struct config_group *of, struct pkv_cache_sizes *sizes)
{
    const struct pkv_page_geometry geometry = config_geometry(of);
    struct pkv_page_sizes pages = {.size = sizeof pages};
    const enum pkv_status status = pkv_page_sizes_of(&geometry, &pages);
    if (status != PKV_OK) {
        return status;
    }
    size_t tables = 0;
    const bool fits =
        entry_bytes_of(config, of, &tables) &&
        checked_add(sizes->table_bytes, tables, &sizes->table_bytes) &&
        checked_add(sizes->payload_bytes, pages.payload_bytes, &sizes->payload_bytes) &&
        checked_add(sizes->token_bytes, pages.token_bytes, &sizes->token_bytes) &&
        checked_add(sizes->metadata_bytes, module_bytes(config, of), &sizes->metadata_bytes);
    return fits ? PKV_OK : INVALID("groups[%d]: its bytes overflow size_t", index);
}

void group_carve(const struct pkv_cache_config *config, const struct config_group *of,
                 struct group *group, struct carver *carver)
{
    const size_t num_blocks = of->max_blocks > 0 ? (size_t)of->config.num_blocks : 0;
    group->tables.at = carve(carver, (size_t)config->max_seqs, sizeof *group->tables.at);
    group->tables.num_set = carve(carver, (size_t)config->max_seqs, sizeof *group->tables.num_set);
    group->blocks.at = carve(carver, num_blocks, sizeof *group->blocks.at);
}

/* Windows are short, and each of their blocks decides a hit: none is evicted early. */
static int32_t min_blank_of(const struct group *group, const struct pkv_cache_config *config)
{
    const bool keeps_any = config->prefix_cache && group->config->sliding_window == 0;
    const int64_t percent = keeps_any ? config->min_blank_percent : 0;
    return (int32_t)divide_up(percent * group->config->num_blocks, 100);
}

static enum pkv_status build_pool(struct group *group, const struct pkv_cache_config *config,
                                  const struct pkv_hooks *hooks)
{
    const int32_t num_blocks = group->config->num_blocks;
    for (int32_t i = 0; i < num_blocks; i++) {
        group->blocks.at[i].writer = NO_SEQ;
    }
    group->blocks.num_blocks = num_blocks;
    group->blocks.block_size = group->config->block_size;
    group->blocks.group = group->index;
    group->blocks.min_blank = min_blank_of(group, config);
    return pkv_pool_create(num_blocks, hooks, &group->blocks.pool);
}

static enum pkv_status build_tables(struct group *group, const struct pkv_cache_config *config,
                                    const struct config_group *of, const struct pkv_hooks *hooks)
{
    struct seq_table_set *tables = &group->tables;
    size_t bytes = 0;
    if (!entry_bytes_of(config, of, &bytes)) {
        return INVALID("block tables overflow size_t");
    }
    tables->entries = mem_map_table(hooks, bytes);
    if (tables->entries == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for %zu bytes of block tables", bytes);
    }
    tables->entry_bytes = bytes;
    tables->stride = row_stride_of(of->max_blocks, sizeof(int32_t));
    tables->blocks = &group->blocks;
    tables->max_blocks = of->max_blocks;
    tables->sliding_window = group->config->sliding_window;
    promise_init(&tables->promises, group->config, config->max_step_tokens);
    return build_pool(group, config, hooks);
}

static enum pkv_status resolve_views(struct group *group, const struct pkv_page_geometry *geometry)
{
    struct pkv_page_sizes sizes = {.size = sizeof sizes};
    enum pkv_status status = pkv_pages_view(group->blocks.pages, 0, &group->first_view);
    if (status == PKV_OK) {
        status = pkv_page_sizes_of(geometry, &sizes);
    }
    if (status == PKV_OK) {
        view_resolve(&group->first_view);
        group->layer_stride_bytes = sizes.payload_bytes / (size_t)group->num_owners;
    }
    return status;
}

enum pkv_status group_build(struct group *group, int32_t index,
                            const struct pkv_cache_config *config, const struct config_group *of,
                            const struct pkv_hooks *hooks)
{
    const struct pkv_page_geometry geometry = config_geometry(of);
    group->config = &config->groups[index];
    group->index = index;
    group->num_owners = of->num_owners;
    group->nodes_per_block = config->prefix_cache ? config_nodes_per_block(config, index) : 1;
    group->shape = (struct gqa_shape){
        .kv_heads = of->config.kv_heads,
        .k_width = of->config.k_width,
        .v_width = of->config.v_width,
        .v_in_k = of->config.v_in_k,
        .block_size = of->config.block_size,
        .sliding_window = (int32_t)of->config.sliding_window,
    };
    enum pkv_status status = pkv_pages_create(&geometry, hooks, &group->blocks.pages);
    if (status == PKV_OK) {
        status = of->max_blocks > 0 ? build_tables(group, config, of, hooks)
                                    : pkv_slots_create(config->max_seqs, config->max_seq_len, hooks,
                                                       &group->slots);
    }
    return status == PKV_OK ? resolve_views(group, &geometry) : status;
}

void group_free(struct group *group, const struct pkv_hooks *hooks)
{
    pkv_slots_destroy(group->slots);
    pkv_pool_destroy(group->blocks.pool);
    pkv_pages_destroy(group->blocks.pages);
    mem_unmap(hooks, group->tables.entries, group->tables.entry_bytes, PKV_MAP_TABLES);
}

void group_claim_slot(struct group *group, int32_t seq)
{
    struct seq_table *table = &group->tables.at[seq];
    enum pkv_status status = pkv_slots_claim(group->slots, &table->slot_handle);
    if (status == PKV_OK) {
        status = pkv_slots_id(group->slots, table->slot_handle, &table->slot);
    }
    pkv_assert(status == PKV_OK);
    (void)status;
}

void group_release_slot(struct group *group, int32_t seq)
{
    struct seq_table *table = &group->tables.at[seq];
    const enum pkv_status status = pkv_slots_release(group->slots, table->slot_handle);
    pkv_assert(status == PKV_OK);
    (void)status;
    block_scrub(&group->blocks, table->slot);
}
