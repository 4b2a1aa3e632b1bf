/* SPDX-License-Identifier: MIT
 *
 * pagedkv/runtime.h: the managed cache of a continuous-batching server.
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
    uint64_t now_ns;             /* the caller's clock: pins end by it, when it is not 0 */
};

/* Reserves cells in every group and plans; writes no payload. On PKV_OK the step is open and
 * shortage->row says how many rows joined. A required row that finds no block: PKV_NO_BLOCKS (or
 * PKV_NEVER_FITS) with *shortage, nothing changed. A sequence twice in the batch, a row past
 * max_seq_len, more rows or tokens than the bounds: PKV_INVALID_ARGUMENT. PKV_STALE_HANDLE names
 * the row. PKV_BUSY with a step open or a closed cache. PKV_NO_MEMORY while scratch still grows,
 * before a block is taken. An empty batch is an empty step. shortage may be NULL when
 * num_required_rows = num_rows. */
PKV_API PKV_NODISCARD enum pkv_status pkv_step_begin(pkv_cache *cache,
                                                     const struct pkv_batch *batch, pkv_step *step,
                                                     struct pkv_shortage *shortage);

/* Dry run of begin: the status it would answer now, and *shortage as it would be filled; no effect,
 * but that pins whose time is up by batch->now_ns end. */
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
 * missing pointer, out or lse over an input or the pages: PKV_INVALID_ARGUMENT. PKV_STALE_HANDLE.
 * Takes no memory. */
PKV_API PKV_NODISCARD enum pkv_status pkv_step_attend(pkv_cache *cache, pkv_step step,
                                                      int32_t layer, const struct pkv_layer_io *io);

/* pkv_step_attend for servers with threads of their own, in the phases of attn.h (pkv_phase):
 *
 *     pkv_step_layer_begin(cache, step, layer, &io)
 *     for each phase
 *         for each i in [0, pkv_step_num_tasks(cache, step, phase))       on any threads
 *             pkv_step_run_task(cache, step, phase, i, worker)
 *         all threads wait for each other
 *
 * The layer counts as attended, with the bits of pkv_step_attend, once every task has run, each
 * exactly once; until then another layer, commit and abort refuse (PKV_INVALID_ARGUMENT). `worker`
 * in [0, num_threads of the config) names the scratch: no two tasks may run with the same one at
 * once. Only these two calls on a step may come from several threads together. begin: the statuses
 * of pkv_step_attend. num_tasks: 0 with no layer under way, or a stale step. run_task:
 * PKV_INVALID_ARGUMENT for a number out of range, PKV_STALE_HANDLE. None takes memory. */
PKV_API PKV_NODISCARD enum pkv_status
pkv_step_layer_begin(pkv_cache *cache, pkv_step step, int32_t layer, const struct pkv_layer_io *io);
PKV_API int32_t pkv_step_num_tasks(pkv_cache *cache, pkv_step step, enum pkv_phase phase);
PKV_API PKV_NODISCARD enum pkv_status
pkv_step_run_task(pkv_cache *cache, pkv_step step, enum pkv_phase phase, int32_t task, int worker);

/* Ends the step: of row i the first num_keep[i] new cells stay (NULL = all, 0 = none). Fails only,
 * and leaves the step open, when num_keep is out of [0, q_len] or an owning layer was never
 * attended (PKV_INVALID_ARGUMENT); PKV_STALE_HANDLE. Takes no memory. With the prefix cache, blocks
 * that became full, and lie max_rewind tokens behind, are findable from now on; where an equal one
 * was already, the table names that one instead and its own is given back. */
PKV_API PKV_NODISCARD enum pkv_status pkv_step_commit(pkv_cache *cache, pkv_step step,
                                                      const int32_t *num_keep);

/* Ends the step as if it had never begun: lengths and tables are as before.
 * PKV_STALE_HANDLE; PKV_INVALID_ARGUMENT with tasks of a layer left. Takes no memory. */
PKV_API PKV_NODISCARD enum pkv_status pkv_step_abort(pkv_cache *cache, pkv_step step);

/* A group's side of the open step in plain integers: for another kernel, a worker process, a
 * debugger. Everything is constant until commit or abort and belongs to the cache. Row i of the
 * batch has the block table block_tables + (size_t)table_rows[i] * table_stride (paged;
 * continuous: cache row slot_ids[i]), tokens cu_seqlens_q[i] .. cu_seqlens_q[i + 1], and keys
 * kv_lens[i] after its append, which starts at kv_lens[i] - q_len. Before a layer's append,
 * copies[0..num_copies) are carried out on its pages. */
