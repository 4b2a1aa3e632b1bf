/* SPDX-License-Identifier: MIT
 *
 * pagedkv/runtime.h: the managed cache of a continuous-batching server.
 *
 *     pkv_cache_create(&config, &cache)
 *     pkv_seq_create(cache, &options, &seq)                      a request arrives
 *     pkv_seq_admit(cache, seq, tokens, NULL, n, reserve, ...)   room for it, or "not now"
 *     loop
 *       pkv_step_begin(cache, &batch, &step, &shortage)          cells reserved, work planned
 *       for each layer: pkv_step_attend(cache, step, layer, &io) append + attend
 *       pkv_step_commit(cache, step, NULL)                       lengths advance
 *     pkv_seq_destroy(cache, seq)
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
#ifndef PAGEDKV_RUNTIME_H
#define PAGEDKV_RUNTIME_H

#include "pagedkv/attn.h"
#include "pagedkv/base.h"
#include "pagedkv/pages.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pkv_cache pkv_cache;

/* A zeroed handle is stale in every cache. */
typedef struct pkv_seq {
    uint64_t id;
} pkv_seq;
typedef struct pkv_step {
    uint64_t id;
} pkv_step;

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
    bool poison_freed; /* debug: cells of a block are overwritten with NaN when it becomes free */
    bool zero_freed;   /* security: with zeros */
};

