/* SPDX-License-Identifier: MIT
 *
 * prefix_index.h: which cached block holds which tokens.
 *
 * A node stands for one full, committed block of block_size tokens at one place of a prompt: what
 * came before it is its parent node. It names at most one block id in each layer group, and lives
 * while it has a block, a child or a holder:
 *
 *   root -- node [tok 0..3] -- node [tok 4..7] -- node [tok 8..11]
 *             group 0: 17        group 0: 4         group 0: 9
 *             group 1: -1        group 1: 30        group 1: 31      (left a window: -1)
 *
 * A node's key is a hash over all that determines its content (prefix_hash.h). The key only finds
 * candidates: a hit needs the same parent node (index and generation), the same namespace, the same
 * token ids and extras, and an epoch that was not flushed since. Of two contents under one key the
 * first is indexed and the second is not, and counted.
 *
 * The index works on the pools of the groups: a block whose reference count is zero and that has a
 * node is free and cached at once. It is in the pool's class of its node's priority, and is found
 * until it is taken. Invariants, which prefix_index_check counts the breaches of:
 *
 *   node has block b in group g      <=>  node_of(g, b) = node
 *   priority of a parent              >=  priority of each child
 *   a free block without a node          is in PREFIX_CLASS_UNINDEXED
 *   a free block with a node             is in PREFIX_CLASS_OUT_OF_WINDOW, or in
 *                                        PREFIX_CLASS_PRIORITY + its priority
 *   num_used + num_free_nodes         =  num_nodes
 *
 * Differences from a plain table of namespaces, and why: fields are interned one by one, and a
 * namespace is a set of them, because quota and flush are per field (one counter, one epoch, O(1)).
 * Nodes have holders, because a sequence whose window is shorter than a block may lose the block of
 * its newest node before it publishes the next.
 *
 * All memory is taken at create: small tables by hooks, node arrays by mem_map, touched as nodes
 * are first used. Nothing is validated: callers are trusted. Not thread-safe: the cache's mutex is
 * held. Costs are O(1) a block unless a declaration says otherwise. */
#ifndef PKV_PAGES_PREFIX_INDEX_H
#define PKV_PAGES_PREFIX_INDEX_H

#include "alloc/block_pool.h"
#include "base/hooks.h"

#define PREFIX_NONE (-1)

/* Classes of free blocks in the groups' pools (alloc/block_pool.h): the lowest is taken first. */
enum {
    PREFIX_CLASS_UNINDEXED = 0,     /* blocks without a node */
    PREFIX_CLASS_OUT_OF_WINDOW = 1, /* with one, and out of the window of the last holder */
    PREFIX_CLASS_PRIORITY = 2       /* + the node's priority */
};
_Static_assert(PREFIX_CLASS_PRIORITY + PKV_NUM_PRIORITIES == BLOCK_POOL_NUM_CLASSES,
               "a pool has as many classes as the index uses");

struct prefix_index;

struct prefix_key {
    uint64_t low;
    uint64_t high;
};

/* A node by identity. A died, reset or recycled one is stale, and every call that takes a ref says
 * what it does then. index PREFIX_NONE is the root: the parent of first blocks, never stale. */
struct prefix_ref {
    int32_t index;
    uint32_t generation;
};
#define PREFIX_ROOT ((struct prefix_ref){PREFIX_NONE, 0})

/* A node as it may be read. */
struct prefix_node {
    struct prefix_key key;
    uint64_t epoch; /* in which it was inserted; see prefix_index_epoch */
    struct prefix_ref parent;
    uint32_t generation;
    int32_t namespace_id;
    int32_t depth; /* blocks before it: 0 for a first block */
    int32_t num_children;
    int32_t num_holders;
    int32_t num_blocks; /* groups in which it has one */
    int32_t next;       /* in its bucket, or on the list of free nodes */
    uint8_t priority;   /* class, 0 .. PKV_NUM_PRIORITIES - 1; higher is evicted later */
    bool is_used;
    bool has_extra;
    int32_t scratch; /* of prefix_index_check */
};

enum prefix_change {
    PREFIX_STORED, /* a node got its first block */
    PREFIX_REMOVED /* a node lost its last block; it can be read until the observer returns */
};

/* Called at each such change, for events and counters; NULL = nobody. It must not call the index
 * except to read. A node that loses its last block was evicted while it is live, flushed or
 * reset when it is not. */
typedef void prefix_observer(void *context, enum prefix_change change, struct prefix_ref node);

