/* SPDX-License-Identifier: MIT
 *
 * prefix_index.h: which cached block holds which tokens.
 *
 * A node stands for one full, committed block of block_size tokens (a tail: for fewer, see
 * prefix_node.h) at one place of a prompt: what
 * came before it is its parent node. It names at most one block id in each layer group, and lives
 * while it has a block, a child or a holder. A group may have blocks of several nodes each: its
 * block is at the node that ends it, so that it is found through the whole of its tokens, and the
 * nodes before have none of this group:
 *
 *   root -- node [tok 0..3] -- node [tok 4..7] -- node [tok 8..11]
 *             group 0: 17        group 0: 4         group 0: 9
 *             group 1: -1        group 1: 30        group 1: 31      (left a window: -1)
 *
 * A node's key is a hash over all that determines its content (prefix_content.h). The key only
 * finds candidates: a hit needs the same parent node (index and generation), the same namespace,
 * the same token ids and extras, and an epoch that was not flushed since. Of two contents under one
 * key the first is indexed and the second is not, and counted.
 *
 * The calls on an index are in several files by what they do:
 *
 *   prefix_scope.h    which namespace each block of a sequence is in
 *   prefix_match.h    finding: the longest chain of nodes for a prompt
 *   prefix_siblings.h the nodes under one parent, in order: hits that end inside a block
 *   prefix_publish.h  making nodes
 *   prefix_retain.h   retention points: which windows are worth keeping
 *   prefix_order.h    which of two cached blocks is evicted first
 *   prefix_claim.h    the priority of nodes
 *   prefix_decay.h    when it ends for a block
 *   prefix_blocks.h   the blocks of nodes: attached, taken, dropped, detached
 *   prefix_flush.h    epochs: flush, reset, and the sweep that follows
 *   prefix_quota.h    what the fields of a namespace hold and may hold
 *   prefix_check.h    the checker, and the invariants that it counts
 *
 * All memory is taken at create: small tables by hooks, node arrays by mem_map, touched as nodes
 * are first used. Callers are trusted. Not thread-safe: the cache's mutex is held. Costs are O(1)
 * a block unless a declaration says otherwise. */
#ifndef PKV_PREFIX_INDEX_H
#define PKV_PREFIX_INDEX_H

#include "alloc/block_pool.h"
#include "base/hooks.h"
#include "prefix/prefix_content.h"
#include "prefix/prefix_node.h"
#include "prefix/prefix_run.h"

enum prefix_change {
    PREFIX_STORED, /* a node got a block in one more group */
    PREFIX_REMOVED /* a node lost its block of a group; it can be read until the observer returns */
};

/* Called at each such change of a node that is no tail, for events and counters. It must not call
 * the index except to read. A node that loses a block was evicted while it is live, flushed or
 * reset when it is not. */
typedef void prefix_observer(void *context, enum prefix_change change, struct prefix_ref node);

/* max_namespaces bounds the sets of fields alive at one time, and the field values too. Nodes keep
 * theirs alive, so a bound below num_nodes + 5 * sequences can be reached: then opening a scope
 * answers PKV_NO_BLOCKS.
 *
 * num_nodes bounds what can be found, with blocks or without: a chain in window groups alone keeps
 * a node for each of its blocks that left the window, as long as its last window is cached. When no
 * node is free, what is cached least worth keeping is evicted, windows first.
 *
 * masked_key_bits is a hook for tests: a search ignores so many bits of each key. No answer depends
 * on it. */
struct prefix_config {
    int32_t block_size; /* of a node */
    int32_t num_groups;
    const int32_t *nodes_per_block;   /* [num_groups], >= 1: nodes that a block of the group spans;
                                         NULL: 1 in all; copied */
    pkv_pool *const *pools;           /* [num_groups], not owned; the array is copied */
    const int64_t *windows;           /* [num_groups], 0 = none; NULL: no group has one; copied */
    int32_t num_nodes;                /* 0 = twice the nodes that the blocks of all pools span */
    int32_t max_namespaces;           /* 0 = num_nodes + 1024 */
    struct pkv_block_key fingerprint; /* of format and geometry; enters every key */
    uint64_t seed;             /* random, this index's own: mixes the choice of a bucket, no key */
    int32_t masked_key_bits;   /* in [0, PREFIX_KEY_BITS] */
    bool finds_partial;        /* siblings are kept in order, for hits that end inside a block */
    prefix_observer *observer; /* NULL = none */
    void *observer_context;
};

