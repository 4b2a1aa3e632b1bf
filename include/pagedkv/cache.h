/* SPDX-License-Identifier: MIT
 *
 * pagedkv/cache.h: the managed cache of a continuous-batching server.
 *
 *     pkv_cache_create(&config, &cache)
 *     pkv_seq_create(cache, &options, &seq)                      a request arrives
 *     pkv_seq_admit(cache, seq, &prompt, reserve, ...)           room for it, or "not now"
 *     loop
 *       pkv_step_begin(cache, &batch, &step, &shortage)          cells reserved, work planned
 *       for each layer: pkv_step_attend(cache, step, layer, &io) append + attend
 *       pkv_step_commit(cache, step, NULL)                       lengths advance
 *     pkv_seq_destroy(cache, seq)
 *
 * With config.prefix_cache full blocks of committed tokens stay findable by what they hold, also
 * after their sequences ended and until their memory is needed: admit adopts the longest run of
 * them that a request begins with. A hash only finds candidates; tokens, extras, parent block and
 * namespace decide. The same calls in the same order give the same hits, evictions and block ids.
 *
 * Handles are values: index, generation and cache in 64 bits. They can be logged and sent; one that
 * was destroyed, reused or belongs to another cache answers PKV_STALE_HANDLE.
 *
 * A sequence has one length, the number of its committed tokens. Its block table per group is
 * indexed by absolute position; window groups give blocks back once no future query can see them. A
 * block has at most one writer, the sequence that reserved its next cell; any other that appends to
 * it copies it.
 *
 * Threads: any thread may call anything here, except that the calls on one open step (attend,
 * commit, abort, view) come from one thread at a time. One step is open at a time. Metadata is
 * guarded by one mutex, held O(blocks touched) and never during attend. For a sequence of the open
 * step fork, truncate and admit answer PKV_BUSY; destroy succeeds at once: the handle is stale, the
 * row is computed and dropped. */
#ifndef PAGEDKV_CACHE_H
#define PAGEDKV_CACHE_H

#include "pagedkv/attn.h"
#include "pagedkv/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pkv_cache pkv_cache;

/* A zeroed handle is stale in every cache. */
typedef struct pkv_seq {
    uint64_t id;
} pkv_seq;

enum pkv_group_kind { PKV_GROUP_ATTENTION = 0, PKV_GROUP_STATE = 1 /* PKV_UNSUPPORTED so far */ };
enum pkv_storage { PKV_STORAGE_PAGED = 0, PKV_STORAGE_CONTINUOUS = 1 };

/* Layers with one geometry, window, kept prefix, dtype and block table. */
struct pkv_group_config {
    enum pkv_group_kind kind;
    enum pkv_storage storage;
    int32_t kv_heads;
    int32_t k_width;
    int32_t v_width; /* 0 = k_width */
    bool v_in_k;
    enum pkv_dtype k_dtype;
    enum pkv_dtype v_dtype;
    int32_t block_size; /* tokens, any size >= 1. Continuous: ignored, a row holds max_seq_len */
    int64_t sliding_window; /* 0 = none; larger than max_seq_len is clamped to it */
    int64_t kept_prefix;    /* default of its sequences */
    int32_t num_blocks;     /* 0: from config.bytes. Continuous: ignored, max_seqs rows */
};

/* One layer of the model, in order. A layer with shares_kv reads the pages of layer kv_layer (which
 * must come before it, own its pages, and be of the same group), passes no k and v, and refuses
 * before its owner's append of that step. */
struct pkv_layer_config {
    int32_t group;
    int32_t num_heads;
    bool shares_kv;
    int32_t kv_layer;
    struct pkv_attn_constants constants;
};

struct pkv_cache_config {
    size_t size;
    const struct pkv_group_config *groups;
    int32_t num_groups;
    const struct pkv_layer_config *layers;
    int32_t num_layers;

