/* SPDX-License-Identifier: MIT
 *
 * pagedkv/cache.h: a managed KV cache for a server with continuous batching: its configuration, its
 * sequences, and admission. It owns blocks, pages and block tables and plans the attention of every
 * step; the server keeps the queue of requests and the model.
 *
 *     pkv_cache_create(&config, &cache)
 *     pkv_seq_create(cache, &options, &seq)                      a request arrives
 *     pkv_seq_admit(cache, seq, &prompt, reserve, ...)           room for it, or "not now"
 *     loop
 *       pkv_step_begin(cache, &batch, &step, &shortage)          step.h: cells reserved, planned
 *       for each layer: pkv_step_attend(cache, step, layer, &io) append and attend
 *       pkv_step_commit(cache, step, NULL)                       lengths advance
 *     pkv_seq_destroy(cache, seq)
 *     pkv_cache_destroy(cache, false)
 *
 * examples/server_loop.c is this loop as a program, with waiting and preemption. prefix.h has
 * namespaces, pins, quotas and flushes of the prefix cache, metrics.h has events and counters.
 *
 * Sequences. A sequence is the cache's side of one request. Its length is the number of its
 * committed tokens. In each layer group it has a block table, indexed by absolute position; groups
 * with a sliding window release blocks that no future query can see. Forks share blocks without
 * copying. A block has at most one writer, the sequence that reserved its next cell; any other
 * sequence that appends into it gets a copy.
 *
 * Prefix caching (config.prefix_cache). When a block is full and committed, the index records its
 * content. The block stays cached after its sequences have ended, until its memory is needed, and
 * pkv_seq_admit adopts the longest cached prefix of a new prompt. A hash only finds candidates:
 * token ids, extras, the parent block and the namespace are compared, so a hit is never another
 * text's keys.
 *
 * Determinism. The same calls in the same order give the same hits, evictions, block ids and
 * statuses. The only clock is the now_ns that the caller passes.
 *
 * Ownership. The cache takes all its memory at create, except scratch that the first steps grow.
 * Sequences, steps and pins are handles: values of 64 bits that can be copied, logged and sent. A
 * handle that was destroyed, or belongs to another cache, answers PKV_STALE_HANDLE.
 *
 * Threads. Any thread may call anything here at any time, except that pkv_cache_destroy must be the
 * last call. One mutex guards the metadata. A call holds it for the time that its stated cost
 * takes, and never while attending. While a sequence is part of the open step (step.h),
 * pkv_seq_fork, pkv_seq_truncate and pkv_seq_admit answer PKV_BUSY for it; pkv_seq_destroy succeeds
 * at once: the handle is stale, and the step computes and drops the row. Calls that copy keys and
 * values of a sequence without the mutex (swap.h) hold it in the same way. */
#ifndef PAGEDKV_CACHE_H
#define PAGEDKV_CACHE_H

#include "pagedkv/attn.h"
#include "pagedkv/base.h"
#include "pagedkv/tier.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pkv_cache pkv_cache;

/* A sequence of one cache. A zeroed handle is stale in every cache. */
typedef struct pkv_seq {
    uint64_t id;
} pkv_seq;

/* ---- configuration ------------------------------------------------------------------------- */

/* What the layers of a group keep: keys and values of each token, or one state of fixed bytes for
 * each sequence (recurrent layers: linear attention, state spaces, short convolutions). */
enum pkv_group_kind { PKV_GROUP_ATTENTION = 0, PKV_GROUP_STATE = 1 };

/* How a group stores keys and values: in blocks through a table, or in one slot of max_seq_len
 * tokens for each sequence. Slots cannot be shared: no fork and no prefix cache. */
enum pkv_storage { PKV_STORAGE_PAGED = 0, PKV_STORAGE_CONTINUOUS = 1 };

/* A layer group: layers with one geometry, window, kept prefix and dtype. They share a block table
 * for each sequence, so a model with full and with sliding-window layers has two groups. At least
 * one layer of a group must have pages of its own. */
struct pkv_group_config {
    enum pkv_group_kind kind;
    enum pkv_storage storage;
    /* >= 1; num_heads of each of its layers is a multiple. */
    int32_t kv_heads;
    /* Channels of a key head, and of a value head; v_width 0 = k_width. */
    int32_t k_width;
    int32_t v_width;
    /* Latent caches (MLA): a value is the first v_width channels of the stored key. */
    bool v_in_k;
    enum pkv_dtype k_dtype;
    enum pkv_dtype v_dtype;
    /* Tokens of a block, any number >= 1. Continuous groups ignore it. */
    int32_t block_size;
    /* W: a query sees the newest W keys, its own among them. 0 = no window. */
    int64_t sliding_window;
    /* P: the first P keys are seen beside the window. A sequence's options can override it. */
    int64_t kept_prefix;
    /* Blocks of this group; 0 = a share of config.bytes. Continuous groups have max_seqs slots. */
    int32_t num_blocks;