/* Exact bytes, before anything is allocated. */
struct pkv_cache_sizes {
    size_t payload_bytes;  /* pages and rows of all groups */
    size_t table_bytes;    /* reserved address space of block tables, mapped as used */
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
 * filled in. groups and layers point into the cache and live as long as it; hooks are not given
 * back. */
PKV_API PKV_NODISCARD enum pkv_status pkv_cache_describe(const pkv_cache *cache,
                                                         struct pkv_cache_config *config);

/* A layer's keys (values) in place: no copy, the same pointers at every call, valid until destroy.
 * PKV_INVALID_ARGUMENT for a layer out of range. */
PKV_API PKV_NODISCARD enum pkv_status pkv_cache_view(const pkv_cache *cache, int32_t layer,
                                                     struct pkv_kv_view *view);

/* Walks everything and returns the number of broken invariants, a line for each through the log
 * hook; 0 = sound. Safe at any time. O(blocks + sequences * table). */
PKV_API int32_t pkv_cache_check(pkv_cache *cache);

/* Counts of one group. Paged: free + held = num_blocks. Continuous: rows. */
struct pkv_group_usage {
    int32_t num_blocks;
    int32_t free;
    int32_t held;
};
PKV_API PKV_NODISCARD enum pkv_status pkv_cache_usage(pkv_cache *cache, int32_t group,
                                                      struct pkv_group_usage *usage);

/* The answer to "no". row: index in the batch, -1 when no row is at fault; on a successful begin
 * the first row that was left out, or the number of rows. group: the one that is short. need, free:
 * blocks (or rows). evictable and quota are for prefix caching and stay 0. */
struct pkv_shortage {
    int32_t row;
    int32_t group;
    int64_t need;
    int64_t free;
    int64_t evictable;
    int64_t quota;
};

/* Options of a sequence; NULL or zeroed = none. */
struct pkv_seq_options {
    size_t size;
    uint64_t tag;               /* for pkv_seq_destroy_tagged; 0 = untagged */
    const int64_t *kept_prefix; /* overrides every group's; NULL = the groups' own */
    int32_t
        max_rewind; /* truncate by at most this many tokens always succeeds, in [0, max_seq_len] */
};

/* A new, empty sequence: the per-request cache handle. Continuous groups claim its row now.
 * PKV_NO_BLOCKS when max_seqs are alive, PKV_BUSY on a closed cache. O(groups * max_blocks). */
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

struct pkv_admission {
    int32_t num_cached;   /* tokens adopted from the prefix cache: 0 so far */
    int32_t num_to_write; /* num_tokens - num_cached */
    int32_t num_blocks;   /* blocks reserved, all groups */
};

/* Makes room for a request of num_tokens prompt tokens and reserve_tokens more: blocks for those
 * cells are reserved in every group, or nothing changes and *shortage (may be NULL) says why:
 * PKV_NO_BLOCKS (not now) or PKV_NEVER_FITS. A window group reserves what a window row can hold at
 * once. The sequence must be empty (PKV_INVALID_ARGUMENT). token_extra (NULL = none) are 64 bits a
 * token that stand for content behind placeholder ids; max_cached bounds adoption (0 = none): both
 * are for the prefix cache. PKV_BUSY, PKV_STALE_HANDLE. */
PKV_API PKV_NODISCARD enum pkv_status
pkv_seq_admit(pkv_cache *cache, pkv_seq seq, const int32_t *token_ids, const uint64_t *token_extra,
              int32_t num_tokens, int32_t reserve_tokens, int32_t max_cached,
              struct pkv_admission *admission, struct pkv_shortage *shortage);

/* n children that share the first `at` tokens (0 <= at <= length) without copying; their options
 * are the parent's. All or none. PKV_NO_BLOCKS when max_seqs would be passed; PKV_NOT_RESIDENT when
 * a window group no longer has what a query at `at` would see; PKV_UNSUPPORTED with a continuous
 * group; PKV_BUSY; PKV_STALE_HANDLE. O(n * blocks). */
PKV_API PKV_NODISCARD enum pkv_status pkv_seq_fork(pkv_cache *cache, pkv_seq seq, int32_t at,
                                                   int32_t n, pkv_seq *children);

/* Shortens a sequence to `length` committed tokens (0 <= length <= its length) and gives back whole
 * blocks past it, reserved ones too. Length 0 always succeeds (preemption). Otherwise every key
 * that a query at `length` sees must be resident, else PKV_NOT_RESIDENT and the last error says the
 * shortest length that is possible; within max_rewind it always is. PKV_BUSY; PKV_STALE_HANDLE;
 * PKV_INVALID_ARGUMENT. */
PKV_API PKV_NODISCARD enum pkv_status pkv_seq_truncate(pkv_cache *cache, pkv_seq seq,
                                                       int32_t length);

/* One step's rows. Row i appends q_lens[i] >= 0 tokens to seqs[i]. */
struct pkv_batch {
    size_t size;
    const pkv_seq *seqs;
    const int32_t *q_lens; /* NULL = one token each */
    int32_t num_rows;
    int32_t num_required_rows;   /* all or none of these; later rows join in order while they fit */
    const int32_t *token_ids;    /* [sum of q_lens], the tokens whose K and V this step writes */
    const uint64_t *token_extra; /* likewise; NULL = none */
    const int64_t *position_ids; /* likewise, for rope; NULL = position in the sequence */
    uint64_t now_ns;             /* the caller's clock, for pins */
};

/* Reserves cells in every group and plans; writes no payload. On PKV_OK the step is open and
 * shortage->row says how many rows joined. A required row that finds no block: PKV_NO_BLOCKS (or
 * PKV_NEVER_FITS) with *shortage, nothing changed. A sequence twice in the batch, a row past
 * max_seq_len, more rows or tokens than the bounds: PKV_INVALID_ARGUMENT. PKV_STALE_HANDLE names
 * the row. PKV_BUSY with a step open or a closed cache. An empty batch is an empty step. shortage
 * may be NULL when num_required_rows = num_rows. */
PKV_API PKV_NODISCARD enum pkv_status pkv_step_begin(pkv_cache *cache,
                                                     const struct pkv_batch *batch, pkv_step *step,
                                                     struct pkv_shortage *shortage);

/* Dry run of begin: the status it would answer now, and *shortage as it would be filled; no effect.
 */
PKV_API PKV_NODISCARD enum pkv_status pkv_step_fits(pkv_cache *cache, const struct pkv_batch *batch,
                                                    struct pkv_shortage *shortage);

/* One layer's activations, tokens of all rows packed in batch order; strides in elements between
 * tokens, 0 = packed, so a fused QKV row needs no copy. A sharing layer has k and v NULL; v NULL
 * with v_in_k. */
struct pkv_layer_io {
    size_t size;
    const void *q; /* [tokens][num_heads * k_width] */
    const void *k; /* [tokens][kv_heads * k_width] */
    const void *v; /* [tokens][kv_heads * v_width] */
    void *out;     /* [tokens][num_heads * v_width] */
    float *lse;    /* [tokens][num_heads] or NULL */
    size_t q_stride, k_stride, v_stride, out_stride;
};

/* Appends the layer's k and v and attends. A second append of one layer, a layer out of range, a
 * missing pointer: PKV_INVALID_ARGUMENT. PKV_STALE_HANDLE. Takes no memory. */
PKV_API PKV_NODISCARD enum pkv_status pkv_step_attend(pkv_cache *cache, pkv_step step,
                                                      int32_t layer, const struct pkv_layer_io *io);

/* Ends the step: of row i the first num_keep[i] new cells stay (NULL = all, 0 = none). Fails only,
 * and leaves the step open, when num_keep is out of [0, q_len] or an owning layer was never
 * attended (PKV_INVALID_ARGUMENT); PKV_STALE_HANDLE. Takes no memory. */
PKV_API PKV_NODISCARD enum pkv_status pkv_step_commit(pkv_cache *cache, pkv_step step,
                                                      const int32_t *num_keep);

/* Ends the step as if it had never begun: lengths and tables are as before. PKV_STALE_HANDLE. */
PKV_API PKV_NODISCARD enum pkv_status pkv_step_abort(pkv_cache *cache, pkv_step step);

/* A group's side of the open step in plain integers: for another kernel, a worker process, a
 * debugger. Everything is constant until commit or abort and belongs to the cache. Row i of the
 * batch has the block table block_tables + table_rows[i] * table_stride (paged; continuous: cache
 * row slot_ids[i]), tokens cu_seqlens_q[i] .. cu_seqlens_q[i + 1], and keys kv_lens[i] after its
 * append, which starts at kv_lens[i] - q_len. Before a layer's append, copies[0..num_copies) are
 * carried out on its pages. */
struct pkv_step_view {
    int32_t num_rows;
    int32_t num_tokens;
    const int32_t *block_tables;
    const int32_t *table_rows;
    int32_t table_stride;
    int32_t max_blocks;
    const int32_t *slot_ids;
    const int32_t *cu_seqlens_q;
    const int32_t *kv_lens;
    const int64_t *position_ids; /* NULL when the batch had none */
    const int64_t *kept_prefix;  /* [num_rows] */
    int64_t sliding_window;
    const struct pkv_page_copy *copies;
    int32_t num_copies;
    struct pkv_kv_view first_layer; /* pages of the group's first owning layer ... */
    size_t layer_stride_bytes;      /* ... and the distance to the next one's */
};
PKV_API PKV_NODISCARD enum pkv_status pkv_step_view(pkv_cache *cache, pkv_step step, int32_t group,
                                                    struct pkv_step_view *view);

#ifdef __cplusplus
}
#endif

#endif
