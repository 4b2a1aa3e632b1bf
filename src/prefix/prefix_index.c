/* SPDX-License-Identifier: MIT
 *
 * The memory of an index, and reading it. Arrays are counted and placed by the same lines (place),
 * so that sizes are exact. */
#include "prefix/prefix_index.h"

#include <string.h>

#include "alloc/mem.h"
#include "base/carve.h"
#include "base/error.h"
#include "base/minmax.h"

#define SPARE_NAMESPACES 1024
#define MAX_NODES (INT32_MAX / 2)

/* --- memory */

/* The least power of two that is not below count. */
static uint32_t num_buckets_for(int32_t count)
{
    uint32_t num = 1;
    while (num < (uint32_t)count) {
        num *= 2;
    }
    return num;
}

/* The low `bits` bits of a word; bits may be outside [0, 64]. */
static uint64_t low_bits(int32_t bits)
{
    return bits <= 0 ? 0 : bits >= 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1;
}

/* The bounds of the tables, and what each is configured with. */
static void set_bounds(struct prefix_index *index)
{
    const struct prefix_config *config = &index->config;
    const int32_t key_bits = PREFIX_KEY_BITS - config->masked_key_bits;
    const uint32_t num_name_buckets = num_buckets_for(config->max_namespaces);
    index->namespaces = (struct prefix_namespace_table){.num_buckets = num_name_buckets,
                                                        .max_records = config->max_namespaces,
                                                        .seed = config->seed};
    index->namespaces.fields = (struct prefix_field_table){.num_buckets = num_name_buckets,
                                                           .max_records = config->max_namespaces,
                                                           .seed = config->seed};
    index->nodes = (struct prefix_node_table){.namespaces = &index->namespaces,
                                              .num_buckets = num_buckets_for(config->num_nodes),
                                              .max_nodes = config->num_nodes,
                                              .block_size = config->block_size,
                                              .num_groups = config->num_groups,
                                              .mask = {low_bits(key_bits), low_bits(key_bits - 64)},
                                              .seed = config->seed};
    index->writer = (struct prefix_content_writer){.fingerprint = config->fingerprint,
                                                   .block_size = config->block_size};
}

static int64_t nodes_per_block_of(const struct prefix_config *config, int32_t group)
{
    return config->nodes_per_block != NULL ? config->nodes_per_block[group] : 1;
}

int64_t prefix_index_nodes_of(const struct prefix_config *config, const int32_t *num_blocks)
{
    int64_t num_nodes = config->num_nodes;
    for (int32_t group = 0; config->num_nodes == 0 && group < config->num_groups; group++) {
        const int64_t spanned = nodes_per_block_of(config, group) * (int64_t)num_blocks[group];
        num_nodes = min_i64(num_nodes + 2 * spanned, MAX_NODES + 1);
    }
    return num_nodes;
}

/* Fills in the defaults. */
static enum pkv_status set_config(struct prefix_index *index, const struct prefix_config *config,
                                  const int32_t *num_blocks)
{
    const int64_t num_nodes = prefix_index_nodes_of(config, num_blocks);
    const int64_t max_namespaces =
        config->max_namespaces != 0 ? config->max_namespaces : num_nodes + SPARE_NAMESPACES;
    if (num_nodes > MAX_NODES || max_namespaces > MAX_NODES) {
        return refuse(PKV_NEVER_FITS, "prefix index: %lld nodes, above %d", (long long)num_nodes,
                      MAX_NODES);
    }
    index->config = *config;
    index->config.num_nodes = (int32_t)num_nodes;
    index->config.max_namespaces = (int32_t)max_namespaces;
    set_bounds(index);
    return PKV_OK;
}

/* Places all arrays; with carvers that only count, counts them. */
static void place(struct prefix_index *index, const int32_t *num_blocks, struct carver *metadata,
                  struct carver *mapped)
{
    struct prefix_node_table *nodes = &index->nodes;
    struct prefix_namespace_table *namespaces = &index->namespaces;
    struct prefix_field_table *fields = &namespaces->fields;
    const size_t num_groups = (size_t)nodes->num_groups;
    const size_t num_nodes = (size_t)nodes->max_nodes;
    const size_t num_names = (size_t)namespaces->max_records;
    const size_t block_size = (size_t)nodes->block_size;