    /* State groups (PKV_GROUP_STATE): these fields and num_blocks, the states of the group, are all
     * that is read; in attention groups they are 0, but for segment_tokens. State groups stand
     * behind the attention groups, of which there is at least one.
     *
     * state_bytes is what one layer keeps for one sequence, in [1, 2^32], opaque to the library. A
     * state is shared, cached and evicted like a block: what this header says of blocks holds for
     * it, except quotas, watermark_blocks and min_blank_percent, which do not count states. */
    size_t state_bytes;
    /* With prefix_cache: states are cached, as snapshots, at multiples of so many tokens, a
     * multiple of each block_size, and at the end of a prompt, at the last place in front of its
     * last token where every attention group has whole blocks. A hit ends where there is a
     * snapshot. 0 = the least common multiple of the block sizes. */
    int32_t snapshot_interval;
    /* The greatest max_rewind of a sequence, in [0, 2^16]: so many states it keeps beside its
     * newest. A sequence is promised 2 * (max_rewind + 1) states; one state where it has no
     * max_rewind and there is no prefix cache. */
    int32_t max_rewind;
    /* In state groups, and in attention groups with a window: with prefix_cache, of what one
     * sequence leaves behind, what a hit needs that ends at a multiple of so many tokens stays
     * cached, and the newest, beside what hits need where prompts part or end: snapshots, or the
     * blocks of a window. A multiple of each block_size, and of snapshot_interval. 0 = all of it,
     * until its memory is needed. */
    int64_t segment_tokens;
    uint64_t reserved[5];
};

/* One layer of the model. Of a layer in a state group only `group` is read. A layer with shares_kv
 * has no pages of its own: it reads those of layer kv_layer, an earlier one of the same group with
 * the same k_scale and v_scale, and is passed no k and v. Every other layer ignores kv_layer. */
struct pkv_layer_config {
    /* Index into groups. */
    int32_t group;
    /* Query heads. */
    int32_t num_heads;
    bool shares_kv;
    int32_t kv_layer;
    struct pkv_attn_constants constants;
    uint64_t reserved[8];
};

#define PKV_MAX_LABEL_BYTES 128
#define PKV_MAX_TIERS 4

/* What a cache may be required to do, as bits of pkv_cache_config.required. */
enum pkv_requirement {
    /* Prompts can hit cached blocks: with prefix_cache, and no group is continuous. */
    PKV_REQUIRE_HITS = 1
};

/* The configuration of a cache. Its arrays are copied at create, what constants point to included.
 */
struct pkv_cache_config {
    size_t size;
    const struct pkv_group_config *groups;
    int32_t num_groups;
    /* In the order of the model. */
    const struct pkv_layer_config *layers;
    int32_t num_layers;

    /* Of queries, new keys and values, and outputs: f32, f16 or bf16. */
    enum pkv_dtype dtype;
    /* Payload budget for the groups with num_blocks 0, after the groups with fixed blocks have got
     * theirs. It is divided in proportion to what max_seqs sequences of max_seq_len tokens would
     * need of each group: in one with a window, their windows and one step's tokens. With
     * prefix_cache a group with a window needs three windows a sequence more, which stay cached
     * where prompts part and turns end; and what the budget has beyond all that is divided in
     * proportion to what cached sequences take: all of their max_seq_len tokens in a group without
     * a window, one window in the others. Not read when no group needs it. */
    size_t bytes;
    /* Sequences alive at once, in [1, 2^24]. */
    int32_t max_seqs;
    /* Tokens of one sequence, >= 1. */
    int32_t max_seq_len;
    /* Rows of one step; 0 = max_seqs, and larger numbers count as that. */
    int32_t max_step_rows;
    /* Tokens of all rows of one step, >= 1. */
    int32_t max_step_tokens;
    /* Threads that attend, in [0, 1024]; 0 = as many as pkv_workspace_create takes for 0. */
    int num_threads;
    enum pkv_isa isa;
    struct pkv_hooks hooks;
    /* Debugging: a block's cells are overwritten with NaN when it becomes free, or when it is
     * evicted if it stays cached until then. */
    bool poison_freed;
    /* Security: the same with zeros. Excludes poison_freed. */
    bool zero_freed;

    /* Whether full blocks of committed tokens stay cached for later prompts, as the opening of
     * cache.h describes. There are at most 64 groups then. If false, the fields below are ignored
     * except watermark_blocks, fingerprint and required.
     *
     * Groups may have different block sizes, each a multiple of the smallest. Tokens are then
     * hashed, matched and published by the smallest, and wherever calls and fields speak of blocks
     * of tokens, of keys, depths and events, it is that size; a block of a larger group is found by
     * the key of the tokens that end it. A hit ends where a block of every group ends, and so is a
     * multiple of every block_size; hits inside a block are off (no_partial_hits is true then), and
     * there may be no tiers.
     *
     * Beside a continuous group nothing is ever cached, for a slot belongs to one sequence: every
     * hit is 0 tokens, and the cache is in all one without a prefix cache. pkv_cache_describe tells
     * both. With PKV_REQUIRE_HITS create refuses instead. */
    bool prefix_cache;
    /* Nodes of the prefix index. A node is one full block of tokens after one prefix; this bounds
     * how many blocks can be indexed. 0 = twice the blocks of all groups together, where a block
     * counts for as many as it is of the smallest size. A
     * number below those blocks is PKV_INVALID_ARGUMENT. Windows are the reason for more nodes
     * than blocks: a node whose block has left the window is needed as long as later blocks are
     * cached. When no node is free, cached blocks are evicted, those of windows first. */
    int32_t num_index_nodes;
    /* Different namespaces in use at once, and different fields of them likewise, in [0, 2^24]. A
     * namespace is in use while a sequence, a quota or a cached block names it. 0 = one for each
     * node and 1024 more. */
    int32_t max_namespaces;
    /* Free blocks that an admission must leave in every group, for the growth of sequences that
     * run. Steps may use them. */
    int32_t watermark_blocks;
    /* Blocks of each group that pins may hold, and pins at once, in [0, 2^24]; 0 = none. */
    int32_t max_pinned_blocks;
    /* Capacity of the event ring (pkv_events_drain): it holds the newest num_events events until
     * they are drained, and counts those that it overwrites. 0 = no events. */
    int32_t num_events;
    /* fingerprint [fingerprint_bytes]: whatever else decides what cached keys mean, such as model,
     * weights and quantisation. It enters every block key, and, without prefix_cache too, every
     * saved sequence (save.h). NULL with 0 bytes = nothing. */
    const void *fingerprint;
    int32_t fingerprint_bytes;
    /* For tests: so many bits of each hash are cleared, in [0, 128]. No answer depends on it. */
    int32_t masked_hash_bits;
    /* The event ring keeps the tokens of each event's block too (pkv_events_drain_tokens), in
     * num_events * block_size * 12 bytes more of metadata. */
    bool event_tokens;

