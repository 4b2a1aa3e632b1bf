/* SPDX-License-Identifier: MIT
 *
 * offload.h: the runtime's side of tiers, as a whole: which tiers there are, what is known of them,
 * the blocks that are to be stored, the tickets, the flushes that are to reach the tiers, and what
 * wakes the threads that work. Without tiers num_tiers is 0 and the rest zero. */
#ifndef PKV_RUNTIME_OFFLOAD_H
#define PKV_RUNTIME_OFFLOAD_H

#include <pthread.h>
#include <time.h>

#include "prefix/prefix_index.h"
#include "runtime/store_queue.h"
#include "runtime/ticket.h"
#include "runtime/tier_known.h"

#define OFFLOAD_MAX_RAISES 32

/* A counter that is to be raised in tiers, bit t for tier t: a flush. */
struct offload_flush {
    uint32_t tiers;
    char counter[PKV_MAX_TIER_NAME + 1];
};

/* Guarded by the mutex, but for what is constant after create: tiers, num_tiers, the arrays. */
struct offload {
    pkv_tier *tiers[PKV_MAX_TIERS];
    int32_t num_tiers;
    const struct prefix_index *index;
    struct tier_known known;
    struct store_queue stores;
    struct ticket_records tickets;
    uint8_t *origins; /* [max_nodes] of each node's blocks: 1 + the tier they came from; 0: none */
    struct offload_flush raises[OFFLOAD_MAX_RAISES];
    int32_t num_raises;
    struct offload_flush raising; /* the one that a worker has; of no tiers: none */
    bool rests;                   /* a tier has refused one: none is tried until retry_at */
    struct timespec retry_at;     /* on the monotonic clock */
    int32_t num_running;          /* transfers under way */
    int32_t num_done_tickets;     /* not told yet */
    uint64_t num_skipped;
    struct pkv_tier_stats stats[PKV_MAX_TIERS];

    bool has_conditions;
    pthread_cond_t has_work; /* something is waiting, or the cache is closed */
    pthread_cond_t has_done; /* something was done */
    bool stops;
    int32_t num_threads;
    pthread_t threads[CONFIG_MAX_TIER_THREADS];
};

/* All tiers: bit t for tier t. */
static inline uint32_t offload_tiers(const struct offload *offload)
{
    return (1u << offload->num_tiers) - 1;
}

/* Tiers that a flush has not reached: nothing is read from them or written to them. */
uint32_t offload_suspended(const struct offload *offload);

/* The arrays, for a config with tiers. num_blocks [num_groups], num_nodes of the index. */
void offload_carve(const struct pkv_cache_config *config, const int32_t *num_blocks,
                   int64_t num_nodes, struct offload *offload, struct carver *carver);

/* Bytes of address space beside the arrays; false when they overflow. */
bool offload_size(const struct pkv_cache_config *config, size_t *bytes);

/* Builds it over the index and groups of a cache; asks each tier for what it has.
 * PKV_NO_MEMORY; free it in either case, when its threads have ended. */
enum pkv_status offload_build(struct offload *offload, const struct pkv_cache_config *config,
                              const struct prefix_index *index, struct group *groups,
                              uint64_t generation, const struct pkv_hooks *hooks);
void offload_free(struct offload *offload, const struct pkv_hooks *hooks);

/* A flush of one field, of all for NULL: the tiers are to hear of it. Wakes a worker. */
void offload_raise(struct offload *offload, const struct pkv_namespace_field *field);

/* The counter is to be raised in these tiers. Flushes that do not fit are one of everything. */
void offload_add_raise(struct offload *offload, const char *counter, uint32_t tiers);

/* Its counters of a tier, as the public call tells them. */
struct pkv_tier_stats offload_stats(const struct offload *offload, int32_t tier);

/* A node was made, with blocks that were computed. */
static inline void offload_clear_origin(struct offload *offload, struct prefix_ref node)
{
    if (offload->num_tiers > 0) {
        offload->origins[node.index] = 0;
    }
}

/* The block, of an indexed node, is to be stored in the tiers that it is not known to be in, if
 * there is room in the queue. Nothing without tiers. */
void offload_store_block(struct offload *offload, struct prefix_ref node, int32_t group,
                         int32_t block);

static inline void offload_store(struct offload *offload, struct prefix_ref node, int32_t group,
                                 int32_t block)
{
    if (offload->num_tiers > 0) {
        offload_store_block(offload, node, group, block);
    }
}

#endif