struct pkv_step_view {
    int32_t num_rows;
    int32_t num_tokens;
    const int32_t *block_tables;
    const int32_t *table_rows;
    size_t table_stride; /* in entries */
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

/* --- The prefix cache: pins, quotas, flush, events, counters. Without config.prefix_cache the
 * calls below that would need it answer PKV_UNSUPPORTED. All lock inside; any thread. */

/* Keeps a cached prefix from eviction. */
typedef struct pkv_pin {
    uint64_t id;
} pkv_pin;

/* Pins the longest cached run that this prompt begins with (whole blocks, all num_tokens of them),
 * in the namespace of options (may be NULL), until now_ns + ttl_ns by the clock of the calls
 * (ttl_ns 0 = until unpinned), or less of it where config.max_pinned_blocks would be passed.
 * *num_pinned is how many tokens that is; 0, and a zeroed *pin, when there is nothing to pin. Pins
 * may overlap. PKV_NO_BLOCKS when as many pins as max_pinned_blocks exist, PKV_INVALID_ARGUMENT,
 * PKV_UNSUPPORTED. O(num_tokens). */
PKV_API PKV_NODISCARD enum pkv_status pkv_prefix_pin(pkv_cache *cache,
                                                     const struct pkv_seq_options *options,
                                                     const struct pkv_prompt *prompt,
                                                     uint64_t ttl_ns, uint64_t now_ns, pkv_pin *pin,
                                                     int32_t *num_pinned);

/* Ends a pin. PKV_STALE_HANDLE when it ended already. O(blocks). */
PKV_API PKV_NODISCARD enum pkv_status pkv_prefix_unpin(pkv_cache *cache, pkv_pin pin);

/* Lets a pin end at now_ns + ttl_ns instead (ttl_ns 0 = when it is unpinned): for a server that
 * keeps what is hit. Pins whose time is up at now_ns end first. PKV_STALE_HANDLE when this one has
 * ended, PKV_UNSUPPORTED. O(pins), and blocks when some end. */
PKV_API PKV_NODISCARD enum pkv_status pkv_prefix_refresh(pkv_cache *cache, pkv_pin pin,
                                                         uint64_t ttl_ns, uint64_t now_ns);

/* Ends every pin whose time is up at now_ns, as pin and begin do when they bring a clock;
 * UINT64_MAX ends all. *num_ended may be NULL. O(pins + blocks). */
PKV_API PKV_NODISCARD enum pkv_status pkv_prefix_expire(pkv_cache *cache, uint64_t now_ns,
                                                        int32_t *num_ended);

/* The most blocks, of all groups together, that live sequences with this field in their namespace
 * may hold, shared ones counted for each; num_blocks 0 takes the limit away. Admission and begin
 * keep to it; a fork, which shares, may pass it, and lowering it below what is held takes nothing
 * away. begins_at does not matter.
 * PKV_NO_BLOCKS when max_namespaces are in use, PKV_INVALID_ARGUMENT, PKV_UNSUPPORTED. O(1). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_namespace_quota(pkv_cache *cache, const struct pkv_namespace_field *field, int64_t num_blocks);

/* What this field's quota is measured by. PKV_NOT_FOUND for a field that no sequence, cached block
 * or quota names. O(1). */
struct pkv_field_usage {
    int64_t held;   /* blocks in the tables of its sequences, all groups */
    int64_t quota;  /* 0 = none */
    int64_t cached; /* findable blocks, held or free, under the field */
};
PKV_API PKV_NODISCARD enum pkv_status pkv_namespace_usage(pkv_cache *cache,
                                                          const struct pkv_namespace_field *field,
                                                          struct pkv_field_usage *usage);

/* What flush or reset found. */
struct pkv_flush_report {
    int32_t held;     /* blocks that sequences and pins hold, all groups */
    int32_t orphaned; /* of those, findable ones that are not any more: their holders go on */
    int32_t removed;  /* cached blocks that became plain free ones */
};

/* Forgets everything cached under this field, and raises its epoch: sequences created before go on
 * but publish nothing more. Pins on it end. report may be NULL. PKV_INVALID_ARGUMENT,
 * PKV_UNSUPPORTED. O(index nodes + pins), the mutex being free now and then: from the first moment
 * on nothing of it is found; the report counts each block as it is when the walk comes to it. */
PKV_API PKV_NODISCARD enum pkv_status pkv_namespace_flush(pkv_cache *cache,
                                                          const struct pkv_namespace_field *field,
                                                          struct pkv_flush_report *report);

/* Forgets everything cached, in all namespaces: after new weights were loaded. While sequences or
 * pins hold blocks it refuses with PKV_BUSY, fills report->held, and changes nothing; with force it
 * orphans what they hold, and pins end. Sequences from before publish nothing more. report may be
 * NULL; its numbers are exact when nobody else flushes meanwhile. PKV_UNSUPPORTED. O(index nodes +
 * pins), the mutex being free now and then. */
PKV_API PKV_NODISCARD enum pkv_status pkv_cache_reset(pkv_cache *cache, bool force,
                                                      struct pkv_flush_report *report);

enum pkv_event_kind {
    PKV_EVENT_STORED = 0,  /* a block is findable */
    PKV_EVENT_REMOVED = 1, /* it is not any more, in any group */
    PKV_EVENT_CLEARED = 2, /* nothing is: key and parent are zero */
    PKV_EVENT_OFFLOADED = 3,
    PKV_EVENT_ONBOARDED = 4 /* both with tiers, which are not built yet */
};
enum pkv_event_reason {
    PKV_REASON_COMMIT = 0,
    PKV_REASON_CAPACITY = 1, /* evicted: its memory was needed */
    PKV_REASON_FLUSH = 2,
    PKV_REASON_RESET = 3,
    PKV_REASON_DEMOTED = 4,
    PKV_REASON_CORRUPT = 5
};

/* A block's key: the same content under the same fingerprint has the same key everywhere. */
struct pkv_block_key {
    uint64_t low;
    uint64_t high;
};

/* Numbers count from 1 without gaps, in the one order in which things happened. */
struct pkv_event {
    uint64_t number;
    enum pkv_event_kind kind;
    enum pkv_event_reason reason;
    struct pkv_block_key key;
    struct pkv_block_key parent_key;    /* zero: the block is the first of a prompt */
    struct pkv_block_key namespace_key; /* of the fields that count in the block; zero: none */
};

/* Moves the oldest waiting events, at most max_events, into events; *count is how many, *num_lost
 * (may be NULL) how many were overwritten before this call and after the last one: after a loss
 * pkv_cache_visit shows the whole again. PKV_INVALID_ARGUMENT, PKV_UNSUPPORTED. O(max_events). */
PKV_API PKV_NODISCARD enum pkv_status pkv_events_drain(pkv_cache *cache, struct pkv_event *events,
                                                       int32_t max_events, int32_t *count,
                                                       uint64_t *num_lost);

/* Counters since create, and what is there now. Tokens of admissions; blocks of all groups. */
struct pkv_stats {
    uint64_t num_admissions;
    uint64_t queried_tokens;    /* prompt tokens of admissions that could adopt, first ones */
    uint64_t hit_tokens;        /* adopted of those */
    uint64_t readmitted_tokens; /* prompt tokens of sequences that were cut to 0 and came again */
    uint64_t rehit_tokens;      /* adopted of those */
    uint64_t stored_blocks;     /* blocks that became findable */
    uint64_t deduplicated_blocks;
    uint64_t unpublished_blocks; /* full, but index full, collision, or parent evicted */
    uint64_t evicted_blocks;
    uint64_t evicted_age_ns; /* sum over those of the time since they were held last, by the clock
                              * that begin, fits, pin, refresh and expire bring; 0 where it was not
                              * known */
    uint64_t copied_blocks;  /* copies on write */
    uint64_t collisions;     /* equal hashes of different content */
    uint64_t num_events;     /* the last event's number */
    uint64_t lost_events;
    uint64_t expired_pins;
    uint64_t attention_bytes; /* K and V that attention went through, once for each block of queries
                               * and KV head, and once for rows that share it */
    int64_t num_blocks;       /* = held_blocks + free_blocks, paged groups */
    int64_t held_blocks;
    int64_t free_blocks;
    int64_t cached_blocks; /* of the free ones */
    int64_t pinned_blocks; /* of the held ones */
    int64_t table_cells;   /* tokens that the blocks in all tables hold ... */
    int64_t used_cells;    /* ... and those that are committed; shared blocks count for each */
    int32_t num_seqs;
    int32_t num_pins;
    int32_t num_nodes; /* of the index, in use */
    int32_t max_nodes;
    size_t index_bytes; /* constant after create */
};

/* Fills *stats. Works without the prefix cache too. O(groups + sequences). */
PKV_API PKV_NODISCARD enum pkv_status pkv_cache_stats(pkv_cache *cache, struct pkv_stats *stats);

/* Renders the counters in the Prometheus text format, names prefixed pagedkv_, through write, which
 * answers false to stop (PKV_IO then). No lock is held while it runs. */
PKV_API PKV_NODISCARD enum pkv_status
pkv_metrics_write(pkv_cache *cache, bool (*write)(void *context, const char *text, size_t bytes),
                  void *context);

enum pkv_block_state {
    PKV_BLOCK_FREE = 0,   /* nothing in it */
    PKV_BLOCK_CACHED = 1, /* free, findable */
    PKV_BLOCK_HELD = 2,
    PKV_BLOCK_PINNED = 3 /* held by a pin, perhaps by sequences too */
};

struct pkv_block_info {
    int32_t group;
    int32_t block;
    enum pkv_block_state state;
    int32_t ref_count;
    bool is_findable;
    int32_t priority; /* and what follows: when findable */
    struct pkv_block_key key;
    struct pkv_block_key parent_key;
    struct pkv_block_key namespace_key;
};

/* Shows every block of every paged group in order, for tools; visit answers false to stop. The
 * mutex is held for slices of a few blocks and never while visit runs, so the whole is no snapshot:
 * *next_event (may be NULL) is the number of the first event that may not be in it, and whoever
 * follows the cache applies events from there on. Works without the prefix cache too. O(blocks). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_cache_visit(pkv_cache *cache, bool (*visit)(void *context, const struct pkv_block_info *info),
                void *context, uint64_t *next_event);

#ifdef __cplusplus
}
#endif

#endif
