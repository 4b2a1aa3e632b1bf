/* SPDX-License-Identifier: MIT
 *
 * cache.h: the cache: what it is composed of, and its mutex. The runtime composes pool, pages,
 * slots, prefix index and attention and owns none of their algorithms; what it adds is which
 * sequence holds which block, and until when. Its files from bottom to top; each uses only those
 * above it in this list:
 *
 *   handle          the bits of handles
 *   config          what follows from a configuration (config_check: the one place that judges it)
 *   counters        what is counted where it happens
 *   block           the blocks of a group: take, share, drop, may a block be written in place
 *   promise         how many blocks must stay free for sequences that were admitted
 *   seq_table       the block tables of a group: extend, cut, reclaim, what is resident
 *   seq_tokens      the tokens that sequences record
 *   sequence        the records of sequences (seq_reuse: what one has published)
 *   step            the state of the one step
 *   state_group, state_list, state_step: state groups; the states that a sequence has; what the
 *                   step takes of them
 *   group, layer    composed of the above
 *   shortage        the verdict on what is wanted: it fits, not now, or never
 *   reservation     what the step takes for one row in one group
 *   events          the ring of what became cached and what ceased to be
 *   pin             the records of pinned prefixes
 *   wait            the threads that wait for room
 *   swap_area       the memory that sequences are swapped out to
 *   store_queue, ticket, tier_known, offload: tiers: what is to be stored, what is prefetched, what
 *                   is known of them
 *   reuse           the prefix index over the groups (fingerprint: what enters every key)
 *   cache           this file
 *
 *   namespace       the namespaces that a sequence joins
 *   match           the cached prefix that a prompt begins with
 *   state_publish   states in the prefix index
 *   publish         full blocks enter the index; a matched prefix is adopted; cut and fork
 *   quota           how many blocks the sequences of a namespace hold
 *   swap            the cells of one sequence, copied to the swap area and back
 *   resident        the lengths that a sequence can be cut to or forked at
 *   seq_options     a caller's options of a sequence
 *   label           the label of its metrics
 *   seq_life        a sequence is claimed and released with all that it holds
 *   admission       what admission and its dry run, the probe, both decide
 *   save_geometry, save_options, save_payload, save_states: what a saved file says of cache and
 *                   sequence
 *   load_plan       a saved file, read and verified
 *   transfer, gather, prefetch, tier_poll: what workers do without the mutex, what they do next,
 *                   how that takes effect
 *   batch, step_row, step_plan, step_select, step_layer: the parts of a step (see step.h)
 *
 *   cache_size, cache_create, cache_info, sequence_api, seq_info, fork, truncate, admit, wait_free,
 *   swap_out, swap_in, probe, pin_api, quota_api, events_api, priority, flush, visit, keys, stats,
 *   metrics, check, tier_work, tier_api, step_begin, step_end, .., save, load: the public calls
 *
 * The mutex guards everything not said to be constant after create. What an open step reads while
 * it is not held (attend) does not change until commit or abort: the step's own arrays, the tables
 * of its sequences, and the blocks they hold. */
#ifndef PKV_RUNTIME_CACHE_H
#define PKV_RUNTIME_CACHE_H

#include <pthread.h>

#include "base/error.h"
#include "runtime/layer.h"
#include "runtime/offload.h"
#include "runtime/pin.h"
#include "runtime/reuse.h"
#include "runtime/state_step.h"
#include "runtime/swap_area.h"
#include "runtime/wait.h"

struct pkv_cache {
    /* constant after create */
    struct mem mem;
    struct pkv_cache_config config; /* as in force; its arrays are the two below */
    struct pkv_group_config *group_configs;
    struct pkv_layer_config *layer_configs;
    char *label;            /* of its metrics, or NULL */
    int64_t rope_positions; /* every position below has its row in every layer with rope */
    struct pkv_block_key fingerprint;
    struct group *groups;       /* [config.num_groups], which counts attention groups alone */
    struct state_group *states; /* [num_states], behind them in the caller's numbers */
    int32_t num_states;
    struct layer *layers;
    pkv_workspace *workspace; /* used by begin and by the open step's attend, never both */
    pkv_plan *selected_plan;  /* likewise: of the last layer that read selected blocks */
    void *arrays;             /* the one allocation that all arrays but tables are cut from */
    size_t array_bytes;
    bool has_mutex;
    pthread_mutex_t mutex;
    pthread_mutex_t gate; /* held by the one thread that waits for the mutex next */

    /* guarded by the mutex */
    bool is_closed;
    uint64_t batch_stamp;
    struct seq_records seqs;
    struct step step;
    struct block_context block_context;
    struct counters counters;
    struct reuse reuse;
    struct swap_area swap;
    struct pin_records pins;
    struct events events;
    struct offload offload;
    struct wait_record *first_wait;
    struct block_tally *tallies; /* scratch of a check: one a block of the largest group */
};

/* Attention groups and state groups together. */
static inline int32_t cache_num_groups(const pkv_cache *cache)
{
    return cache->config.num_groups + cache->num_states;
}

/* The blocks of group g of all of them; their pool is NULL in a continuous one. */
static inline struct block_set *cache_blocks(pkv_cache *cache, int32_t g)
{
    return g < cache->config.num_groups ? &cache->groups[g].blocks
                                        : &cache->states[g - cache->config.num_groups].blocks;
}

/* Waits behind the threads that wait already. */
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
    if (cache->first_wait != NULL) {
        wait_wake(cache, cache->first_wait);
    }
    pthread_mutex_unlock(&cache->mutex);
}

/* Lets waiting threads go first, between two slices of a long walk. To unlock and lock again would
 * not do: this thread would have the mutex again before a waiting one wakes up. */
static inline void cache_yield(pkv_cache *cache)
{
    cache_unlock(cache);
    cache_queue(cache);
}

static inline bool cache_has_reuse(const pkv_cache *cache)
{
    return cache->reuse.index != NULL;
}

/* PKV_INVALID_ARGUMENT for no cache, PKV_UNSUPPORTED for one without a prefix cache. Needs no
 * mutex. */
static inline enum pkv_status cache_check_reuse(const pkv_cache *cache)
{
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    return cache_has_reuse(cache)
               ? PKV_OK
               : refuse(PKV_UNSUPPORTED, "the cache was created without prefix_cache");
}

/* PKV_INVALID_ARGUMENT for no cache, PKV_UNSUPPORTED for one without tiers. Likewise. */
static inline enum pkv_status cache_check_tiers(const pkv_cache *cache)
{
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    return cache->offload.num_tiers > 0
               ? PKV_OK
               : refuse(PKV_UNSUPPORTED, "the cache was created without tiers");
}

#endif
