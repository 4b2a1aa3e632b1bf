/* SPDX-License-Identifier: MIT
 *
 * The prefix index: its memory, the life of nodes, and what publishing and eviction do to them.
 * Search is in prefix_match.c, namespaces are in prefix_names.c, the checker is prefix_check.c.
 *
 * A node dies in one place only (free_if_unneeded), where it has no block, no child and no holder
 * left; its parent has a child less then and may follow. Hence a parent outlives its children, and
 * a parent ref stored in a node is never stale. */
#include "prefix/prefix_index.h"

#include <string.h>

#include "alloc/mem.h"
#include "base/carve.h"
#include "base/error.h"
#include "prefix/prefix_table.h"

#define SPARE_NAMESPACES 1024
#define HEAD_BYTES (16 + 8 + PKV_MAX_NAMESPACE_FIELDS * (8 + PKV_MAX_NAMESPACE_BYTES))
#define LINK_BYTES (8 + 16)

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

/* Fills in the defaults. */
static enum pkv_status set_config(struct prefix_index *index, const struct prefix_config *config,
                                  const int32_t *num_blocks)
{
    int64_t num_nodes = config->num_nodes;
    for (int32_t group = 0; config->num_nodes == 0 && group < config->num_groups; group++) {
        num_nodes += 2 * (int64_t)num_blocks[group];
    }
    const int64_t num_names =
        config->max_namespaces != 0 ? config->max_namespaces : num_nodes + SPARE_NAMESPACES;
    if (num_nodes > INT32_MAX / 2 || num_names > INT32_MAX / 2) {
        return refuse(PKV_NEVER_FITS, "prefix index: %lld nodes, above %d", (long long)num_nodes,
                      INT32_MAX / 2);
    }
    index->config = *config;
    index->config.num_nodes = (int32_t)num_nodes;
    index->config.max_namespaces = (int32_t)num_names;
    index->num_buckets = num_buckets_for(index->config.num_nodes);
    index->num_name_buckets = num_buckets_for(index->config.max_namespaces);
    return PKV_OK;
}

/* Places all arrays; with carvers that only count, counts them. */
static void place(struct prefix_index *index, const int32_t *num_blocks, struct carver *metadata,
                  struct carver *mapped)
{
    const struct prefix_config *config = &index->config;
    const size_t num_groups = (size_t)config->num_groups;
    const size_t num_nodes = (size_t)config->num_nodes;
    const size_t num_names = (size_t)config->max_namespaces;
    const size_t block_size = (size_t)config->block_size;

