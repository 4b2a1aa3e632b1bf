/* SPDX-License-Identifier: MIT
 *
 * pagedkv/metrics.h: what a managed cache (cache.h) tells about itself: counters, their Prometheus
 * text, a walk over all blocks, and events about the blocks that can be found.
 *
 *     pkv_cache_stats(cache, &stats)                    one struct of counters
 *     pkv_metrics_write(cache, write, context)          the same as text, for a scrape
 *     pkv_metrics_write_caches(caches, n, write, context)   of several caches, by label
 *
 *     pkv_cache_visit(cache, visit, context, &next)     a router learns what is cached ...
 *     for ever
 *         pkv_events_drain(cache, events, n, &count, &num_lost)
 *         if num_lost > 0: visit again                  ... and follows from event `next` on
 *
 * Everything is copied out; nothing here changes what the cache does.
 *
 * Threads. Any thread, at any time; the cache locks inside, and holds no lock while it calls a
 * callback, so a callback may call the cache. */
#ifndef PAGEDKV_METRICS_H
#define PAGEDKV_METRICS_H

#include "pagedkv/base.h"
#include "pagedkv/cache.h"
#include "pagedkv/prefix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- counters ------------------------------------------------------------------------------ */

/* Counters of a cache. The first part only grows and is counted from create on; the second part,
 * from num_blocks on, says how things are at the moment. Blocks are those of all paged groups. */
struct pkv_stats {
    size_t size;
    /* Admissions that found room. */
    uint64_t num_admissions;
    /* Prompt tokens of first admissions, and how many of them were adopted: hit_tokens /
     * queried_tokens is the hit rate of the prefix cache. */
    uint64_t queried_tokens;
    uint64_t hit_tokens;
    /* The same for sequences that were admitted again after preemption (truncated to 0): they find
     * what they computed themselves, which would flatter the hit rate. */
    uint64_t readmitted_tokens;
    uint64_t rehit_tokens;
    /* Blocks that were indexed, in all groups. */
    uint64_t stored_blocks;
    /* Blocks computed again although an equal one was indexed: the copy was released at commit. */
    uint64_t deduplicated_blocks;
    /* Full blocks that could not be indexed: the index was full, their hash names another content,
     * or their parent is gone. */
    uint64_t unpublished_blocks;
    /* Cached blocks that were evicted: their memory was taken, or the index was full. And the sum
     * of the times since those of the first kind were released, by the caller's clock (now_ns of
     * pkv_batch and of pins). Blocks count 0 ns where no clock was given. */
    uint64_t evicted_blocks;
    uint64_t evicted_age_ns;
    /* Copies on write. */
    uint64_t copied_blocks;
    /* Lookups that met an equal hash of different content; they were no hits. */
    uint64_t collisions;
    /* The number of the last event, and how many were overwritten before they were drained. */
    uint64_t num_events;
    uint64_t lost_events;
    /* Pins whose time was up. */
    uint64_t expired_pins;
    /* Keys and values that attention has read, in bytes: each key counts once for every block of
     * queries and KV head, and once for all rows that share it as part of a shared prefix. */
    uint64_t attention_bytes;

    /* num_blocks = held_blocks + free_blocks, of attention groups: states are counted by
     * pkv_cache_usage. */
    int64_t num_blocks;
    /* Held by a sequence, a pin, or the open step. */
    int64_t held_blocks;
    int64_t free_blocks;
    /* Of the free ones, those that the prefix cache can still find. */
    int64_t cached_blocks;
    /* Of the held ones, those that a pin holds. */
    int64_t pinned_blocks;
    /* Tokens that the blocks in all block tables have room for, and tokens committed to them. A
     * shared block counts for each table. Their difference is unused. */
    int64_t table_cells;
    int64_t used_cells;
    /* Sequences that exist: created or forked, and not destroyed. */
    int32_t num_seqs;
    int32_t num_pins;
    /* Nodes of the prefix index in use, and their bound. */
    int32_t num_nodes;
    int32_t max_nodes;
    /* Bytes of the index; constant after create. */
    size_t index_bytes;
    /* From create on: of hit_tokens and rehit_tokens, those that were to be copied because the hit
     * ended inside a block. */
    uint64_t copied_hit_tokens;
    /* Blocks in all block tables, a shared one for each table, and the runs that they form: blocks
     * of one table, one behind the other, whose ids are adjacent lie side by side in memory and are
     * read fastest. table_blocks / table_runs is the mean length of a run in blocks; both are 0
     * where no table has any. */
    int64_t table_blocks;
    int64_t table_runs;
    /* From create on: sequences that were swapped out, and that came back (swap.h), and the keys,
     * values and states that were copied for it, in bytes. */
    uint64_t swap_outs;
    uint64_t swap_ins;
    uint64_t swap_out_bytes;
    uint64_t swap_in_bytes;
    /* Units of the swap area, those in use, and the sequences that are swapped out. */
    int64_t swap_units;
    int64_t used_swap_units;
    int64_t swapped_seqs;
};