    /* The name of this cache among those of a process: every sample of pkv_metrics_write has it as
     * its label `cache`. UTF-8 without control characters, 1 to PKV_MAX_LABEL_BYTES bytes and a
     * NUL. Works without the prefix cache too. NULL = no label. */
    const char *metrics_label;
    /* Debugging: pkv_step_begin and pkv_step_fits compare the tokens and extras of a batch with
     * those of the prompt that admission was given, position by position, and refuse a row that
     * differs: it would go on with another text than the one whose cached keys it has adopted. A
     * sequence that is cut inside its prompt (pkv_seq_truncate) may go on in other words from there
     * on; forks have no prompt. */
    bool check_tokens;
    /* Prefix hits are whole blocks. If false, a hit may end inside a block, whose first tokens the
     * request's first step copies (pkv_seq_admit). A caller compiled against headers without this
     * field gets whole blocks. */
    bool no_partial_hits;
    /* Blank blocks, free ones that are not cached, that are kept while cached blocks fill the rest
     * of a group, in percent of its blocks, in [0, 100]; 0 = none. When a request takes blocks and
     * fewer would be left, cached ones are evicted early, in the order of eviction; not those of a
     * priority above 0, and not in groups with a window. So the blocks of a sequence lie side by
     * side, and attention reads longer pieces; but that share of the cache finds nothing
     * (docs/sizing.md). It never makes an admission or a step wait: blank blocks are there to be
     * taken. */
    int32_t min_blank_percent;

    /* Memory that sequences can be swapped out to (swap.h), in bytes; 0 = none. It is cut into
     * units of one size, num_units = swap_bytes / unit bytes, and what a sequence has there may lie
     * in any of them, so that all groups share the memory and it does not get fragmented. A unit is
     * the greatest common divisor of the bytes of one block (pkv_page_sizes) of each paged group
     * and of one state in all layers of each state group, whose layers take state_bytes each,
     * rounded up to 64; or, when that is less than a 16th of the smallest of these, the smallest.
     * What is less than a unit at the end is not used. */
    size_t swap_bytes;
    /* A folder: the swap memory is a mapping of a file there, which has no name, takes all of its
     * bytes of the disk now, and is gone with the cache, or with the process. NULL = from
     * hooks.map_pages with PKV_MAP_SWAP, by default anonymous memory. Not read when swap_bytes is
     * 0. */
    const char *swap_path;

    /* Tiers (offload.h), nearest first: where full blocks are stored, and prefetched from. They
     * need prefix_cache, and must live until the cache is destroyed; several caches may use one.
     * num_tiers is in [0, PKV_MAX_TIERS]; 0 = none, and the fields below are not read. */
    pkv_tier *const *tiers;
    int32_t num_tiers;
    /* Threads that the cache starts for pkv_tier_work, in [0, 64]; 0 = the caller's threads call
     * it. They run at nice 19, since one that took a processor from an attending thread would make
     * its step longer: where attention keeps all processors busy they store little, so leave them
     * one, or bring threads of another priority. A child after fork() does not have them: it may
     * neither use such a cache nor destroy it. */
    int32_t num_tier_threads;
    /* Tickets that may be open at once, in [0, 2^16]; 0 = 64. */
    int32_t max_tickets;
    /* Blocks of each group that may wait to be stored, held meanwhile; 0 = an eighth of its blocks,
     * at least 1. */
    int32_t max_store_blocks;
    /* Blocks are stored by pkv_tier_store alone. */
    bool no_write_behind;

    /* What the cache must be able to do, bits of enum pkv_requirement, or create and pkv_cache_size
     * answer PKV_UNSUPPORTED; so they do for a bit that they do not know. 0 = whatever it can. */
    uint64_t required;
};

/* Exact sizes of a cache in bytes. */
struct pkv_cache_sizes {
    size_t size;
    /* Keys and values of all groups. */
    size_t payload_bytes;
    /* Reserved address space of block tables and, with the prefix cache, of the tokens of sequences
     * and nodes. Physical memory is used only as it is touched. */
    size_t table_bytes;
    /* Everything else that create takes, except scratch of attention. */
    size_t metadata_bytes;
    /* One token in all layers that have pages. */
    size_t token_bytes;
    /* Swap memory: the whole units of config.swap_bytes. */
    size_t swap_bytes;
};