/* max_namespaces bounds the sets of fields alive at one time, and the field values too; 0 stands
 * for num_nodes + 1024. Nodes keep theirs alive, so a bound below num_nodes + 5 * sequences can be
 * reached: then open answers PKV_NO_BLOCKS.
 *
 * num_nodes bounds what can be found, blocks or not: a chain in window groups alone keeps a node
 * for each of its blocks that left the window, as long as its last window is cached.
 *
 * hash_bits is a hook for tests: 1 + the bits of a key that a search looks at, 0 = all. No answer
 * depends on it. */
struct prefix_config {
    int32_t block_size; /* of all groups */
    int32_t num_groups;
    pkv_pool *const *pools; /* [num_groups], not owned; the array is copied */
    int32_t num_nodes;      /* 0 = twice the blocks of all pools */
    int32_t max_namespaces;
    struct prefix_key fingerprint; /* of format and geometry; enters every key: prefix_hash_bytes */
    uint64_t seed; /* random, this index's own: mixes the choice of a bucket, no key */
    int32_t hash_bits;
    prefix_observer *observer;
    void *observer_context;
};

/* Exactly what create takes. */
struct prefix_sizes {
    size_t metadata_bytes; /* through hooks->alloc */
    size_t mapped_bytes;   /* reserved by mem_map, touched as used */
};

/* Counts since create. */
struct prefix_counters {
    uint64_t collisions;  /* candidates whose hash was equal and whose content was not */
    uint64_t not_indexed; /* inserts refused: a second content under one key, or no node free */
    uint64_t evictions;   /* blocks that had a node when they were taken */
};

/* Sizes by config. PKV_NEVER_FITS when a product does not fit. Of pools only their number of blocks
 * is read; it is passed as num_blocks [num_groups] so that it can be asked before they exist. */
enum pkv_status prefix_index_size(const struct prefix_config *config, const int32_t *num_blocks,
                                  struct prefix_sizes *sizes);

/* PKV_NO_MEMORY or PKV_NEVER_FITS. hooks are copied. */
enum pkv_status prefix_index_create(const struct prefix_config *config,
                                    const struct pkv_hooks *hooks, struct prefix_index **index);

/* NULL is accepted. Touches no pool. */
void prefix_index_destroy(struct prefix_index *index);

/* --- namespaces ---------------------------------------------------------------------------- */

/* What a sequence carries: which namespace each of its blocks is in. Entry i holds from block
 * from[i] on; from[0] = 0 and from rises. A namespace is an exact set of (tag, bytes), interned:
 * two ids are equal exactly when the sets are. Blocks before a field begins are in a namespace
 * without it, so they are shared by all values of the field. Namespace 0 is the empty set. */
struct prefix_scope {
    int32_t count;
    int32_t from[PKV_MAX_NAMESPACE_FIELDS + 1];
    int32_t namespace_id[PKV_MAX_NAMESPACE_FIELDS + 1];
};

/* Interns the namespaces of a sequence; fields in any order. PKV_INVALID_ARGUMENT: too many fields,
 * a tag twice, a length or begins_at out of range, NULL bytes of a length above 0. PKV_NO_BLOCKS:
 * the table is full now. Nothing changed then. Close gives them back; a namespace lives while a
 * scope or a node names it. */
enum pkv_status prefix_scope_open(struct prefix_index *index,
                                  const struct pkv_namespace_field *fields, int32_t num_fields,
                                  struct prefix_scope *scope);
void prefix_scope_close(struct prefix_index *index, struct prefix_scope *scope);

/* One more holder of all of a scope's namespaces (a fork's copy). */
void prefix_scope_share(struct prefix_index *index, const struct prefix_scope *scope);

/* As open, but takes nothing and needs no close, for probes without a sequence: a namespace that is
 * not in the table, in which nothing can be cached, is PREFIX_NONE in *scope. PKV_INVALID_ARGUMENT
 * as open. */
enum pkv_status prefix_scope_find(struct prefix_index *index,
                                  const struct pkv_namespace_field *fields, int32_t num_fields,
                                  struct prefix_scope *scope);

/* The namespace of block number `block`. */
static inline int32_t prefix_scope_at(const struct prefix_scope *scope, int32_t block)
{
    int32_t i = scope->count - 1;
    while (i > 0 && scope->from[i] > block) {
        i--;
    }
    return scope->namespace_id[i];
}

/* How much the fields of a namespace hold, in the caller's unit (say blocks, or bytes). charge adds
 * `amount`, which may be negative, to every field of the namespace; nothing refuses. room is the
 * least of quota - held over its fields, INT64_MAX without any quota; may be negative. */
void prefix_index_charge(struct prefix_index *index, int32_t namespace_id, int64_t amount);
int64_t prefix_index_room(const struct prefix_index *index, int32_t namespace_id);