/* Reads the counters of a cache. Works without the prefix cache too; its counters are 0 then.
 *
 * Returns PKV_OK and fills *stats; PKV_INVALID_ARGUMENT. O(groups * max_seqs). */
PKV_API PKV_NODISCARD enum pkv_status pkv_cache_stats(pkv_cache *cache, struct pkv_stats *stats);

/* Writes the counters of a cache in the Prometheus text format. Names begin with pagedkv_; those
 * that the field knows are kept. A name that ends in _total only grows. With config.metrics_label
 * each sample has the label `cache`, its value escaped as the format says.
 *
 *     kv_cache_usage_perc                      held_blocks / num_blocks, in [0, 1]
 *     prefix_cache_queries_total               queried_tokens
 *     prefix_cache_hits_total                  hit_tokens
 *     prefix_cache_readmitted_queries_total    readmitted_tokens
 *     prefix_cache_readmitted_hits_total       rehit_tokens
 *     prefix_cache_copied_hits_total           copied_hit_tokens
 *     admissions_total                         num_admissions
 *     blocks_total_count                       num_blocks
 *     blocks_held, blocks_free                 held_blocks, free_blocks
 *     blocks_cached, blocks_pinned             cached_blocks, pinned_blocks
 *     table_tokens, used_tokens                table_cells, used_cells
 *     table_blocks, table_runs                 table_blocks, table_runs
 *     table_run_length                         table_blocks / table_runs, 0 where there are none
 *     sequences, pins, index_nodes             num_seqs, num_pins, num_nodes
 *     blocks_stored_total                      stored_blocks
 *     blocks_deduplicated_total                deduplicated_blocks
 *     blocks_unpublished_total                 unpublished_blocks
 *     evictions_total                          evicted_blocks
 *     evicted_age_seconds_total                evicted_age_ns / 1e9
 *     block_copies_total                       copied_blocks
 *     hash_collisions_total                    collisions
 *     attention_read_bytes_total               attention_bytes
 *     events_total, events_lost_total          num_events, lost_events
 *     swap_sequences                           swapped_seqs
 *     swap_units, swap_units_used              swap_units, used_swap_units
 *     swap_outs_total, swap_ins_total          swap_outs, swap_ins
 *     swap_out_bytes_total                     swap_out_bytes
 *     swap_in_bytes_total                      swap_in_bytes
 *
 * Of each tier (struct pkv_tier_stats, offload.h), with the labels `tier`, its index, and
 * `tier_name`:
 *
 *     tier_stored_blocks_total                 stored_blocks
 *     tier_stored_bytes_total                  stored_bytes
 *     tier_failed_stores_total                 failed_stores
 *     tier_skipped_stores_total                skipped_stores
 *     tier_loaded_blocks_total                 loaded_blocks
 *     tier_loaded_bytes_total                  loaded_bytes
 *     tier_missed_blocks_total                 missed_blocks
 *     tier_void_blocks_total                   void_blocks
 *     tier_collisions_total                    collisions
 *     tier_failed_loads_total                  failed_loads
 *     tier_corrupt_blocks_total                corrupt_blocks
 *     tier_hit_tokens_total                    hit_tokens
 *     tier_waiting_stores                      waiting_stores
 *     tier_tickets                             num_tickets
 *
 * write is called once for each metric (and tier) with its HELP, TYPE and value lines: `bytes`
 * bytes, not NUL-terminated. It returns false to stop. context is passed to it as it is.
 *
 * Returns PKV_OK; PKV_IO when write has stopped it; PKV_INVALID_ARGUMENT. O(groups * max_seqs). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_metrics_write(pkv_cache *cache, bool (*write)(void *context, const char *text, size_t bytes),
                  void *context);

/* Caches that pkv_metrics_write_caches takes at most. */
#define PKV_MAX_METRICS_CACHES 64