    enum pkv_dtype dtype; /* of q, k, v and out: f32, f16 or bf16 */
    size_t bytes; /* payload budget, shared out over groups with num_blocks 0 in proportion to what
                     max_seqs sequences of max_seq_len tokens would need of each */
    int32_t max_seqs;
    int32_t max_seq_len;
    int32_t max_step_rows;   /* 0 = max_seqs */
    int32_t max_step_tokens; /* sum of q_lens of a step */
    int num_threads;         /* 0 = OpenMP's default at create */
    enum pkv_isa isa;
    struct pkv_hooks hooks;
    bool poison_freed; /* debug: cells of a block are overwritten with NaN when it becomes free, or,
                          if it stays cached, when it is evicted */
    bool zero_freed;   /* security: with zeros */

    /* The prefix cache. Off, everything else here is ignored but watermark_blocks. On, all groups
     * are paged and have one block_size, and there are at most 64 (else PKV_UNSUPPORTED). */
    bool prefix_cache;
    int32_t num_index_nodes;  /* blocks that the index can know; 0 = twice the blocks of all groups,
                                 and never fewer than once: windows leave nodes without a block */
    int32_t max_namespaces;   /* namespaces in use at once, and fields of them likewise: a sequence,
                                 a quota or a cached block uses one; 0 = one a node and 1024 */
    int32_t watermark_blocks; /* free blocks that an admission leaves in every group */
    int32_t max_pinned_blocks; /* of each group, by pkv_prefix_pin; 0 = none may be pinned */
    int32_t num_events;        /* the last so many wait for pkv_events_drain; 0 = none are kept */
    const void *fingerprint;   /* bytes that name model, weights, format: part of every key */
    int32_t fingerprint_bytes;
    int32_t masked_hash_bits; /* test hook, in [0, 128]: so many bits of each hash are cleared */
};

/* Exact bytes, before anything is allocated. */
struct pkv_cache_sizes {
    size_t payload_bytes;  /* pages and rows of all groups */
    size_t table_bytes;    /* reserved address space of block tables and, with the prefix cache, of
                              the sequences' tokens; mapped as used */
    size_t metadata_bytes; /* all else that create takes, scratch of attention not counted */
    size_t token_bytes;    /* of one token, all groups and layers that own pages */
};

/* Checks the whole config, then fills *sizes. PKV_INVALID_ARGUMENT names the field; PKV_UNSUPPORTED
 * for what README lists as a limit. O(groups * layers). Any thread. */
PKV_API PKV_NODISCARD enum pkv_status pkv_cache_size(const struct pkv_cache_config *config,
                                                     struct pkv_cache_sizes *sizes);

/* The inverse: how many blocks of each group (num_blocks [num_groups]; continuous: rows) the
 * payload budget `bytes` gives. Groups with num_blocks set keep it and count against the budget.
 * PKV_NEVER_FITS when a group would get none. */
PKV_API PKV_NODISCARD enum pkv_status
pkv_cache_blocks_for_bytes(const struct pkv_cache_config *config, size_t bytes,
                           int32_t *num_blocks);

/* A cache by config, whose arrays are copied. Takes all memory that it will ever need except
 * scratch that the first steps grow. Statuses of pkv_cache_size, and PKV_NO_MEMORY; PKV_UNSUPPORTED
 * for an isa that this CPU lacks. */
PKV_API PKV_NODISCARD enum pkv_status pkv_cache_create(const struct pkv_cache_config *config,
                                                       pkv_cache **cache);

/* From now on create, admit and begin answer PKV_BUSY. Idempotent. */
PKV_API void pkv_cache_close(pkv_cache *cache);

/* Frees the cache and all its sequences. PKV_BUSY with an open step, unless force, which aborts it.
 * NULL is PKV_OK. No other thread may still use the cache. */
PKV_API PKV_NODISCARD enum pkv_status pkv_cache_destroy(pkv_cache *cache, bool force);

/* Reads the geometry back: bounds as they are in force, groups with num_blocks, v_width and window
 * filled in. groups and layers point into the cache and live as long as it; hooks and
 * fingerprint are not given back. */
PKV_API PKV_NODISCARD enum pkv_status pkv_cache_describe(const pkv_cache *cache,
                                                         struct pkv_cache_config *config);

