/* SPDX-License-Identifier: MIT
 *
 * cache.h: what the files of the runtime share: the cache, its groups and layers, its sequences and
 * its one step. The runtime composes pool, pages, slots and attention and owns none of their
 * algorithms; what it adds is who holds which block, and until when.
 *
 *   config       judges the configuration, shares out a byte budget
 *   cache        counts, builds, describes and frees; by carve, and constants of layers
 *   handle       how a handle names one thing for ever
 *   blocks       one block of a group: take, share, drop, may it be written in place
 *   seq_table    a sequence's block table in one group: extend, cut, reclaim, what is resident
 *   sequence     handles, create, destroy, fork, truncate
 *   admit        admission and its dry run, the probe
 *   prefix       a sequence's tokens, what it publishes, and what it finds
 *   prefix_build the index, its fingerprint, room for the tokens
 *   quota        how many blocks a namespace's sequences hold
 *   pin          cached runs that are kept for a time
 *   flush        forgetting what is cached
 *   events       the ring of what became findable and what ceased to be
 *   metrics      counters, and their text
 *   visit        every block, for tools
 *   step         the open step's state and handle
 *   reservation  what a row of a batch takes in a group: decided, taken, kept or undone
 *   step_begin   begin, commit, abort, view
 *   step_plan    the step's plans
 *   step_attend  one layer run by them
 *   check        walks everything
 *
 * The mutex guards everything not said to be constant after create. What an open step reads while
 * it is not held (attend) does not change until commit or abort: the step's own arrays, the tables
 * of its sequences, and the blocks they hold. */
#ifndef PKV_RUNTIME_CACHE_H
#define PKV_RUNTIME_CACHE_H

#include <pthread.h>

#include "alloc/mem.h"
#include "attn/gqa_shape.h"
#include "pagedkv/alloc.h"
#include "pagedkv/cache.h"
#include "pagedkv/metrics.h"
#include "pagedkv/prefix.h"
#include "pagedkv/slots.h"
#include "pagedkv/step.h"
#include "prefix/prefix_match.h"
#include "runtime/step.h"

#define NO_BLOCK (-1)
#define NO_SEQ (-1)

/* One block of a paged group, beside its count in the pool. holders = table entries that name it +
 * pins of the open step + prefix pins. A block that has a node in the prefix index is full and
 * committed: nobody writes it again.
 *
 *   count = number of holders,  a free block has writer NO_SEQ and frozen 0
 *   writer = the one sequence that may write cells from frozen on without a copy, or NO_SEQ
 *   count > 1:  every holder but the writer reads only cells [0, frozen)
 *   count = 1:  frozen = 0 */
struct block {
    int32_t writer;
    int32_t frozen;
    int32_t num_pins;  /* prefix pins that hold it */
    bool is_stale;     /* became free with its content, to be overwritten when that is forgotten */
    uint64_t freed_ns; /* when it became free with its content, by the cache's now_ns; 0 unknown */
};

/* A sequence's side of one group. Paged: its block table, of which entry i is
 *
 *   mapped exactly when  i < end  and  (i < kept_end  or  i >= frontier),  else -1
 *
 *   kept_end = ceil(kept prefix / block_size),  0 without a window
 *   kept_end <= frontier: blocks in between were given back for good
 *   while end < promised_end, each block given back is replaced by one at the end
 *   end >= floor(length / block_size); blocks from ceil(length / block_size) on are reserved:
 *   count 1, writer this sequence
 *
 * Continuous: the slot, and the cache row that it names. */
struct seq_table {
    int32_t kept_end;
    int32_t frontier;
    int32_t end;
    int32_t promised_end; /* where the table ends once all that was admitted is written */
    int32_t charged;      /* blocks that its namespace's quotas count: those mapped */
    int32_t row;
    pkv_slot slot;
};

/* Layers with one geometry and table. Exactly one of pool and slots is there. Constant after
 * create: everything but the contents of pool, slots, blocks, tables (the mutex) and of step, which
 * is the open step's. */
struct group {
    const struct pkv_group_config *config; /* as in force */
    int32_t index;
    int32_t num_owners;
    int32_t max_blocks; /* 0 for continuous */
    struct gqa_shape shape;

    pkv_pages *pages;
    pkv_pool *pool;
    pkv_slots *slots;
    int32_t *tables; /* [max_seqs][table_stride], reserved address space; rows of live sequences */
    size_t table_stride; /* of which max_blocks are entries */
    size_t table_bytes;
    struct pkv_kv_view first_view; /* of the first layer that owns pages */
    size_t layer_stride_bytes;     /* from there to the next one's */
    struct block *blocks;          /* [num_blocks] */
    struct seq_table *seq_tables;  /* [max_seqs] */

    int32_t num_pinned; /* blocks with prefix pins */
    struct step_group step;
};

/* Constant after create but for the last two, which belong to the thread that drives the step.
 */
struct layer {
    int32_t group;
    int32_t num_heads;
    int32_t owner; /* the layer whose pages it reads: itself, or an earlier one */
    const struct pkv_attn_constants *constants;
    struct pkv_kv_view view;
    bool is_attended;  /* in the open step ... */
    int32_t num_reads; /* ... and how often, with tokens: a layer that shares pages may be again */
};

enum seq_state {
    SEQ_FREE = 0,
    SEQ_LIVE,
    SEQ_DYING /* destroyed while in the open step: the handle is stale, the rest goes at its end */
};

/* A sequence's side of the prefix cache; all zero without it. Its tokens lie in its row of
 * prefix_cache.tokens (and extra, when has_extra):
 *
 *   [0, num_published * block_size)   in blocks that were found or published; newest is the node of
 *                                     the last of them, held, or the root
 *   [.., length)                      committed
 *   [.., num_known)                   its prompt, or written by the open step
 *
 *   num_published <= num_tried <= what was full and max_rewind behind at the last commit */