/* Sets the quota of one field value; INT64_MAX = none. The field then stays in the table until its
 * quota is taken away. PKV_INVALID_ARGUMENT, PKV_NO_BLOCKS as open. begins_at does not matter, here
 * and in the calls below. */
enum pkv_status prefix_index_set_quota(struct prefix_index *index,
                                       const struct pkv_namespace_field *field, int64_t quota);

struct prefix_field_usage {
    int64_t held;   /* the sum of charges */
    int64_t quota;  /* INT64_MAX = none */
    int64_t cached; /* blocks, held or free, that have a node in a namespace with this field */
};

/* PKV_NOT_FOUND for a field that nobody names. */
enum pkv_status prefix_index_field_usage(const struct prefix_index *index,
                                         const struct pkv_namespace_field *field,
                                         struct prefix_field_usage *usage);

/* Reads a namespace back: its fields in order of tag, bytes pointing into the index, begins_at 0.
 * Returns their number. For events and tools. */
int32_t prefix_namespace_fields(const struct prefix_index *index, int32_t namespace_id,
                                struct pkv_namespace_field fields[PKV_MAX_NAMESPACE_FIELDS]);

/* --- epochs: flush and reset ----------------------------------------------------------------- */

/* The present epoch; a sequence remembers the one it was created in and publishes under it. */
uint64_t prefix_index_epoch(const struct prefix_index *index);

/* True when nothing that `namespace_id` names was flushed, nor all reset, since `epoch`. */
bool prefix_index_is_current(const struct prefix_index *index, int32_t namespace_id,
                             uint64_t epoch);

/* From now on no node in a namespace with this field (no node at all) is hit, and no sequence of an
 * older epoch publishes into one. O(1): the nodes are taken apart by sweep. */
void prefix_index_flush(struct prefix_index *index, const struct pkv_namespace_field *field);
void prefix_index_reset(struct prefix_index *index);

/* Blocks that a sweep took from flushed nodes. They are never-committed ones now. */
struct prefix_swept {
    int64_t freed; /* were free: moved to queue 0 */
    int64_t held;  /* go there when their holders let go */
};

/* Looks at up to max_nodes nodes after a flush or reset, and adds to *swept. True when none is left
 * to look at; false: call again. Others may run in between: an insert takes apart itself what is
 * left of an equal key, so that the end of the old block is observed first; that counts here. */
bool prefix_index_sweep(struct prefix_index *index, int32_t max_nodes, struct prefix_swept *swept);

/* --- finding ---------------------------------------------------------------------------------- */

/* The node with this content under parent, PREFIX_ROOT when there is none (or parent is stale, or
 * namespace_id is PREFIX_NONE). tokens [block_size]; extra [block_size] or NULL, and zeros are the
 * same as NULL. */
struct prefix_ref prefix_index_find(struct prefix_index *index, struct prefix_ref parent,
                                    int32_t namespace_id, const int32_t *tokens,
                                    const uint64_t *extra);

/* The longest chain of nodes for the first max_blocks full blocks of tokens [max_blocks *
 * block_size], into nodes [max_blocks]; returns its length. Stops at the first missing node.
 * Changes nothing but the count of collisions: no order, no holder. Blocks are for residency,
 * below. A sequence from before a flush of its namespace (prefix_index_is_current) must not be
 * matched. */
int32_t prefix_index_match(struct prefix_index *index, const struct prefix_scope *scope,
                           const int32_t *tokens, const uint64_t *extra, int32_t max_blocks,
                           struct prefix_ref *nodes);

/* What a group's queries see: base/window.h. */
struct prefix_window {
    int64_t window; /* 0 = all keys. With a rewind of m tokens in reserve: window + m */
    int64_t kept_prefix;
};

/* How many leading blocks h of a matched chain can be adopted: the largest h <= count such that in
 * every group the blocks of keys [0, min(kept_prefix, h * bs)) and of those that a query at h * bs
 * sees are there. windows [num_groups]. O(count * groups). */
int32_t prefix_index_resident(struct prefix_index *index, const struct prefix_ref *nodes,
                              int32_t count, const struct prefix_window *windows);

/* Block of a node in a group, PREFIX_NONE when it has none or is stale. */
int32_t prefix_index_block(const struct prefix_index *index, struct prefix_ref node, int32_t group);

/* The node that names this block; PREFIX_ROOT when none does. */
struct prefix_ref prefix_index_node_of(const struct prefix_index *index, int32_t group,
                                       int32_t block);

/* --- publishing ------------------------------------------------------------------------------- */