/* Checks a configuration and computes the exact sizes of its cache, without making it.
 *
 * Returns PKV_OK and fills *sizes; PKV_INVALID_ARGUMENT, and the last error names the field;
 * PKV_UNSUPPORTED for a prefix cache over more than 64 groups, over one whose block_size is no
 * multiple of the smallest, or, with tiers, over different block sizes or a continuous group; for
 * state groups with tiers or without an attention group; for what config->required
 * names and the cache cannot do; and for swap_bytes where all groups are continuous; PKV_NEVER_FITS
 * when config->bytes leaves a group without a block, or swap_bytes is less than a unit.
 * Any thread; O(groups * layers). */
PKV_API PKV_NODISCARD enum pkv_status pkv_cache_size(const struct pkv_cache_config *config,
                                                     struct pkv_cache_sizes *sizes);

/* Computes how many blocks each group gets from a payload budget: the inverse of pkv_cache_size,
 * with `bytes` in the place of config->bytes.
 *
 * num_blocks [num_groups] is written. Groups with num_blocks set keep it and count against the
 * budget, as do continuous groups with their max_seqs slots.
 *
 * Returns PKV_OK; PKV_NEVER_FITS when a group would get no block, or the fixed ones alone pass the
 * budget; else the statuses of pkv_cache_size. Any thread; O(groups * layers). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_cache_blocks_for_bytes(const struct pkv_cache_config *config, size_t bytes,
                           int32_t *num_blocks);

/* ---- the cache ----------------------------------------------------------------------------- */

/* Makes a cache. The configuration is copied. All memory is taken now, except scratch that the
 * first steps grow, so that later calls cannot fail for want of it; physical memory of the payload
 * is used only as tokens are written.
 *
 * Returns PKV_OK and the cache in *cache, which the caller destroys; the statuses of
 * pkv_cache_size; PKV_UNSUPPORTED for an isa that this CPU lacks; PKV_NO_MEMORY; PKV_IO when there
 * is no such file for swap_path, or no room for it on the disk. Any thread;
 * O(metadata bytes). */
PKV_API PKV_NODISCARD enum pkv_status pkv_cache_create(const struct pkv_cache_config *config,
                                                       pkv_cache **cache);

/* Closes a cache to new work, as the first part of shutting down: from now on pkv_seq_create,
 * pkv_seq_fork, pkv_seq_admit and pkv_step_begin answer PKV_BUSY, and probes report it. Threads in
 * pkv_wait_free wake up. An open step goes on. Closing again changes nothing; NULL is accepted. Any
 * thread; O(1). */
PKV_API void pkv_cache_close(pkv_cache *cache);

/* Frees a cache and all its sequences. Threads of its own (config.num_tier_threads) end first, when
 * each has finished what it reads or writes at the moment; what is not stored by then is not stored
 * (pkv_tier_flush, offload.h).
 *
 * Returns PKV_OK, for NULL too; PKV_BUSY while a step or a ticket is open and `force` is false,
 * with nothing freed. With `force` they are gone too. No other thread may be using the cache.
 * O(groups). */
PKV_API enum pkv_status pkv_cache_destroy(pkv_cache *cache, bool force);

/* Reads a cache's configuration back with every default filled in: threads and isa in use, blocks
 * of each group, nodes and namespaces of the index, v_width, clamped windows.
 *
 * config->size is set by the caller.
 *
 * Returns PKV_OK and fills *config, whose groups, layers and label point into the cache and are
 * valid until it is destroyed; hooks, fingerprint and swap_path are left empty.
 * PKV_INVALID_ARGUMENT. Any thread; O(1). */
PKV_API PKV_NODISCARD enum pkv_status pkv_cache_describe(const pkv_cache *cache,
                                                         struct pkv_cache_config *config);

/* Describes the keys and values of one layer in place; a layer with shares_kv has those of its
 * kv_layer. For another kernel, or a debugger; tables of an open step come from pkv_step_describe.
 *
 * layer is in [0, num_layers).
 *
 * Returns PKV_OK and fills *view, whose pointers are the same at every call and stay valid until
 * the cache is destroyed; PKV_INVALID_ARGUMENT. Any thread; O(1). */
PKV_API PKV_NODISCARD enum pkv_status pkv_cache_view(const pkv_cache *cache, int32_t layer,
                                                     struct pkv_kv_view *view);

/* Verifies every invariant of a cache. Each broken one is one line through the log hook.
 *
 * Returns the number of broken invariants: 0 for a sound cache, 1 for NULL. Any thread, at any
 * time; the mutex is released between groups. O(blocks + nodes + sequences * blocks of a table). */
PKV_API int32_t pkv_cache_check(pkv_cache *cache);

/* The blocks of one group: free + held = num_blocks. Of a continuous group, its slots. */
struct pkv_group_usage {
    size_t size;
    int32_t num_blocks;
    /* Held by no sequence, pin or step. */
    int32_t free;
    int32_t held;
    /* Of the free ones, those that the prefix cache can still find. */
    int32_t cached;
    /* Of the held ones, those that a pin holds. */
    int32_t pinned;
    /* Of the free ones, those that admitted sequences were promised and have not taken yet: the
     * rest, free - promised, is what admissions, forks, pins and steps without admission find. */
    int32_t promised;
};