/* Exactly what create takes. */
struct prefix_sizes {
    size_t metadata_bytes; /* through hooks->alloc */
    size_t mapped_bytes;   /* reserved by mem_map, touched as used */
};

/* Counts since create. */
struct prefix_counters {
    uint64_t collisions;  /* candidates whose key was equal and whose content was not */
    uint64_t not_indexed; /* inserts refused: a second content under one key, or no node free */
    uint64_t evictions;   /* blocks that had a live node when they were taken, or for their node */
};

/* Blocks that a sweep took from flushed nodes: they have no node any more. */
struct prefix_swept {
    int64_t freed; /* were free */
    int64_t held;  /* are held still */
};

/* How much is known to speak for a block (prefix_order.h). */
enum prefix_standing { PREFIX_PASSING, PREFIX_SETTLED, PREFIX_SHARED, PREFIX_NUM_STANDINGS };

/* What decides, beside its node, when a cached block is evicted. */
struct prefix_use {
    int64_t stamp;         /* of the group's clock, when it became free */
    uint64_t deadline_ns;  /* then its priority counts as 0; 0 = never (prefix_decay.h) */
    int32_t heap_at;       /* its place in the heap of deadlines + 1; 0 = not in it */
    uint8_t standing;      /* an enum prefix_standing */
    bool is_decayed;       /* its deadline came while it was free */
    bool is_out_of_window; /* it became free as no query of its sequence saw it any more */
};

#define PREFIX_ORDER_MAX_LATENESS 12

/* What a group has learned for its order of eviction (prefix_order.h). */
struct prefix_eviction {
    int64_t clock;    /* from 1: how often a block became free in a class of priority */
    int32_t capacity; /* blocks that classes of priority had when one was taken from them last */
    int8_t lateness;  /* votes: prompts come again late, or, below 0, soon */
};

/* Open for the other files of this module, and for tests that must break it. */
struct prefix_index {
    struct pkv_hooks hooks;
    struct prefix_config config; /* with defaults filled in; its arrays are those of the index */
    pkv_pool **pools;            /* [num_groups] */
    int64_t *windows;            /* [num_groups] */
    int32_t *nodes_per_block;    /* [num_groups] */
    int32_t hit_nodes;           /* every group has a block end at multiples of so many nodes */
    int32_t *window_nodes;       /* [num_groups]: above a retention point, those that may end a
                                    block with keys that a query there sees; 0 = no window */
    int32_t max_window_nodes;
    struct prefix_sizes sizes;
    unsigned char *metadata;
    unsigned char *mapped;

    struct prefix_namespace_table namespaces;
    struct prefix_node_table nodes;
    struct prefix_content_writer writer;
    int32_t **block_nodes;          /* [num_groups][num_blocks of that pool]: node + 1, 0 = none */
    struct prefix_use **block_uses; /* likewise */
    int32_t **heaps;                /* likewise: blocks by deadline, the soonest first */
    int32_t *heap_lengths;          /* [num_groups] */
    uint64_t now_ns;                /* the latest time that was set */
    struct prefix_eviction *eviction; /* [num_groups] */

    int32_t sweep_at;            /* next node to look at */
    int32_t sweep_left;          /* nodes still to look at */
    struct prefix_swept retired; /* taken apart before the sweep came to them, not yet reported */
    int32_t *tail_tokens;        /* [block_size], scratch of prefix_index_insert_tail */
    uint64_t *tail_extra;        /* likewise */
    struct prefix_run *runs;     /* [num_groups], scratch of prefix_index_resident */
    uint64_t num_not_indexed;
    uint64_t num_evictions;
};

/* Sizes by config. PKV_NEVER_FITS when a product does not fit. Of the pools only their numbers of
 * blocks matter; they are passed as num_blocks [num_groups], so that sizes can be computed before
 * pools exist. */