/* A layer's keys (values) in place: no copy, the same pointers at every call, valid until destroy.
 * PKV_INVALID_ARGUMENT for a layer out of range. */
PKV_API PKV_NODISCARD enum pkv_status pkv_cache_view(const pkv_cache *cache, int32_t layer,
                                                     struct pkv_kv_view *view);

/* Walks everything and returns the number of broken invariants, a line for each through the log
 * hook; 0 = sound. Safe at any time, from any thread; the mutex is held for the sequences with the
 * index, then for each group. O(blocks + sequences * table). */
PKV_API int32_t pkv_cache_check(pkv_cache *cache);

/* Counts of one group. Paged: free + held = num_blocks. Continuous: rows. PKV_INVALID_ARGUMENT for
 * a group out of range. O(1). */
struct pkv_group_usage {
    int32_t num_blocks;
    int32_t free;
    int32_t held;
    int32_t cached; /* free blocks that the prefix cache can still find */
    int32_t pinned; /* held blocks that a pin holds */
};
PKV_API PKV_NODISCARD enum pkv_status pkv_cache_usage(pkv_cache *cache, int32_t group,
                                                      struct pkv_group_usage *usage);

/* The answer to "no". row: index in the batch, -1 when no row is at fault; on a successful begin
 * the first row that was left out, or the number of rows. group: the one that is short. need, free:
 * blocks (or rows). evictable: of the free ones, those that are cached. quota: 0, or, when a quota
 * is what refuses, that quota; free is then what is left of it. */
struct pkv_shortage {
    int32_t row;
    int32_t group;
    int64_t need;
    int64_t free;
    int64_t evictable;
    int64_t quota;
};

/* Options of a sequence; NULL or zeroed = none. The last four are for the prefix cache. */
struct pkv_seq_options {
    size_t size;
    uint64_t tag;               /* for pkv_seq_destroy_tagged; 0 = untagged */
    const int64_t *kept_prefix; /* overrides every group's; NULL = the groups' own. With the prefix
                                   cache and a window, another one than the group's is a namespace
                                   of its own, and takes one of the four fields */
    /* Truncate by at most max_rewind tokens always succeeds, in [0, max_seq_len]; the last so many
     * tokens are not findable yet. */
    int32_t max_rewind;
    const struct pkv_namespace_field *namespace_fields;
    int32_t num_namespace_fields;
    int32_t priority; /* class of what it publishes, in [0, PKV_NUM_PRIORITIES): lower ones are
                         evicted first */
    bool no_publish;  /* it finds, but what it computes is never found */
};

/* A new, empty sequence: the per-request cache handle. Continuous groups claim its row now.
 * PKV_NO_BLOCKS when max_seqs are alive or max_namespaces in use, PKV_BUSY on a closed cache.
 * O(groups * max_blocks). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_seq_create(pkv_cache *cache, const struct pkv_seq_options *options, pkv_seq *seq);

/* Ends a sequence: the handle is stale at once; blocks and rows go back now, or with the open step
 * it is part of. PKV_STALE_HANDLE. Takes no memory, never waits on a step. */
PKV_API PKV_NODISCARD enum pkv_status pkv_seq_destroy(pkv_cache *cache, pkv_seq seq);

/* Destroys every sequence with this tag (not 0) and returns how many through *count (may be NULL).
 */
PKV_API PKV_NODISCARD enum pkv_status pkv_seq_destroy_tagged(pkv_cache *cache, uint64_t tag,
                                                             int32_t *count);

/* The committed tokens. */
PKV_API PKV_NODISCARD enum pkv_status pkv_seq_length(pkv_cache *cache, pkv_seq seq,
                                                     int32_t *length);

/* The tokens that a request brings: what admission, a probe and a pin look up in the prefix cache.
 * The arrays are read during the call. */
struct pkv_prompt {
    size_t size;
    const int32_t *token_ids;    /* [num_tokens]; may be NULL when num_tokens is 0 */
    const uint64_t *token_extra; /* [num_tokens], NULL = all 0: the content behind placeholder ids,
                                    such as a hash of the image that they stand for */
    int32_t num_tokens;          /* >= 0 */
};