    index->pools = carve(metadata, num_groups, sizeof index->pools[0]);
    index->windows = carve(metadata, num_groups, sizeof index->windows[0]);
    index->nodes_per_block = carve(metadata, num_groups, sizeof index->nodes_per_block[0]);
    index->window_nodes = carve(metadata, num_groups, sizeof index->window_nodes[0]);
    index->runs = carve(metadata, num_groups, sizeof index->runs[0]);
    nodes->buckets = carve(metadata, nodes->num_buckets, sizeof nodes->buckets[0]);
    fields->buckets = carve(metadata, fields->num_buckets, sizeof fields->buckets[0]);
    namespaces->buckets = carve(metadata, namespaces->num_buckets, sizeof namespaces->buckets[0]);
    index->tail_tokens = carve(metadata, block_size, sizeof index->tail_tokens[0]);
    index->tail_extra = carve(metadata, block_size, sizeof index->tail_extra[0]);
    index->writer.buffer = carve(metadata, 1, prefix_content_bytes(nodes->block_size));
    index->heaps = carve(metadata, num_groups, sizeof index->heaps[0]);
    index->heap_lengths = carve(metadata, num_groups, sizeof index->heap_lengths[0]);
    index->eviction = carve(metadata, num_groups, sizeof index->eviction[0]);
    index->block_nodes = carve(metadata, num_groups, sizeof index->block_nodes[0]);
    index->block_uses = carve(metadata, num_groups, sizeof index->block_uses[0]);
    for (size_t group = 0; group < num_groups; group++) {
        const size_t count = (size_t)num_blocks[group];
        int32_t *of_blocks = carve(metadata, count, sizeof of_blocks[0]);
        struct prefix_use *uses = carve(metadata, count, sizeof uses[0]);
        int32_t *heap = carve(metadata, count, sizeof heap[0]);
        if (index->block_nodes != NULL) {
            index->block_nodes[group] = of_blocks;
            index->block_uses[group] = uses;
            index->heaps[group] = heap;
        }
    }
    nodes->nodes = carve(mapped, num_nodes, sizeof nodes->nodes[0]);
    nodes->tokens = carve(mapped, num_nodes, block_size * sizeof nodes->tokens[0]);
    nodes->extra = carve(mapped, num_nodes, block_size * sizeof nodes->extra[0]);
    nodes->blocks = carve(mapped, num_nodes, num_groups * sizeof nodes->blocks[0]);
    nodes->used = carve(mapped, num_nodes, num_groups * sizeof nodes->used[0]);
    fields->records = carve(mapped, num_names, sizeof fields->records[0]);
    namespaces->records = carve(mapped, num_names, sizeof namespaces->records[0]);
}

/* Configures *index, which is zeroed, and counts what it will need. */
static enum pkv_status plan(struct prefix_index *index, const struct prefix_config *config,
                            const int32_t *num_blocks)
{
    struct carver metadata = {0};
    struct carver mapped = {0};
    const enum pkv_status status = set_config(index, config, num_blocks);
    if (status != PKV_OK) {
        return status;
    }
    place(index, num_blocks, &metadata, &mapped);
    if (metadata.overflows || mapped.overflows) {
        return refuse(PKV_NEVER_FITS, "prefix index: its size does not fit a size_t");
    }
    index->sizes = (struct prefix_sizes){metadata.used, mapped.used};
    return PKV_OK;
}

enum pkv_status prefix_index_size(const struct prefix_config *config, const int32_t *num_blocks,
                                  struct prefix_sizes *sizes)
{
    struct prefix_index index;
    memset(&index, 0, sizeof index);
    const enum pkv_status status = plan(&index, config, num_blocks);
    if (status == PKV_OK) {
        *sizes = index.sizes;
        sizes->metadata_bytes += hooks_array_bytes(1, sizeof index);
    }
    return status;
}

/* The least common multiple of both, at most MAX_NODES, where no prompt is that long. */
static int32_t common_multiple(int32_t a, int32_t b)
{
    int32_t divisor = a;
    for (int32_t rest = b; rest != 0;) {
        const int32_t next = divisor % rest;
        divisor = rest;
        rest = next;
    }
    return (int32_t)min_i64((int64_t)(a / divisor) * b, MAX_NODES);
}

static void set_nodes_per_block(struct prefix_index *index, const struct prefix_config *config)
{
    index->hit_nodes = 1;
    for (int32_t group = 0; group < config->num_groups; group++) {
        index->nodes_per_block[group] = (int32_t)nodes_per_block_of(config, group);
        index->hit_nodes = common_multiple(index->hit_nodes, index->nodes_per_block[group]);
    }
    index->config.nodes_per_block = index->nodes_per_block;
}

/* How many nodes before its end a cached prefix needs blocks of in each group. A prefix that goes
 * on behind the last place where a hit can end is hit there, up to hit_nodes - 1 before its end. */
static void set_windows(struct prefix_index *index, const int64_t *windows)
{
    for (int32_t group = 0; windows != NULL && group < index->nodes.num_groups; group++) {
        const int64_t span = index->nodes_per_block[group];
        const int64_t before = windows[group] > 0 ? windows[group] - 1 : 0;
        const int64_t blocks = divide_up(before, span * index->nodes.block_size);
        const int64_t nodes = blocks > 0 ? (blocks - 1) * span + index->hit_nodes : 0;
        index->windows[group] = windows[group];
        index->window_nodes[group] = (int32_t)min_i64(nodes, INT32_MAX - 1);
        index->max_window_nodes = max_i32(index->max_window_nodes, index->window_nodes[group]);
    }
    index->config.windows = index->windows;
}