/* Counts the blocks of one group. pkv_cache_stats (metrics.h) has the sum over groups, and more.
 *
 * Returns PKV_OK and fills *usage; PKV_INVALID_ARGUMENT for a group out of range. Any thread; O(1).
 */
PKV_API PKV_NODISCARD enum pkv_status pkv_cache_usage(pkv_cache *cache, int32_t group,
                                                      struct pkv_group_usage *usage);

/* ---- sequences ----------------------------------------------------------------------------- */

/* Options of a sequence. NULL, or all zero but size, = none. */
struct pkv_seq_options {
    size_t size;
    /* Names a set of sequences for pkv_seq_destroy_tagged, such as those of one client; 0 = none.
     */
    uint64_t tag;
    /* [1], >= 0: overrides kept_prefix of every group; NULL = each group's own. With the prefix
     * cache and a window, a value other than the group's makes other keys, so it counts as one more
     * namespace field. */
    const int64_t *kept_prefix;
    /* Speculative decoding: how far pkv_seq_truncate can always go back. In [0, max_seq_len]. It
     * counts from the greatest length that the sequence, or before a fork its parent, has had
     * since it was last empty: any length from that less max_rewind on can be truncated to, in one
     * cut or in several. The newest max_rewind tokens are not indexed yet, and window groups keep
     * their blocks so much longer. With state groups it does not go back behind an adopted prefix
     * or the place of a fork, nor further than max_rewind tokens into one row of a step: they have
     * states of tokens that the sequence's own steps brought, of a row its last max_rewind + 1
     * (pkv_seq_info.min_length). */
    int32_t max_rewind;
    /* The most tokens that the sequence, and each of its forks, may ever have, in [0, max_seq_len];
     * 0 = max_seq_len. An admission past it is PKV_NEVER_FITS, a step past it is refused. */
    int32_t max_tokens;
    /* [num_namespace_fields], at most PKV_MAX_NAMESPACE_FIELDS: whose cached blocks it may share.
     */
    const struct pkv_namespace_field *namespace_fields;
    int32_t num_namespace_fields;
    /* Of the blocks that it computes, in [0, PKV_NUM_PRIORITIES): lower ones are evicted first. */
    int32_t priority;
    /* It may adopt cached blocks, but what it computes is not indexed. */
    bool no_publish;
    /* How long the priority lasts: a block that nobody has used for so long counts as of priority 0
     * from then on, by the clock that pkv_batch and the calls of prefix.h bring; every hit begins
     * the time anew. In nanoseconds; 0 = for ever. For prompts that matter while they are in use:
     * without it a priority that nobody uses again keeps its blocks from all lower ones. */
    uint64_t retention_ns;
};

/* Makes an empty sequence: the handle that stands for one request in every other call. In
 * continuous groups it claims its slot now.
 *
 * options may be NULL.
 *
 * Returns PKV_OK and the handle in *seq; PKV_NO_BLOCKS when max_seqs sequences exist, where one
 * destroyed during the open step counts until the step ends, or max_namespaces are in use;
 * PKV_INVALID_ARGUMENT; PKV_BUSY on a closed cache. Any thread; O(groups). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_seq_create(pkv_cache *cache, const struct pkv_seq_options *options, pkv_seq *seq);

/* Ends a sequence. Its handle is stale at once; its blocks and slots are released now or, when it
 * is part of the open step, when that ends. Indexed blocks stay cached.
 *
 * Returns PKV_OK; PKV_STALE_HANDLE. Any thread; it takes no memory and never waits for a step.
 * O(its blocks). */
PKV_API enum pkv_status pkv_seq_destroy(pkv_cache *cache, pkv_seq seq);

/* Ends every sequence with one tag, such as those of a client that has disconnected.
 *
 * tag is not 0. *count receives how many there were; count may be NULL.
 *
 * Returns PKV_OK, also when there were none; PKV_INVALID_ARGUMENT for tag 0. Any thread; O(max_seqs
 * + their blocks). */
PKV_API enum pkv_status pkv_seq_destroy_tagged(pkv_cache *cache, uint64_t tag, int32_t *count);

/* Reads the length of a sequence: its committed tokens, without those of an open step.
 *
 * Returns PKV_OK and a number in [0, max_seq_len] in *length; PKV_STALE_HANDLE. Any thread; O(1).
 */
PKV_API PKV_NODISCARD enum pkv_status pkv_seq_length(pkv_cache *cache, pkv_seq seq,
                                                     int32_t *length);

/* A sequence as it is at the moment. */
struct pkv_seq_info {
    size_t size;
    /* As in its options; max_tokens is never 0. */
    uint64_t tag;
    int32_t max_rewind;
    int32_t max_tokens;
    /* As pkv_seq_length says. */
    int32_t length;
    /* Tokens that its last admission adopted; 0 for one that was not admitted. */
    int32_t num_cached;
    /* Blocks in its tables, shared ones too, and slots, in all groups. */
    int32_t num_blocks;
    /* pkv_seq_truncate and pkv_seq_fork succeed at every length from this one on, and at 0. Where
     * a state is lost (pkv_step_describe_states) only 0 holds. */
    int32_t min_length;
    /* It is part of the open step. */
    bool in_step;
    /* It is swapped out (swap.h): it has no blocks in paged groups, and of min_length only 0 holds.
     */
    bool is_swapped;
};