struct pkv_admission {
    int32_t num_cached;   /* tokens adopted from the prefix cache: the sequence's length now */
    int32_t num_to_write; /* prompt->num_tokens - num_cached */
    int32_t num_blocks;   /* blocks that its tables hold, adopted ones too, all groups */
};

/* Makes room for a prompt and reserve_tokens more tokens. With the prefix
 * cache it adopts the longest cached run that the prompt begins with: whole blocks, at most
 * num_tokens - 1 tokens and at most max_cached (0 = adopt nothing; num_tokens = all there is), and
 * only as far as every group has what a query there sees. Blocks for the remaining cells are
 * reserved in every group; a window group reserves what a window row can hold at once. All of it
 * happens, or nothing changes and *shortage (may be NULL) says why: PKV_NO_BLOCKS (not now) or
 * PKV_NEVER_FITS, under config.watermark_blocks and quotas. The sequence must be empty
 * (PKV_INVALID_ARGUMENT); one that still has reserved blocks adopts nothing. PKV_BUSY,
 * PKV_STALE_HANDLE. O(num_tokens + blocks). */
PKV_API PKV_NODISCARD enum pkv_status pkv_seq_admit(pkv_cache *cache, pkv_seq seq,
                                                    const struct pkv_prompt *prompt,
                                                    int32_t reserve_tokens, int32_t max_cached,
                                                    struct pkv_admission *admission,
                                                    struct pkv_shortage *shortage);

/* What admit would answer to a new sequence with these options (may be NULL), with no effect at
 * all: nothing is pinned, evicted or made more recent. Routers ask every machine. */
struct pkv_probe {
    enum pkv_status status; /* PKV_OK, PKV_NO_BLOCKS, PKV_NEVER_FITS; PKV_BUSY on a closed cache */
    int32_t num_cached;     /* tokens that it would adopt if there were room */
    int32_t num_pending;    /* tokens past those that a running sequence is to write: waiting for
                               them would save computing them again */
    int32_t num_blocks;     /* as in pkv_admission, on PKV_OK */
    struct pkv_shortage shortage;
};

/* Fills *probe. PKV_INVALID_ARGUMENT. O(num_tokens + sequences + tokens shared with them). */
PKV_API PKV_NODISCARD enum pkv_status pkv_cache_probe(pkv_cache *cache,
                                                      const struct pkv_seq_options *options,
                                                      const struct pkv_prompt *prompt,
                                                      int32_t reserve_tokens, int32_t max_cached,
                                                      struct pkv_probe *probe);

/* n children that share the first `at` tokens (0 <= at <= length) without copying; their options
 * are the parent's. All or none. PKV_NO_BLOCKS when max_seqs would be passed; PKV_NOT_RESIDENT when
 * a window group no longer has what a query at `at` would see; PKV_UNSUPPORTED with a continuous
 * group; PKV_BUSY; PKV_STALE_HANDLE. O(n * (blocks + tokens)). */
PKV_API PKV_NODISCARD enum pkv_status pkv_seq_fork(pkv_cache *cache, pkv_seq seq, int32_t at,
                                                   int32_t n, pkv_seq *children);

/* Shortens a sequence to `length` committed tokens (0 <= length <= its length) and gives back whole
 * blocks past it, reserved ones too. Length 0 always succeeds (preemption). Otherwise every key
 * that a query at `length` sees must be resident, else PKV_NOT_RESIDENT and the last error says the
 * shortest length that is possible; within max_rewind it always is. Findable blocks are never
 * written: they stay cached, and a later append into one copies it (or, with no block to copy to,
 * makes it unfindable first). PKV_BUSY; PKV_STALE_HANDLE; PKV_INVALID_ARGUMENT. */
PKV_API PKV_NODISCARD enum pkv_status pkv_seq_truncate(pkv_cache *cache, pkv_seq seq,
                                                       int32_t length);

#ifdef __cplusplus
}
#endif

#endif