/* The same for several caches of one process: one text, in which the samples of a metric stand
 * together under one HELP and TYPE, as the format demands.
 *
 * caches [num_caches], num_caches in [0, PKV_MAX_METRICS_CACHES], in the order in which their
 * samples are to stand; if there are several, each has a metrics_label of its own. The counters of
 * each are of one moment, one cache after the other. write is called once for each metric and
 * cache; the HELP and TYPE lines come with the first.
 *
 * Returns PKV_OK; PKV_IO when write has stopped it; PKV_INVALID_ARGUMENT, with nothing written, and
 * the last error names the cache. O(num_caches * (num_caches + groups * max_seqs)). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_metrics_write_caches(pkv_cache *const *caches, int32_t num_caches,
                         bool (*write)(void *context, const char *text, size_t bytes),
                         void *context);

/* ---- blocks -------------------------------------------------------------------------------- */

/* What a block is used for. */
enum pkv_block_state {
    /* Free, and nothing in it can be found. */
    PKV_BLOCK_FREE = 0,
    /* Free, and indexed: a new request can adopt it until its memory is taken. */
    PKV_BLOCK_CACHED = 1,
    /* Held by a sequence. */
    PKV_BLOCK_HELD = 2,
    /* Held by a pin, perhaps by sequences as well. */
    PKV_BLOCK_PINNED = 3
};

/* One block of one group, as a walk shows it. */
struct pkv_block_info {
    /* The sizeof of the library, which makes the struct: a field at or beyond it is not there. */
    size_t size;
    /* The index of its group in the configuration, and its id in that group. */
    int32_t group;
    int32_t block;
    enum pkv_block_state state;
    /* Sequences, pins and open copies that hold it. */
    int32_t ref_count;
    /* The prefix index has it as a whole block. The fields below are filled only then: a tail (the
     * last block of a sequence that ended, not full) is cached without a key. */
    bool is_indexed;
    /* PKV_PRIORITY_EVICT_FIRST, or in [0, PKV_NUM_PRIORITIES): lower ones are evicted first. */
    int32_t priority;
    /* What it holds, see base.h. */
    struct pkv_block_key key;
    /* Of the block before it in its prompt; 0 for a first block. */
    struct pkv_block_key parent_key;
    /* XXH3-128 over tag, length and bytes of each field of its namespace; 0 for no fields. */
    struct pkv_block_key namespace_key;
    /* Blocks before it in its prompt: 0 for a first block. */
    int32_t depth;
};

/* Shows every block of every paged group to a callback, in order of group and block: for tools, and
 * for a router that needs to learn what is cached. Works without the prefix cache too.
 *
 * visit returns false to stop. context is passed to it as it is. The mutex is released while visit
 * runs, so what it is shown is not one snapshot: *next_event (may be NULL) is the number of the
 * first event that may be missing from it, and applying events from that one on completes it.
 *
 * Returns PKV_OK, also when visit has stopped it; PKV_INVALID_ARGUMENT. O(blocks). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_cache_visit(pkv_cache *cache, bool (*visit)(void *context, const struct pkv_block_info *info),
                void *context, uint64_t *next_event);

/* ---- events -------------------------------------------------------------------------------- */

