/* SPDX-License-Identifier: MIT
 *
 * prefix_node.h: the nodes of the prefix index and their life.
 *
 * A node is made of a content, and lives while it has a block, a child or a holder. It is freed in
 * one place only (prefix_node_free_unneeded), and then its parent has one child less and may
 * follow. Hence a parent outlives its children, and the parent ref in a node is never stale.
 *
 * A tail is a node of less than a block: the last tokens of a sequence that ended. It is found as a
 * sibling alone (prefix_siblings.h), has no children and no priority, and is evicted before whole
 * blocks: it takes the memory of one for fewer tokens.
 *
 * Nodes are found through buckets of singly linked lists (links are index + 1, so that zeroed
 * memory is empty). Nodes at and above num_touched were never used and their memory was never read;
 * freed ones wait on a list, and the one freed longest ago is made anew first.
 *
 *   num_used + length of the free list = num_touched <= max_nodes
 *
 * O(1) a block unless a declaration says otherwise. */
#ifndef PKV_PREFIX_NODE_H
#define PKV_PREFIX_NODE_H

#include "base/build.h"
#include "prefix/prefix_content.h"
#include "prefix/prefix_namespace.h"

#define PREFIX_EVICT_FIRST (-1)

struct prefix_node {
    struct pkv_block_key key;
    uint64_t epoch; /* in which it was made */
    struct prefix_ref parent;
    uint32_t generation;
    int32_t namespace_id;
    int32_t depth; /* blocks before it: 0 for a first block */
    int32_t num_children;
    int32_t num_holders;
    int32_t num_blocks; /* groups in which it has one */
    int32_t distance;   /* blocks down to a retention point (prefix_retain.h); INT32_MAX: none */
    int32_t next;       /* in its bucket, or on the free list */
    int32_t children_at[PKV_NUM_PRIORITIES]; /* by priority */
    uint64_t retention_ns;                   /* its priority counts as 0 after so long; 0 = never */
    int8_t priority; /* in [PREFIX_EVICT_FIRST, PKV_NUM_PRIORITIES): lower is evicted first */
    bool is_used;
    bool has_extra;
    uint8_t num_continued;  /* children that it ever had: 0, 1, or 2 for more */
    int32_t scratch;        /* of prefix_index_check */
    int32_t first_siblings; /* its children in their order: prefix_siblings.h */
    int32_t sibling_before; /* its own place among its siblings */
    int32_t sibling_behind;
    int32_t num_tokens; /* block_size, or less: of a tail */
};

struct prefix_node_table {
    struct prefix_namespace_table *namespaces;
    struct prefix_node *nodes; /* [max_nodes] */
    int32_t *tokens;           /* [max_nodes][block_size] */
    uint64_t *extra;           /* [max_nodes][block_size], touched where a node has some */
    int32_t *blocks;           /* [max_nodes][num_groups], NO_BLOCK = none */
    int32_t *buckets;          /* [num_buckets] */
    uint32_t *used;            /* likewise: when it was freed last, of prefix_order; 0 = never */
    uint32_t num_buckets;      /* a power of two */
    int32_t max_nodes;
    int32_t block_size;
    int32_t num_groups;
    int32_t num_touched;
    int32_t num_used;
    int32_t free_head;
    int32_t free_tail;
    int32_t first_siblings;    /* of the nodes without a parent */
    struct pkv_block_key mask; /* bits of a key that a search looks at */
    uint64_t seed;             /* this index's own: mixes the choice of a bucket */
    uint64_t num_collisions;   /* candidates whose masked key was equal and whose content was not */
};

/* Without the seed, contents cannot be chosen that share a bucket without sharing a key. */
static inline uint32_t prefix_node_bucket(const struct prefix_node_table *table,
                                          struct pkv_block_key key)
{
    uint64_t mixed = (key.low & table->mask.low) ^ table->seed;
    mixed = (mixed ^ (mixed >> 32)) * 0x9e3779b97f4a7c15u;
    mixed ^= key.high & table->mask.high;
    mixed = (mixed ^ (mixed >> 29)) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(mixed >> 32) & (table->num_buckets - 1);
}