struct seq_prefix {
    struct prefix_scope scope;
    struct prefix_ref newest;
    uint64_t epoch;
    int32_t num_published;
    int32_t num_tried;
    int32_t num_prompt; /* tokens of its admission, less what was written otherwise */
    int32_t num_known;
    int32_t priority;
    bool no_publish;
    bool has_extra;
    bool was_admitted;
};

/* One sequence; its index is its row in every per-sequence array for life. Guarded by the mutex.
 *
 *   number of SEQ_FREE records = num_free_seqs = length of the free list
 *   generation moves when a sequence is destroyed, so no handle names two of them */
struct seq {
    uint64_t generation;
    uint64_t tag;
    uint64_t stamp; /* of the last batch that named it */
    enum seq_state state;
    bool in_step;
    int32_t length; /* committed tokens: the one authority */
    int32_t max_rewind;
    int32_t kept_prefix; /* -1: each group's own */
    int32_t next_free;
    struct seq_prefix prefix;
};

/* Scratch of pkv_cache_check, one a block of the largest group. */
struct check_cell {
    int32_t count;
    int32_t last_seq; /* + 1; the last sequence whose table named the block */
    int32_t num_pins; /* of prefix pins */
    bool writer_holds;
};

/* A cached run that is held. The nodes of blocks 0 .. num_nodes - 1 are leaf and its ancestors;
 * which of their blocks it holds follows from kept_prefix and max_rewind. */
struct pin {
    uint64_t generation;
    struct prefix_ref leaf; /* held */
    int32_t num_nodes;      /* 0: this record is free */
    int32_t kept_prefix;    /* -1: each group's own */
    int32_t max_rewind;
    int32_t next_free;
    uint64_t ends_ns; /* UINT64_MAX: never by itself */
};

/* The last events: number n lies in ring[n % capacity].
 *   next - first waiting,  first <= next,  next - first <= capacity,  num_lost since the last drain
 */
struct events {
    struct pkv_event *ring;
    int32_t capacity;
    uint64_t first;
    uint64_t next;
    uint64_t num_lost;
    uint64_t total_lost;
    uint64_t cleared_epoch; /* nodes of an earlier one went with the last CLEARED */
};

/* The prefix cache of a cache. index NULL: there is none, and the rest is zero but for counts. */
struct prefix_cache {
    struct prefix_index *index;
    int32_t block_size;
    int32_t *tokens; /* [max_seqs][token_stride], reserved address space; max_seq_len are used */
    uint64_t *extra; /* [max_seqs][extra_stride], likewise */
    size_t token_stride;
    size_t extra_stride;
    size_t token_bytes;
    size_t extra_bytes;
    struct prefix_ref *matched;    /* [max_blocks], of the call at hand */
    struct prefix_window *windows; /* [num_groups], likewise */
    pkv_pool **pools;              /* [num_groups] */
    struct pin *pins;              /* [max_pinned_blocks] */
    int32_t first_free_pin;
    int32_t num_pins;
    uint64_t soonest_ns; /* no pin ends before */
    size_t index_bytes;  /* of the index, its nodes and the sequences' tokens */
    struct events events;
    struct pkv_stats counts; /* those of its fields that only grow */
};

struct pkv_cache {
    /* constant after create */
    struct mem mem;
    struct pkv_cache_config config; /* as in force; its arrays are the two below */
    struct pkv_group_config *group_configs;
    struct pkv_layer_config *layer_configs;
    int64_t rope_positions; /* every position below has its row in every layer with rope */
    struct group *groups;
    struct layer *layers;
    pkv_workspace *workspace; /* used by begin and by the open step's attend, never both */
    void *arrays;             /* the one allocation that all arrays but tables are cut from */
    size_t array_bytes;
    bool has_mutex;
    pthread_mutex_t mutex;
    pthread_mutex_t gate; /* held by the one thread that waits for the mutex next */

    /* guarded by the mutex */
    bool is_closed;
    uint64_t batch_stamp;
    uint64_t now_ns;  /* the latest time that a call brought */
    struct seq *seqs; /* [max_seqs] */
    int32_t first_free_seq;
    int32_t num_free_seqs;
    struct step step;
    struct prefix_cache prefix;
    struct check_cell *check_cells;
};

/* Waits behind whoever waits already. */
static inline void cache_queue(pkv_cache *cache)
{
    pthread_mutex_lock(&cache->gate);
    pthread_mutex_lock(&cache->mutex);
    pthread_mutex_unlock(&cache->gate);
}

static inline void cache_lock(pkv_cache *cache)
{
    if (pthread_mutex_trylock(&cache->mutex) != 0) {
        cache_queue(cache);
    }
}

static inline void cache_unlock(pkv_cache *cache)
{
    pthread_mutex_unlock(&cache->mutex);
}

/* Between two slices of a long walk: others come first. To unlock and to lock again would not do:
 * the walker is there before those who have to be woken. */
static inline void cache_let_in(pkv_cache *cache)
{
    cache_unlock(cache);
    cache_queue(cache);
}

static inline bool group_is_paged(const struct group *group)
{
    return group->pool != NULL;
}

static inline bool cache_has_prefix(const pkv_cache *cache)
{
    return cache->prefix.index != NULL;
}

/* The tokens that a sequence of this group always sees. */
static inline int32_t group_kept_prefix(const struct group *group, const struct seq *seq)
{
    return seq->kept_prefix >= 0 ? seq->kept_prefix : (int32_t)group->config->kept_prefix;
}

#endif