/* What happened to a block of the prefix index. */
enum pkv_event_kind {
    /* One more group has it, or several. */
    PKV_EVENT_STORED = 0,
    /* A group has lost it, or several. */
    PKV_EVENT_REMOVED = 1,
    /* Nothing can be found any more: a reset. The keys are 0. */
    PKV_EVENT_CLEARED = 2,
    /* It was stored in a tier (offload.h), or in several: the cache has it as before. */
    PKV_EVENT_OFFLOADED = 3,
    /* As STORED: a prefetch has brought it from a tier. */
    PKV_EVENT_ONBOARDED = 4
};

/* Why it happened. */
enum pkv_event_reason {
    /* STORED: a step was committed. */
    PKV_REASON_COMMIT = 0,
    /* REMOVED: its memory was needed, it was evicted. */
    PKV_REASON_CAPACITY = 1,
    /* REMOVED: its namespace was flushed. */
    PKV_REASON_FLUSH = 2,
    /* CLEARED: pkv_cache_reset. */
    PKV_REASON_RESET = 3,
    /* REMOVED: as CAPACITY, and a tier is known to have it. */
    PKV_REASON_DEMOTED = 4,
    /* No event has it: a damaged value of a tier is a miss, and counted (struct pkv_tier_stats). */
    PKV_REASON_CORRUPT = 5,
    /* ONBOARDED. */
    PKV_REASON_PREFETCH = 6,
    /* OFFLOADED. */
    PKV_REASON_STORE = 7
};

/* One event: another set of groups has a block. Numbers count from 1 without gaps, in the one order
 * in which things happened.
 *
 * An index of what a cache holds follows from events alone: for each key the set `groups`, nothing
 * after a CLEARED. From it, the keys of a prompt (pkv_prefix_keys) and the windows of the groups
 * (pkv_cache_describe), which do not change, follows what pkv_cache_probe finds: docs/keys.md. */
struct pkv_event {
    uint64_t number;
    enum pkv_event_kind kind;
    enum pkv_event_reason reason;
    /* What the block holds. */
    struct pkv_block_key key;
    /* Of the block before it in its prompt; 0 for a first block. */
    struct pkv_block_key parent_key;
    /* As in struct pkv_block_info. */
    struct pkv_block_key namespace_key;
    /* The groups that have the block now, after the event: bit g is group g of the configuration.
     * 0 = it cannot be found any more. Several changes of one kind to a block, one after the other,
     * are one event. */
    uint64_t groups;
    /* Blocks before it in its prompt: 0 for a first block. */
    int32_t depth;
    /* Tiers that are known to have the block of each of those groups, or, when there are none, of
     * some group: bit t is tier t. */
    uint64_t tiers;
};

/* Takes the oldest events out of the ring of config.num_events.
 *
 * events [max_events] receives them in order, max_events >= 0. event_size is sizeof *events, by
 * which they lie apart: each is filled like a struct with a size (base.h). *count is how many.
 * *num_lost (may be NULL) is how many were overwritten since the last call with num_lost set:
 * after a loss, learn the whole again from pkv_cache_visit.
 *
 * Returns PKV_OK, also for no events; PKV_INVALID_ARGUMENT; PKV_UNSUPPORTED for a cache without
 * events (num_events 0, or no prefix cache). O(max_events). */
PKV_API PKV_NODISCARD enum pkv_status pkv_events_drain(pkv_cache *cache, struct pkv_event *events,
                                                       size_t event_size, int32_t max_events,
                                                       int32_t *count, uint64_t *num_lost);

/* The same, with the tokens of each event's block, from a cache with config.event_tokens: for a
 * router that names blocks by hashes of its own.
 *
 * block_size is the smallest of the groups; of the block of a larger group these are its last
 * tokens, and those before are of the events of parent_key and so on. token_ids
 * [max_events][block_size] and token_extra [max_events][block_size] receive what the
 * block of each event holds, 0 for a CLEARED; either may be NULL.
 *
 * Returns what pkv_events_drain returns; PKV_UNSUPPORTED also without config.event_tokens.
 * O(max_events * block_size). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_events_drain_tokens(pkv_cache *cache, struct pkv_event *events, size_t event_size,
                        int32_t max_events, int32_t *token_ids, uint64_t *token_extra,
                        int32_t *count, uint64_t *num_lost);

#ifdef __cplusplus
}
#endif

#endif