/* Describes a sequence.
 *
 * info->size is set by the caller. num_blocks [num_groups] receives the blocks of each group, of a
 * continuous one its slot; it may be NULL.
 *
 * Returns PKV_OK and fills *info; PKV_STALE_HANDLE; PKV_INVALID_ARGUMENT. Any thread; O(groups). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_seq_describe(pkv_cache *cache, pkv_seq seq, struct pkv_seq_info *info, int32_t *num_blocks);

/* Shows every sequence to a callback, as pkv_seq_describe describes it, each once: for a scheduler
 * that looks for one to preempt, or a page that lists what a server works on.
 *
 * visit receives a handle and what it names; info->size is the sizeof of the library, as in struct
 * pkv_block_info (metrics.h). It returns false to stop. context is passed to it as it is. The mutex
 * is released while visit runs, so it may call the cache, pkv_seq_describe for the blocks of each
 * group among others; what it is shown is not one snapshot. A sequence that exists all the time is
 * shown; one that comes or goes meanwhile may be, and its handle may be stale by then. The order is
 * that of the places that sequences have in the cache: the same calls give the same.
 *
 * Returns PKV_OK, also when visit has stopped it; PKV_INVALID_ARGUMENT. Any thread; O(max_seqs +
 * sequences * groups). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_cache_visit_seqs(pkv_cache *cache,
                     bool (*visit)(void *context, pkv_seq seq, const struct pkv_seq_info *info),
                     void *context);

/* Copies a sequence's block table of one group, for a debugger or a transfer: entry i is the block
 * of positions [i * block_size, (i + 1) * block_size), -1 where a window has released it. Of a
 * continuous group, the one entry is its slot. The blocks are its own only as long as nothing
 * changes the sequence; for a step's tables see step.h.
 *
 * group is in [0, num_groups). entries [max_entries] receives the first so many, max_entries >= 0;
 * *num_entries is how many there are.
 *
 * Returns PKV_OK; PKV_STALE_HANDLE; PKV_INVALID_ARGUMENT. Any thread; O(entries). */
PKV_API PKV_NODISCARD enum pkv_status pkv_seq_table(pkv_cache *cache, pkv_seq seq, int32_t group,
                                                    int32_t *entries, int32_t max_entries,
                                                    int32_t *num_entries);

/* Makes n children of a sequence that share its first `at` tokens, without copying: parallel
 * sampling, beams, branches. A child has the parent's options, and grows on its own.
 *
 * at is in [0, length], and not inside a bidirectional range, whose first keys come from its later
 * tokens too (nothing checks that: a sequence does not record its ranges). n >= 0. children [n]
 * receives the handles.
 *
 * A child was promised nothing, and takes blocks as it needs them. It does not shorten what was
 * promised to others, but a copy on write, its parent's too, is outside of any promise.
 *
 * Returns PKV_OK; PKV_NO_BLOCKS when fewer than n sequences are left, or when a child would hold
 * blocks of an admitted sequence's window, or its state, that are promised once it leaves them
 * behind; PKV_NOT_RESIDENT when a window group has released keys that a query at `at` would see, or
 * a state group has no state after `at` tokens (it has those of the length and of max_rewind), or
 * the sequence is swapped out (swap.h); PKV_UNSUPPORTED with a continuous group; PKV_BUSY when the
 * sequence is in the open step or the cache is closed; PKV_STALE_HANDLE. All children or none. Any
 * thread; O(n * (blocks + tokens)). */
PKV_API PKV_NODISCARD enum pkv_status pkv_seq_fork(pkv_cache *cache, pkv_seq seq, int32_t at,
                                                   int32_t n, pkv_seq *children);

/* Shortens a sequence to its first `length` committed tokens, and releases whole blocks beyond
 * them: after rejected drafts, or, with length 0, to preempt it. A preempted sequence keeps its
 * handle and its indexed blocks stay cached; admit it again to go on.
 *
 * What admission promised stays promised, except with length 0, and except when blocks that the cut
 * gives up stay with a pin, a fork, a store in a tier or another request that adopted them, and as
 * many others are not free: then the sequence goes on as one that was not admitted. An indexed
 * block that the cut leaves half used is not written again: the next append copies it, and that
 * block is outside of the promise too. A cut within max_rewind loses nothing, unless there are
 * forks or it goes back into what the admission adopted.
 *
 * length is in [0, the sequence's length], and as with forks not inside a bidirectional range. 0
 * always succeeds, and so does what max_rewind says. Otherwise every key that a query at `length`
 * sees must still have its block, and a state group the state after so many tokens.
 *
 * Returns PKV_OK; PKV_NOT_RESIDENT when a window group has released needed keys, or a state group
 * has no such state, and the last error says the nearest lengths that are possible, or when the
 * sequence is swapped out (swap.h) and length is not 0; PKV_BUSY when the sequence is in the open
 * step; PKV_STALE_HANDLE; PKV_INVALID_ARGUMENT. Any thread; O(blocks cut). */
PKV_API PKV_NODISCARD enum pkv_status pkv_seq_truncate(pkv_cache *cache, pkv_seq seq,
                                                       int32_t length);