enum pkv_status prefix_index_size(const struct prefix_config *config, const int32_t *num_blocks,
                                  struct prefix_sizes *sizes);

/* Its nodes, config's or the default; num_blocks likewise. */
int64_t prefix_index_nodes_of(const struct prefix_config *config, const int32_t *num_blocks);

/* PKV_NO_MEMORY or PKV_NEVER_FITS. hooks are copied. */
enum pkv_status prefix_index_create(const struct prefix_config *config,
                                    const struct pkv_hooks *hooks, struct prefix_index **index);

/* NULL is accepted. Touches no pool. */
void prefix_index_destroy(struct prefix_index *index);

/* Does a block of the group end at the node of this depth? */
static inline bool prefix_index_ends_block(const struct prefix_index *index, int32_t group,
                                           int32_t depth)
{
    const int32_t nodes_per_block = index->nodes_per_block[group];
    return nodes_per_block == 1 || (depth + 1) % nodes_per_block == 0;
}

/* Tokens [block_size] of a node, NULL when it is stale; its extras, NULL also when it has none. */
const int32_t *prefix_index_tokens(const struct prefix_index *index, struct prefix_ref node);
const uint64_t *prefix_index_extra(const struct prefix_index *index, struct prefix_ref node);

/* The tables of the index as other modules see them, which do not look into it: one more, one less
 * holder of a node (prefix_node.h). */
static inline void prefix_index_hold(struct prefix_index *index, struct prefix_ref node)
{
    prefix_node_hold(&index->nodes, node);
}

static inline void prefix_index_release(struct prefix_index *index, struct prefix_ref node)
{
    prefix_node_release(&index->nodes, node);
}

/* Loads a node under which another will be made. */
static inline void prefix_index_prefetch(const struct prefix_index *index, struct prefix_ref node)
{
    if (node.index != PREFIX_NONE) {
        prefix_node_prefetch(&index->nodes, node.index);
    }
}

/* NULL for a stale ref and for the root. Valid until the next call that changes the index. */
static inline const struct prefix_node *prefix_index_node(const struct prefix_index *index,
                                                          struct prefix_ref node)
{
    return prefix_node_at(&index->nodes, node);
}

/* True for a tail that is not stale. */
static inline bool prefix_index_is_tail(const struct prefix_index *index, struct prefix_ref node)
{
    const struct prefix_node *of = prefix_node_at(&index->nodes, node);
    return of != NULL && prefix_node_is_tail(&index->nodes, of);
}

/* True for a node that is not stale and was not flushed: one that can be hit. */
static inline bool prefix_index_is_live(const struct prefix_index *index, struct prefix_ref node)
{
    return prefix_node_is_live(&index->nodes, node);
}

/* The fields of a namespace in order of tag, bytes pointing into the index, begins_at 0. Returns
 * their number. */
static inline int32_t
prefix_index_fields(const struct prefix_index *index, int32_t namespace_id,
                    struct pkv_namespace_field fields[PKV_MAX_NAMESPACE_FIELDS])
{
    return prefix_namespace_read(&index->namespaces, namespace_id, fields);
}

/* The bounds in force, the nodes in use, the counters. */
static inline int32_t prefix_index_num_nodes(const struct prefix_index *index)
{
    return index->nodes.max_nodes;
}

static inline int32_t prefix_index_max_namespaces(const struct prefix_index *index)
{
    return index->namespaces.max_records;
}

static inline int32_t prefix_index_num_used(const struct prefix_index *index)
{
    return index->nodes.num_used;
}

struct prefix_counters prefix_index_counters(const struct prefix_index *index);

/* For the module: writes the head of a namespace into the writer's buffer; its length. */
size_t prefix_index_head(const struct prefix_index *index, int32_t namespace_id);

/* For the module: the content of one block under a node that is not stale, or under the root. */
struct prefix_content prefix_index_content(const struct prefix_index *index,
                                           struct prefix_ref parent, int32_t namespace_id,
                                           const int32_t *tokens, const uint64_t *extra);

#endif