    index->pools = carve(metadata, num_groups, sizeof index->pools[0]);
    index->runs = carve(metadata, num_groups, 2 * sizeof index->runs[0]);
    index->buckets = carve(metadata, index->num_buckets, sizeof index->buckets[0]);
    index->field_list.buckets = carve(metadata, index->num_name_buckets, sizeof(int32_t));
    index->namespace_list.buckets = carve(metadata, index->num_name_buckets, sizeof(int32_t));
    index->buffer = carve(metadata, 1, HEAD_BYTES + LINK_BYTES + block_size * 12);
    index->block_nodes = carve(metadata, num_groups, sizeof index->block_nodes[0]);
    for (size_t group = 0; group < num_groups; group++) {
        int32_t *nodes = carve(metadata, (size_t)num_blocks[group], sizeof nodes[0]);
        if (index->block_nodes != NULL) {
            index->block_nodes[group] = nodes;
        }
    }
    index->nodes = carve(mapped, num_nodes, sizeof index->nodes[0]);
    index->tokens = carve(mapped, num_nodes, block_size * sizeof index->tokens[0]);
    index->extra = carve(mapped, num_nodes, block_size * sizeof index->extra[0]);
    index->blocks = carve(mapped, num_nodes, num_groups * sizeof index->blocks[0]);
    index->fields = carve(mapped, num_names, sizeof index->fields[0]);
    index->namespaces = carve(mapped, num_names, sizeof index->namespaces[0]);
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

/* bits of [0, 64) */
static uint64_t low_bits(int32_t bits)
{
    return bits <= 0 ? 0 : bits >= 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1;
}

/* After the arrays have their memory. */
static void start(struct prefix_index *index, const struct prefix_config *config)
{
    const int32_t bits = config->hash_bits == 0 ? 128 : config->hash_bits - 1;
    index->mask = (struct prefix_key){low_bits(bits), low_bits(bits - 64)};
    memcpy(index->pools, config->pools, (size_t)config->num_groups * sizeof index->pools[0]);
    index->config.pools = index->pools;
    index->epoch = 1;
    prefix_names_open(index);
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
    made->mapped = mem_map(&memory, made->sizes.mapped_bytes);
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
    mem_unmap(&memory, index->mapped, index->sizes.mapped_bytes);
    hooks_free_array(&memory, index->metadata, 1, index->sizes.metadata_bytes);
    hooks_free_array(&memory, index, 1, sizeof *index);
}

/* --- reading */

struct prefix_node *prefix_node_at(const struct prefix_index *index, struct prefix_ref ref)
{
    if (ref.index < 0 || ref.index >= index->num_touched) {
        return NULL;
    }
    struct prefix_node *node = &index->nodes[ref.index];
    return node->is_used && node->generation == ref.generation ? node : NULL;
}

const struct prefix_node *prefix_index_node(const struct prefix_index *index,
                                            struct prefix_ref node)
{
    return prefix_node_at(index, node);
}

const int32_t *prefix_index_tokens(const struct prefix_index *index, struct prefix_ref node)
{
    return prefix_node_at(index, node) == NULL ? NULL : prefix_tokens_at(index, node.index);
}

const uint64_t *prefix_index_extra(const struct prefix_index *index, struct prefix_ref node)
{
    const struct prefix_node *read = prefix_node_at(index, node);
    return read == NULL || !read->has_extra ? NULL : prefix_extra_at(index, node.index);
}

bool prefix_index_is_live(const struct prefix_index *index, struct prefix_ref node)
{
    const struct prefix_node *read = prefix_node_at(index, node);
    return read != NULL && prefix_index_is_current(index, read->namespace_id, read->epoch);
}

struct prefix_ref prefix_index_next(const struct prefix_index *index, int32_t from)
{
    for (int32_t i = from; i < index->num_touched; i++) {
        if (index->nodes[i].is_used) {
            return prefix_ref_of(index, i);
        }
    }
    return PREFIX_ROOT;
}

int32_t prefix_index_num_nodes(const struct prefix_index *index)
{
    return index->config.num_nodes;
}

int32_t prefix_index_max_namespaces(const struct prefix_index *index)
{
    return index->config.max_namespaces;
}

int32_t prefix_index_num_used(const struct prefix_index *index)
{
    return index->num_used;
}

struct prefix_counters prefix_index_counters(const struct prefix_index *index)
{
    return index->counters;
}

int32_t prefix_index_block(const struct prefix_index *index, struct prefix_ref node, int32_t group)
{
    return prefix_node_at(index, node) == NULL ? PREFIX_NONE
                                               : prefix_blocks_at(index, node.index)[group];
}

struct prefix_ref prefix_index_node_of(const struct prefix_index *index, int32_t group,
                                       int32_t block)
{
    const int32_t node = index->block_nodes[group][block] - 1;
    return node == PREFIX_NONE ? PREFIX_ROOT : prefix_ref_of(index, node);
}

/* --- the life of a node */

static void observe(struct prefix_index *index, enum prefix_change change, int32_t node)
{
    if (index->config.observer != NULL) {
        index->config.observer(index->config.observer_context, change, prefix_ref_of(index, node));
    }
}

/* An unused node, its generation in place; PREFIX_NONE when there is none. */
static int32_t take_node(struct prefix_index *index)
{
    int32_t taken = index->free_head - 1;
    if (taken != PREFIX_NONE) {
        index->free_head = index->nodes[taken].next;
        index->free_tail = index->free_head == 0 ? 0 : index->free_tail;
    } else if (index->num_touched < index->config.num_nodes) {
        taken = index->num_touched++;
        memset(&index->nodes[taken], 0, sizeof index->nodes[taken]);
    }
    return taken;
}

static void give_node_back(struct prefix_index *index, int32_t given)
{
    index->nodes[given].next = 0;
    if (index->free_tail == 0) {
        index->free_head = given + 1;
    } else {
        index->nodes[index->free_tail - 1].next = given + 1;
    }
    index->free_tail = given + 1;
}

static void unlink_node(struct prefix_index *index, int32_t unlinked)
{
    int32_t *link = &index->buckets[prefix_bucket(index, index->nodes[unlinked].key)];
    while (*link != unlinked + 1) {
        link = &index->nodes[*link - 1].next;
    }
    *link = index->nodes[unlinked].next;
}

/* Frees the node, and its ancestors, as far as nothing needs them. */
static void free_if_unneeded(struct prefix_index *index, int32_t at)
{
    while (at != PREFIX_NONE) {
        struct prefix_node *node = &index->nodes[at];
        if (node->num_blocks > 0 || node->num_children > 0 || node->num_holders > 0) {
            return;
        }
        const int32_t parent = node->parent.index;
        unlink_node(index, at);
        prefix_names_release(index, node->namespace_id);
        node->is_used = false;
        node->generation++;
        index->num_used--;
        give_node_back(index, at);
        if (parent != PREFIX_NONE) {
            index->nodes[parent].num_children--;
        }
        at = parent;
    }
}

/* Makes a node of the content, with one holder; PREFIX_NONE when none is free. */
static int32_t make_node(struct prefix_index *index, const struct prefix_content *content)
{
    const size_t block_size = (size_t)index->config.block_size;
    const int32_t made = take_node(index);
    if (made == PREFIX_NONE) {
        return PREFIX_NONE;
    }
    int32_t *bucket = &index->buckets[prefix_bucket(index, content->key)];
    struct prefix_node *node = &index->nodes[made];
    const struct prefix_node *parent = prefix_node_at(index, content->parent);
    *node = (struct prefix_node){
        .key = content->key,
        .epoch = index->epoch,
        .parent = parent == NULL ? PREFIX_ROOT : content->parent,
        .generation = node->generation,
        .namespace_id = content->namespace_id,
        .depth = parent == NULL ? 0 : parent->depth + 1,
        .num_holders = 1,
        .next = *bucket,
        .is_used = true,
        .has_extra = content->extra != NULL,
    };
    *bucket = made + 1;
    index->num_used++;
    memcpy(prefix_tokens_at(index, made), content->tokens, block_size * sizeof content->tokens[0]);
    if (content->extra != NULL) {
        memcpy(prefix_extra_at(index, made), content->extra, block_size * sizeof content->extra[0]);
    }
    for (int32_t group = 0; group < index->config.num_groups; group++) {
        prefix_blocks_at(index, made)[group] = PREFIX_NONE;
    }
    prefix_names_hold(index, content->namespace_id);
    if (parent != NULL) {
        index->nodes[content->parent.index].num_children++;
    }
    return made;
}

void prefix_index_hold(struct prefix_index *index, struct prefix_ref ref)
{
    struct prefix_node *node = prefix_node_at(index, ref);
    if (node != NULL) {
        node->num_holders++;
    }
}

void prefix_index_release(struct prefix_index *index, struct prefix_ref ref)
{
    struct prefix_node *node = prefix_node_at(index, ref);
    if (node != NULL) {
        pkv_assert(node->num_holders > 0);
        node->num_holders--;
        free_if_unneeded(index, ref.index);
    }
}

/* --- parting */

/* Parts a block from its node, which then may die. */
static void part(struct prefix_index *index, int32_t group, int32_t block)
{
    const int32_t at = index->block_nodes[group][block] - 1;
    struct prefix_node *node = &index->nodes[at];
    prefix_blocks_at(index, at)[group] = PREFIX_NONE;
    index->block_nodes[group][block] = 0;
    prefix_names_count(index, node->namespace_id, -1);
    node->num_blocks--;
    if (node->num_blocks == 0) {
        observe(index, PREFIX_REMOVED, at);
        free_if_unneeded(index, at);
    }
}

/* True when the block, which has a node, was free. */
static bool part_and_requeue(struct prefix_index *index, int32_t group, int32_t block)
{
    const bool is_free = block_pool_class(index->pools[group], block) != BLOCK_POOL_NONE;
    part(index, group, block);
    if (is_free) {
        block_pool_move(index->pools[group], block, PREFIX_CLASS_UNINDEXED);
    }
    return is_free;
}

/* Takes all blocks of a flushed node. It may be dead after the last. */
static void take_apart(struct prefix_index *index, int32_t node, struct prefix_swept *swept)
{
    const int32_t *blocks = prefix_blocks_at(index, node);
    for (int32_t group = 0; group < index->config.num_groups; group++) {
        if (blocks[group] == PREFIX_NONE) {
            continue;
        }
        if (part_and_requeue(index, group, blocks[group])) {
            swept->freed++;
        } else {
            swept->held++;
        }
    }
}

/* While a sweep is under way, an equal block may be stored before the sweep gets to the old one:
 * that goes now, so that whoever follows the events is told of its end first. */
static void retire(struct prefix_index *index, struct prefix_key key)
{
    const uint32_t bucket = prefix_bucket(index, key);
    int32_t at = index->sweep_left > 0 ? index->buckets[bucket] - 1 : PREFIX_NONE;
    while (at != PREFIX_NONE) {
        const struct prefix_node *node = &index->nodes[at];
        const bool is_equal = node->key.low == key.low && node->key.high == key.high;
        if (is_equal && node->num_blocks > 0 &&
            !prefix_index_is_live(index, prefix_ref_of(index, at))) {
            take_apart(index, at, &index->retired);
            at = index->buckets[bucket] - 1; /* it and its ancestors may have left the chain */
        } else {
            at = node->next - 1;
        }
    }
}

/* --- publishing */

/* The queue on which the node's free blocks wait, unless they are out of a window. */
static int32_t class_queue(const struct prefix_node *node)
{
    return PREFIX_CLASS_PRIORITY + node->priority;
}

static void requeue_blocks(struct prefix_index *index, int32_t node)
{
    const int32_t *blocks = prefix_blocks_at(index, node);
    for (int32_t group = 0; group < index->config.num_groups; group++) {
        const int32_t block = blocks[group];
        if (block != PREFIX_NONE &&
            block_pool_class(index->pools[group], block) >= PREFIX_CLASS_PRIORITY) {
            block_pool_move(index->pools[group], block, class_queue(&index->nodes[node]));
        }
    }
}

void prefix_index_raise(struct prefix_index *index, struct prefix_ref ref, int32_t priority)
{
    struct prefix_node *node = prefix_node_at(index, ref);
    while (node != NULL && node->priority < priority) {
        node->priority = (uint8_t)priority;
        if (node->num_blocks > 0) {
            requeue_blocks(index, ref.index);
        }
        ref = node->parent;
        node = prefix_node_at(index, ref);
    }
}

enum prefix_insert prefix_index_insert(struct prefix_index *index, struct prefix_ref parent,
                                       int32_t namespace_id, uint64_t epoch, const int32_t *tokens,
                                       const uint64_t *extra, int32_t priority,
                                       struct prefix_ref *node)
{
    if (!prefix_index_is_current(index, namespace_id, epoch) ||
        (parent.index != PREFIX_NONE && !prefix_index_is_live(index, parent))) {
        return PREFIX_FLUSHED;
    }
    const struct prefix_content content = prefix_content_of(
        index, parent, namespace_id, tokens, extra, prefix_write_head(index, namespace_id));
    bool is_colliding = false;
    int32_t at = prefix_search(index, &content, &is_colliding);
    enum prefix_insert answer = PREFIX_FOUND;
    if (at != PREFIX_NONE) {
        index->nodes[at].num_holders++;
    } else if (is_colliding) {
        answer = PREFIX_COLLIDING;
    } else {
        answer = PREFIX_NEW;
        prefix_index_hold(index, parent); /* what retires may be its only child */
        retire(index, content.key);
        at = make_node(index, &content);
        prefix_index_release(index, parent);
    }
    if (at == PREFIX_NONE) {
        index->counters.not_indexed++;
        return answer == PREFIX_COLLIDING ? PREFIX_COLLIDING : PREFIX_NOT_NOW;
    }
    *node = prefix_ref_of(index, at);
    prefix_index_raise(index, *node, priority);
    return answer;
}

int32_t prefix_index_attach(struct prefix_index *index, struct prefix_ref ref, int32_t group,
                            int32_t block)
{
    if (!prefix_index_is_live(index, ref)) {
        return PREFIX_NONE;
    }
    struct prefix_node *node = &index->nodes[ref.index];
    int32_t *mine = &prefix_blocks_at(index, ref.index)[group];
    if (*mine != PREFIX_NONE) {
        return *mine;
    }
    pkv_assert(index->block_nodes[group][block] == 0);
    pkv_assert(block_pool_class(index->pools[group], block) == BLOCK_POOL_NONE);
    *mine = block;
    index->block_nodes[group][block] = ref.index + 1;
    prefix_names_count(index, node->namespace_id, 1);
    node->num_blocks++;
    if (node->num_blocks == 1) {
        observe(index, PREFIX_STORED, ref.index);
    }
    return block;
}

/* --- blocks come and go */

int32_t prefix_index_take(struct prefix_index *index, int32_t group)
{
    const int32_t block = block_pool_take(index->pools[group]);
    if (block != PREFIX_NONE && index->block_nodes[group][block] != 0) {
        const struct prefix_ref node = prefix_index_node_of(index, group, block);
        index->counters.evictions += prefix_index_is_live(index, node); /* else it was flushed */
        part(index, group, block);
    }
    return block;
}

bool prefix_index_drop(struct prefix_index *index, int32_t group, int32_t block,
                       bool is_out_of_window)
{
    const int32_t node = index->block_nodes[group][block] - 1;
    int32_t queue = PREFIX_CLASS_UNINDEXED;
    if (node != PREFIX_NONE) {
        queue = is_out_of_window ? PREFIX_CLASS_OUT_OF_WINDOW : class_queue(&index->nodes[node]);
    }
    return block_pool_drop_to(index->pools[group], block, queue);
}

void prefix_index_detach(struct prefix_index *index, int32_t group, int32_t block)
{
    if (index->block_nodes[group][block] != 0) {
        (void)part_and_requeue(index, group, block);
    }
}

bool prefix_index_sweep(struct prefix_index *index, int32_t max_nodes, struct prefix_swept *swept)
{
    swept->freed += index->retired.freed;
    swept->held += index->retired.held;
    index->retired = (struct prefix_swept){0};
    for (int32_t i = 0; i < max_nodes && index->sweep_left > 0; i++) {
        const int32_t at = index->sweep_at++;
        index->sweep_left--;
        if (index->nodes[at].is_used && !prefix_index_is_live(index, prefix_ref_of(index, at))) {
            take_apart(index, at, swept);
        }
    }
    return index->sweep_left == 0;
}