/* ---- admission ----------------------------------------------------------------------------- */

/* Why a call found no room: filled when it answers PKV_NO_BLOCKS or PKV_NEVER_FITS. A scheduler
 * reads from it what to wait for, or what to preempt. */
struct pkv_shortage {
    size_t size;
    /* Index in the batch; -1 = no row. After a successful pkv_step_begin: how many rows joined. */
    int32_t row;
    /* The group that is short; -1 = none: a quota, the sequence's length or the swap memory
     * (swap.h) refuses. */
    int32_t group;
    /* Blocks needed: for PKV_NO_BLOCKS those to take or to promise now, beside what was promised
     * before; for PKV_NEVER_FITS all that the sequence would hold. Tokens when max_tokens is set.
     */
    int64_t need;
    /* Free blocks that the call could have used: those promised to others, and for an admission the
     * watermark, are not among them. Of a quota, what is left of it. */
    int64_t free;
    /* So many of them at most are cached: taking them evicts. */
    int64_t evictable;
    /* The quota that refuses, in blocks; 0 = none. */
    int64_t quota;
    /* The most tokens that the sequence may have, its max_tokens or max_seq_len, when that refuses;
     * 0 = it does not. */
    int32_t max_tokens;
};

/* The tokens that a request brings, which admission, a probe and a pin look up in the prefix cache.
 * The arrays are read during the call. */
struct pkv_prompt {
    size_t size;
    /* [num_tokens]; any int32 is an id. May be NULL when num_tokens is 0. */
    const int32_t *token_ids;
    /* [num_tokens], NULL = all 0: what is behind placeholder ids, such as a hash of the image that
     * they stand for. Tokens are equal only when ids and extras are. */
    const uint64_t *token_extra;
    /* >= 0. */
    int32_t num_tokens;
    /* [num_bidirectional], ascending and disjoint, inside [0, num_tokens): tokens that see each
     * other, such as an image's. No hit ends inside one. With the prefix cache each of their tokens
     * needs a token_extra that is not 0 and stands for all of the range's content, since its keys
     * come from all of it. */
    const struct pkv_token_range *bidirectional;
    int32_t num_bidirectional;
};

/* What an admission gave. */
struct pkv_admission {
    size_t size;
    /* Tokens adopted from the prefix cache: the sequence's length now. */
    int32_t num_cached;
    /* Prompt tokens left to compute: prompt->num_tokens - num_cached. */
    int32_t num_to_write;
    /* Blocks promised to the sequence, adopted ones among them, in all groups together: it
     * never holds more while its steps bring one token each. */
    int32_t num_blocks;
    /* Of num_cached, the tokens behind its last whole block, in [0, block_size): the first step
     * copies their keys and values into a block of the sequence's own. */
    int64_t num_copied;
    /* Of num_cached, the tokens whose blocks came from each tier (offload.h). */
    int32_t tier_cached[PKV_MAX_TIERS];
};

/* Admits a request: adopts the longest cached prefix of its prompt and promises blocks for the
 * rest, in every group: until it has prompt->num_tokens + reserve_tokens tokens (reserve_tokens >=
 * 0: those that it will generate), no step of it finds too few, whatever others do. The exceptions
 * are copies on write, of which only forks and truncations (pkv_seq_truncate) are the cause. A
 * sequence may also run without admission; then each step takes blocks as it needs them.
 *
 * A promise is a number. Blocks are taken when tokens come, and until then stay free and cached;
 * only so many must remain free. In a group without a window these are the blocks of all its tokens
 * that it does not hold yet. In a window group they are no more than it holds at once when its
 * steps bring one token each: the window, max_rewind, the kept prefix, and a block for a window
 * that begins inside one. What longer rows of a step need beyond that is set aside once for all
 * admitted sequences, for config.max_step_tokens together. A block that leaves a window is not free
 * while another sequence or a pin holds it, so in a window group adopted blocks are promised like
 * new ones.
 *
 * The sequence must be empty, new or preempted; one that was admitted before gets the new promise
 * instead of the old one. An admission must leave config.watermark_blocks in each group that are
 * neither taken nor promised, and keep to quotas, which count what is promised.
 *
 * Adopted are at most max_cached tokens (>= 0; 0 = none, prompt->num_tokens = no limit), and never
 * the last token, whose output the model has to compute. A prefix counts as far as every group
 * still has the keys that a query behind it sees, and in a state group it ends at a snapshot.
 *
 * These are whole blocks of every group, which the sequence shares, and behind them the first
 * num_copied tokens of the next one (unless config.no_partial_hits, or groups have different block
 * sizes or states): of all blocks cached in every group that follow the same prefix in the same
 * namespace, that of the one that has the most first tokens in common with the prompt. Among these
 * blocks are the last ones, not full, of sequences that ended. The copied tokens get a block of the
 * sequence's own, which it would have needed anyway: its first step copies the cells, each layer in
 * its own attend, as after a fork. The source is held until that step ends, or the sequence is cut
 * back to whole blocks or destroyed, and not after; where there is no free block for it beside
 * those that are promised, the hit ends with the whole blocks.
 *
 * Returns PKV_OK and fills *admission; PKV_NO_BLOCKS when there is no room now, PKV_NEVER_FITS when
 * there never is (or max_tokens refuses), both with *shortage (may be NULL) filled and nothing else
 * changed; PKV_INVALID_ARGUMENT for a sequence that is not empty; PKV_NOT_RESIDENT for one that is
 * swapped out (swap.h); PKV_BUSY when it is in the open step or the cache is closed;
 * PKV_STALE_HANDLE. Any thread; O(num_tokens + blocks). */
