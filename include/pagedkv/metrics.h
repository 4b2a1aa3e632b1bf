/* SPDX-License-Identifier: MIT
 *
 * pagedkv/metrics.h: what a cache tells about itself: events, counters, its blocks. All lock
 * inside; any thread. */
#ifndef PAGEDKV_METRICS_H
#define PAGEDKV_METRICS_H

#include "pagedkv/base.h"
#include "pagedkv/cache.h"
#include "pagedkv/prefix.h"

#ifdef __cplusplus
extern "C" {
#endif

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
    bool is_indexed;
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