/* The node that ref names; NULL when it is stale, or the root. */
static inline struct prefix_node *prefix_node_at(const struct prefix_node_table *table,
                                                 struct prefix_ref ref)
{
    if (ref.index < 0 || ref.index >= table->num_touched) {
        return NULL;
    }
    struct prefix_node *node = &table->nodes[ref.index];
    return node->is_used && node->generation == ref.generation ? node : NULL;
}

static inline struct prefix_ref prefix_node_ref(const struct prefix_node_table *table, int32_t node)
{
    return (struct prefix_ref){node, table->nodes[node].generation};
}

static inline int32_t *prefix_node_tokens(const struct prefix_node_table *table, int32_t node)
{
    return table->tokens + (size_t)node * (size_t)table->block_size;
}

static inline uint64_t *prefix_node_extra(const struct prefix_node_table *table, int32_t node)
{
    return table->extra + (size_t)node * (size_t)table->block_size;
}

static inline int32_t *prefix_node_blocks(const struct prefix_node_table *table, int32_t node)
{
    return table->blocks + (size_t)node * (size_t)table->num_groups;
}

static inline uint32_t *prefix_node_used(const struct prefix_node_table *table, int32_t node)
{
    return table->used + (size_t)node * (size_t)table->num_groups;
}

/* Loads a node, which is less than two lines of the processor's cache. */
static inline void prefix_node_prefetch(const struct prefix_node_table *table, int32_t node)
{
    const unsigned char *bytes = (const unsigned char *)&table->nodes[node];
    PKV_PREFETCH(bytes);
    PKV_PREFETCH(bytes + sizeof(struct prefix_node) / 2);
    PKV_PREFETCH(bytes + sizeof(struct prefix_node) - 1);
}

static inline bool prefix_node_is_tail(const struct prefix_node_table *table,
                                       const struct prefix_node *node)
{
    return node->num_tokens < table->block_size;
}

/* The key of a tail, from that of its tokens and zeros up to the end of the block. */
static inline struct pkv_block_key prefix_node_tail_key(struct pkv_block_key key,
                                                        int32_t num_tokens)
{
    key.low ^= ((uint64_t)num_tokens + 1) * 0x9e3779b97f4a7c15u;
    return key;
}

/* Counts the node, by its priority, among its parent's children, but for tails. */
static inline void prefix_node_count_child(struct prefix_node_table *table,
                                           const struct prefix_node *node, int32_t sign)
{
    struct prefix_node *parent = prefix_node_at(table, node->parent);
    if (parent != NULL && node->priority >= 0 && !prefix_node_is_tail(table, node)) {
        parent->children_at[node->priority] += sign;
    }
}

/* True for a node that is not stale and was not flushed: one that can be hit. */
bool prefix_node_is_live(const struct prefix_node_table *table, struct prefix_ref ref);

/* The live node of this content, or PREFIX_NONE. *is_colliding is set when another live content has
 * the very same key. */
int32_t prefix_node_search(struct prefix_node_table *table, const struct prefix_content *content,
                           bool *is_colliding);

/* Makes a node of the content, with one holder; PREFIX_NONE when none is free. */
int32_t prefix_node_make(struct prefix_node_table *table, const struct prefix_content *content);

/* One more, one less holder; stale refs and the root are ignored. release: O(nodes freed). */
void prefix_node_hold(struct prefix_node_table *table, struct prefix_ref ref);
void prefix_node_release(struct prefix_node_table *table, struct prefix_ref ref);

/* Frees the node, and then its ancestors, as far as nothing needs them. */
void prefix_node_free_unneeded(struct prefix_node_table *table, int32_t node);

#endif