PKV_API PKV_NODISCARD enum pkv_status pkv_seq_admit(pkv_cache *cache, pkv_seq seq,
                                                    const struct pkv_prompt *prompt,
                                                    int32_t reserve_tokens, int32_t max_cached,
                                                    struct pkv_admission *admission,
                                                    struct pkv_shortage *shortage);

/* Waits until what an admission lacked has come free, so that a server asks again when it may
 * succeed, and not at every step:
 *
 *     while (pkv_seq_admit(cache, seq, &prompt, .., &shortage) == PKV_NO_BLOCKS)
 *         if (pkv_wait_free(cache, seq, &shortage, timeout_ns) != PKV_OK) give up, or preempt
 *
 * shortage is what the admission of seq has filled for PKV_NO_BLOCKS: a group and its blocks, or
 * the blocks of a quota. timeout_ns is in nanoseconds of the system's monotonic clock from now; 0 =
 * only look, which is what a loop that steps and admits on one thread wants before it admits again;
 * UINT64_MAX = as long as it takes. Nothing is reserved: another admission may be faster, and the
 * next one may lack something else.
 *
 * Returns PKV_OK when the blocks are there; PKV_NO_BLOCKS when the time is over; PKV_BUSY when the
 * cache is closed, PKV_STALE_HANDLE when seq is destroyed, both meanwhile too; PKV_NEVER_FITS when
 * there never are so many; PKV_INVALID_ARGUMENT for a shortage of another call, or one that names
 * neither group nor quota; PKV_NO_MEMORY. Any thread but the one that is to free the blocks, and
 * several at once; those that wait hold no lock, and must have returned before the cache is
 * destroyed: pkv_cache_close wakes them. O(1) and the wait; while threads wait, each call on the
 * cache takes O(waiting threads) more. */
PKV_API PKV_NODISCARD enum pkv_status pkv_wait_free(pkv_cache *cache, pkv_seq seq,
                                                    const struct pkv_shortage *shortage,
                                                    uint64_t timeout_ns);

/* What pkv_seq_admit would answer. */
struct pkv_probe {
    size_t size;
    /* PKV_OK, PKV_NO_BLOCKS or PKV_NEVER_FITS; PKV_BUSY on a closed cache, and then nothing else is
     * filled. */
    enum pkv_status status;
    /* Tokens that it would adopt, or, if there is no room, would adopt if there were. */
    int32_t num_cached;
    /* Further tokens of the prompt that a running sequence is to compute and index: waiting for it
     * saves computing them again. */
    int32_t num_pending;
    /* As in struct pkv_admission, when status is PKV_OK. */
    int32_t num_blocks;
    /* As in struct pkv_admission: so many tokens of num_cached are copied. */
    int64_t num_copied;
    /* Further tokens, behind the whole blocks of num_cached, that a prefetch (offload.h) could
     * bring, by the tier that they would come from: as far as this cache knows, since no tier is
     * asked. */
    int32_t tier_cached[PKV_MAX_TIERS];
};

/* Asks what pkv_seq_admit would answer to a new sequence, without any effect: nothing is reserved,
 * pinned, evicted or made more recent. A router probes every machine; a scheduler orders its queue.
 *
 * options (may be NULL) are those that the sequence would have; the rest is as in pkv_seq_admit.
 *
 * Returns PKV_OK and fills *probe, whose status is the answer, and *shortage (may be NULL) when
 * that is PKV_NO_BLOCKS or PKV_NEVER_FITS; PKV_INVALID_ARGUMENT. Any thread;
 * O(num_tokens + max_seqs + tokens shared with running sequences). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_cache_probe(pkv_cache *cache, const struct pkv_seq_options *options,
                const struct pkv_prompt *prompt, int32_t reserve_tokens, int32_t max_cached,
                struct pkv_probe *probe, struct pkv_shortage *shortage);

/* Tells each group's part in a hit: how many tokens of a prompt a request could adopt if the group
 * were the only one. The least of them is the group that shortens the hit, such as a window group
 * that has evicted the window in front of the prompt's end. Without any effect, as pkv_cache_probe.
 *
 * options (may be NULL), prompt and max_cached are as in pkv_cache_probe. group_cached [num_groups]
 * receives tokens: whole blocks, or the common hit where that is longer because it ends inside a
 * block. *num_cached (may be NULL) is that common hit, what all groups allow together: at most the
 * least of group_cached, and less where no length suits all windows. It is pkv_probe.num_cached,
 * unless there is no room for a hit that ends inside a block.
 *
 * Returns PKV_OK; PKV_UNSUPPORTED without the prefix cache; PKV_INVALID_ARGUMENT. Any thread;
 * O(num_tokens * groups). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_cache_probe_groups(pkv_cache *cache, const struct pkv_seq_options *options,
                       const struct pkv_prompt *prompt, int32_t max_cached, int32_t *group_cached,
                       int32_t *num_cached);

#ifdef __cplusplus
}
#endif

#endif