enum prefix_insert {
    PREFIX_NEW,       /* *node is new, without blocks */
    PREFIX_FOUND,     /* *node was there; it may have blocks already */
    PREFIX_NOT_NOW,   /* no node is free: counted as not_indexed */
    PREFIX_COLLIDING, /* its key names another content: counted as not_indexed */
    PREFIX_FLUSHED    /* parent is stale, or namespace flushed or all reset since `epoch` */
};

/* The node for this content under parent, made when there is none; its ancestors are raised to
 * `priority`. *node gets a holder, whom the caller releases (a sequence holds its newest node, and
 * only that: insert the next, then release the one before). *node is written for the first two
 * answers alone. epoch: the publishing sequence's. */
enum prefix_insert prefix_index_insert(struct prefix_index *index, struct prefix_ref parent,
                                       int32_t namespace_id, uint64_t epoch, const int32_t *tokens,
                                       const uint64_t *extra, int32_t priority,
                                       struct prefix_ref *node);

/* Makes a held block, which has no node, the node's block of the group, and returns it; when the
 * node has another already, changes nothing and returns that (the canonical one: the caller takes a
 * reference with block_pool_hold, rewrites its table, and drops its own). PREFIX_NONE for a stale
 * or flushed node. */
int32_t prefix_index_attach(struct prefix_index *index, struct prefix_ref node, int32_t group,
                            int32_t block);

/* One more, one less holder: the node does not die while it has one. PREFIX_ROOT and stale refs are
 * accepted and ignored. The last release of a node without block and child frees it, and then its
 * parent likewise: O(nodes freed). */
void prefix_index_hold(struct prefix_index *index, struct prefix_ref node);
void prefix_index_release(struct prefix_index *index, struct prefix_ref node);

/* Raises the class of a node and of all its ancestors to at least priority; their free blocks move
 * to that class's queue, but those out of a window stay. For keeping leaves before parents in the
 * order of eviction, hold the blocks (admit: adopt, then raise). O(nodes raised). Stale and root
 * are ignored. */
void prefix_index_raise(struct prefix_index *index, struct prefix_ref node, int32_t priority);

/* --- blocks come and go -------------------------------------------------------------------------
 */

/* Blocks of a pool that are free and have a node. */
static inline int32_t prefix_num_cached(const pkv_pool *pool)
{
    return pkv_pool_num_free(pool) - block_pool_num_free(pool, PREFIX_CLASS_UNINDEXED);
}

/* A block of the group's pool with a count of one, the next in the order of eviction, taken from
 * its node if it had one; PREFIX_NONE when none is free. */
int32_t prefix_index_take(struct prefix_index *index, int32_t group);

/* One reference less; true when the block is free now. Its queue: 0 without a node, 1 when
 * is_out_of_window (given back because no query of the sequence sees it any more), else that of its
 * node's class. Drop a sequence's blocks last block first, so that leaves are evicted before
 * parents. */
bool prefix_index_drop(struct prefix_index *index, int32_t group, int32_t block,
                       bool is_out_of_window);

/* Takes a block, held or free, from its node (a free one goes to queue 0): its content is not to be
 * found any more. A block without a node is left alone. */
void prefix_index_detach(struct prefix_index *index, int32_t group, int32_t block);

/* --- reading ------------------------------------------------------------------------------------
 */

/* NULL for a stale ref and for the root. Valid until the next call that changes the index. */
const struct prefix_node *prefix_index_node(const struct prefix_index *index,
                                            struct prefix_ref node);

/* Tokens [block_size] of a live node; its extras, NULL when it has none. */
const int32_t *prefix_index_tokens(const struct prefix_index *index, struct prefix_ref node);
const uint64_t *prefix_index_extra(const struct prefix_index *index, struct prefix_ref node);

/* True for a node that is not stale and was not flushed: one that can be hit. */
bool prefix_index_is_live(const struct prefix_index *index, struct prefix_ref node);

/* Visits the nodes in slices: the first used node (flushed or not) with an index of `from` or more,
 * PREFIX_ROOT at the end. Start with 0, go on from the answer's index + 1. */
struct prefix_ref prefix_index_next(const struct prefix_index *index, int32_t from);

/* The bounds as they are in force. */
int32_t prefix_index_num_nodes(const struct prefix_index *index);
int32_t prefix_index_max_namespaces(const struct prefix_index *index);
int32_t prefix_index_num_used(const struct prefix_index *index);
struct prefix_counters prefix_index_counters(const struct prefix_index *index);

/* Walks everything, the pools' queues included, and returns the number of broken invariants, a line
 * for each through the log hook. O(nodes + blocks + namespaces). */
int32_t prefix_index_check(struct prefix_index *index);

#endif