/* After the arrays have their memory. */
static void start(struct prefix_index *index, const struct prefix_config *config)
{
    memcpy(index->pools, config->pools, (size_t)config->num_groups * sizeof index->pools[0]);
    index->config.pools = index->pools;
    set_nodes_per_block(index, config);
    set_windows(index, config->windows);
    for (int32_t group = 0; group < config->num_groups; group++) {
        index->eviction[group] =
            (struct prefix_eviction){1, pkv_pool_num_blocks(config->pools[group]), 0};
    }
    prefix_namespace_start(&index->namespaces);
}

enum pkv_status prefix_index_create(const struct prefix_config *config,
                                    const struct pkv_hooks *hooks, struct prefix_index **index)
{
    struct pkv_hooks memory;
    enum pkv_status status = hooks_copy(hooks, &memory);
    if (status != PKV_OK) {
        return status;
    }
    const size_t num_groups = (size_t)config->num_groups;
    int32_t *num_blocks = hooks_alloc_array(&memory, num_groups, sizeof num_blocks[0]);
    struct prefix_index *made = hooks_alloc_array(&memory, 1, sizeof *made);
    if (num_blocks == NULL || made == NULL) {
        status = refuse(PKV_NO_MEMORY, "no memory for a prefix index");
        goto fail;
    }
    for (size_t group = 0; group < num_groups; group++) {
        num_blocks[group] = pkv_pool_num_blocks(config->pools[group]);
    }
    status = plan(made, config, num_blocks);
    if (status != PKV_OK) {
        goto fail;
    }
    made->hooks = memory;
    made->metadata = hooks_alloc_array(&memory, 1, made->sizes.metadata_bytes);
    made->mapped = mem_map(&memory, made->sizes.mapped_bytes, PKV_MAP_TABLES);
    if (made->metadata == NULL || made->mapped == NULL) {
        status = refuse(PKV_NO_MEMORY, "no memory for a prefix index of %d nodes",
                        made->config.num_nodes);
        goto fail;
    }
    place(made, num_blocks, &(struct carver){.base = made->metadata},
          &(struct carver){.base = made->mapped});
    start(made, config);
    hooks_free_array(&memory, num_blocks, num_groups, sizeof num_blocks[0]);
    *index = made;
    return PKV_OK;

fail:
    hooks_free_array(&memory, num_blocks, num_groups, sizeof num_blocks[0]);
    if (made != NULL) {
        made->hooks = memory;
    }
    prefix_index_destroy(made);
    return status;
}

void prefix_index_destroy(struct prefix_index *index)
{
    if (index == NULL) {
        return;
    }
    const struct pkv_hooks memory = index->hooks;
    mem_unmap(&memory, index->mapped, index->sizes.mapped_bytes, PKV_MAP_TABLES);
    hooks_free_array(&memory, index->metadata, 1, index->sizes.metadata_bytes);
    hooks_free_array(&memory, index, 1, sizeof *index);
}

/* --- holders and reading */

const int32_t *prefix_index_tokens(const struct prefix_index *index, struct prefix_ref node)
{
    return prefix_node_at(&index->nodes, node) == NULL
               ? NULL
               : prefix_node_tokens(&index->nodes, node.index);
}

const uint64_t *prefix_index_extra(const struct prefix_index *index, struct prefix_ref node)
{
    const struct prefix_node *read = prefix_node_at(&index->nodes, node);
    return read == NULL || !read->has_extra ? NULL : prefix_node_extra(&index->nodes, node.index);
}

struct prefix_counters prefix_index_counters(const struct prefix_index *index)
{
    return (struct prefix_counters){.collisions = index->nodes.num_collisions,
                                    .not_indexed = index->num_not_indexed,
                                    .evictions = index->num_evictions};
}

size_t prefix_index_head(const struct prefix_index *index, int32_t namespace_id)
{
    struct pkv_namespace_field fields[PKV_MAX_NAMESPACE_FIELDS];
    const int32_t num_fields = prefix_namespace_read(&index->namespaces, namespace_id, fields);
    return prefix_content_head(&index->writer, fields, num_fields);
}

struct prefix_content prefix_index_content(const struct prefix_index *index,
                                           struct prefix_ref parent, int32_t namespace_id,
                                           const int32_t *tokens, const uint64_t *extra)
{
    const struct prefix_node *above = prefix_node_at(&index->nodes, parent);
    const size_t head_bytes = prefix_index_head(index, namespace_id);
    struct prefix_content content;
    prefix_content_make(&index->writer, head_bytes, namespace_id,
                        above == NULL ? NULL : &above->key, tokens, extra, &content);
    content.parent = parent;
    return content;
}
