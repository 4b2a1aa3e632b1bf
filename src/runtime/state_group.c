/* SPDX-License-Identifier: MIT
 *
 * The pages are a store of one more block than the pool has: the state of zeros. */
#include "runtime/state_group.h"

#include "alloc/block_pool.h"
#include "base/checked.h"
#include "base/error.h"
#include "pages/page_store.h"

void state_group_carve(const struct pkv_cache_config *config, const struct config_group *of,
                       struct state_group *states, struct carver *carver)
{
    const size_t max_seqs = (size_t)config->max_seqs;
    const size_t max_rows = (size_t)config->max_step_rows;
    const size_t max_entries = (size_t)of->config.max_rewind + 1;
    struct state_group_step *step = &states->step;
    states->lists = carve(carver, max_seqs, sizeof *states->lists);
    states->entries = carve(carver, max_seqs, max_entries * sizeof *states->entries);
    states->blocks.at = carve(carver, (size_t)of->config.num_blocks, sizeof *states->blocks.at);
    step->reads = carve(carver, max_rows, sizeof *step->reads);
    step->num_new = carve(carver, max_rows, sizeof *step->num_new);
    step->in_place = carve(carver, max_rows, sizeof *step->in_place);
    step->writes = carve(carver, (size_t)config->max_step_tokens, sizeof *step->writes);
}

enum pkv_status state_group_add_sizes(const struct config_group *of, int32_t index,
                                      struct pkv_cache_sizes *sizes)
{
    const struct pkv_page_geometry geometry = config_geometry(of);
    struct pkv_page_sizes pages = {.size = sizeof pages};
    const enum pkv_status status = pkv_page_sizes_of(&geometry, &pages);
    if (status != PKV_OK) {
        return status;
    }
    const size_t metadata = page_store_bytes() + block_pool_bytes(of->config.num_blocks);
    const bool fits =
        checked_add(sizes->payload_bytes, pages.payload_bytes, &sizes->payload_bytes) &&
        checked_add(sizes->metadata_bytes, metadata, &sizes->metadata_bytes);
    return fits ? PKV_OK : INVALID("groups[%d]: its bytes overflow size_t", index);
}

static enum pkv_status build_pages(struct state_group *states,
                                   const struct pkv_page_geometry *geometry,
                                   const struct pkv_hooks *hooks)
{
    struct pkv_page_sizes sizes = {.size = sizeof sizes};
    struct pkv_kv_view view;
    enum pkv_status status = pkv_pages_create(geometry, hooks, &states->blocks.pages);
    if (status == PKV_OK) {
        status = pkv_page_sizes_of(geometry, &sizes);
    }
    if (status == PKV_OK) {
        status = pkv_pages_view(states->blocks.pages, 0, &view);
    }
    if (status == PKV_OK) {
        states->first_layer = view.k;
        states->state_stride_bytes = sizes.layer_block_bytes;
        states->layer_stride_bytes = sizes.payload_bytes / (size_t)geometry->num_layers;
        page_store_fill(states->blocks.pages, states->config->num_blocks, 0);
    }
    return status;
}

enum pkv_status state_group_build(struct state_group *states, int32_t index,
                                  const struct pkv_cache_config *config,
                                  const struct config_group *of, const struct pkv_hooks *hooks)
{
    const struct pkv_page_geometry geometry = config_geometry(of);
    states->config = &config->groups[index];
    states->index = index;
    states->num_layers = of->num_owners;
    states->max_entries = of->config.max_rewind + 1;
    states->blocks.num_blocks = of->config.num_blocks;
    states->blocks.block_size = 1;
    states->blocks.group = index;
    states->step.keeping = -1;
    for (int32_t i = 0; i < of->config.num_blocks; i++) {
        states->blocks.at[i].writer = NO_SEQ;
    }
    const enum pkv_status status =
        pkv_pool_create(of->config.num_blocks, hooks, &states->blocks.pool);
    return status == PKV_OK ? build_pages(states, &geometry, hooks) : status;
}

void state_group_free(struct state_group *states)
{
    pkv_pages_destroy(states->blocks.pages);
    pkv_pool_destroy(states->blocks.pool);
}
