/* SPDX-License-Identifier: MIT
 *
 * pagedkv/offload.h: a managed cache (cache.h) and its tiers (tier.h): full blocks of the prefix
 * cache are stored in tiers, and come back after a restart, or in another process that has the same
 * tier. So a prompt that was computed once is not computed again.
 *
 *     config.tiers = {disk, redis}, config.num_tiers = 2, config.prefix_cache = true
 *     config.num_tier_threads = 1                                 or a thread of the server's own:
 *         while (pkv_tier_work(cache, UINT64_MAX, NULL) == PKV_OK) continue;
 *
 *     pkv_tier_prefetch(cache, &options, &prompt, max_cached, now_ns, &ticket)   a request arrives
 *     between steps
 *         pkv_tier_poll(cache, NULL)
 *         pkv_ticket_describe(cache, ticket, &info)
 *         if info.state is PKV_TICKET_DONE, or it takes too long:
 *             pkv_seq_admit(...)                                  adopts what has come
 *             pkv_ticket_close(cache, ticket)
 *
 * Stores. Each block that a commit indexes is stored in every tier behind the commit
 * (config.no_write_behind: only what pkv_tier_store names). It is held until it is stored; at most
 * config.max_store_blocks of a group are, and what comes while so many are waiting is not stored,
 * and counted. A block that is adopted later, and is not known to be in a tier, is stored then.
 *
 * Prefetches. A ticket asks the tiers which of the blocks behind the cached prefix they have, takes
 * blocks for them, and loads them; then they are indexed as if they had been computed, and held
 * until the ticket is closed. Nothing is found before all of it has come and was checked: every
 * stored block carries its fingerprint, namespace, tokens, extras and checksums, and all are
 * compared. A value that is damaged is removed, and a miss; so is everything that a tier cannot
 * give. Where cache and tiers differ in which groups they have, a hit needs each group's part from
 * one of them.
 *
 * Effects. Reading and writing tiers is done by pkv_tier_work alone, on the threads that call it or
 * on those of config.num_tier_threads, without the mutex. What was done takes effect in
 * pkv_tier_poll, and in the calls that say so: so hits, evictions and block ids follow from the
 * order of the calls, as everything in a cache does. Commit, begin and attend never wait for a
 * tier. Blocks that are held for a tier come free in these calls alone, too: a thread that waits
 * for room (pkv_wait_free) relies on another one that polls.
 *
 * Flushes. pkv_namespace_flush and pkv_cache_reset (prefix.h) reach the tiers too: each raises a
 * counter there, and values that were stored under an older count are void, for other processes
 * as well. They take effect in this cache at once; in a tier when pkv_tier_work has come to it, and
 * until then this cache reads nothing from that tier. A process that ends before, or a server that
 * has lost its counters, has not flushed.
 *
 * Threads. Any thread, at any time; the cache locks inside. */
#ifndef PAGEDKV_OFFLOAD_H
#define PAGEDKV_OFFLOAD_H

#include "pagedkv/base.h"
#include "pagedkv/cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A prefetch or store under way. A zeroed handle is stale in every cache. */
typedef struct pkv_ticket {
    uint64_t id;
} pkv_ticket;

enum pkv_ticket_state {
    /* Asking the tiers which blocks they have. */
    PKV_TICKET_FINDING = 0,
    /* Reading them. */
    PKV_TICKET_LOADING = 1,
    /* Writing blocks. */
    PKV_TICKET_STORING = 2,
    /* Nothing is left to do; what it holds is held until it is closed. */
    PKV_TICKET_DONE = 3
};

/* A ticket as it is at the moment. */
struct pkv_ticket_info {
    size_t size;
    enum pkv_ticket_state state;
    /* PKV_OK, or the first thing that went wrong, which never makes an admission fail: PKV_CORRUPT
     * for a damaged value, PKV_IO for a tier that does not answer, PKV_NO_BLOCKS where there were
     * no blocks for all that the tiers have. */
    enum pkv_status status;
    /* A prefetch that is done: tokens of the prompt that are in the cache and held, whole blocks.
     */
    int32_t num_cached;
    /* Of them, those that the ticket has loaded, in all and from each tier. */
    int32_t num_loaded;
    int32_t tier_loaded[PKV_MAX_TIERS];
    /* A store: blocks of all groups that are in every tier now, and that are not yet. */
    int32_t num_stored;
    int32_t num_left;
    /* The clock that it was begun with. */
    uint64_t begun_ns;
};

/* Begins to bring a prompt's blocks from the tiers into the cache.
 *
 * options (may be NULL), prompt and max_cached are as in pkv_cache_probe: what is prefetched is
 * what a sequence with these options could adopt, whole blocks. now_ns is the caller's clock, by
 * which pkv_ticket_list finds old tickets; 0 = not told.
 *
 * Returns PKV_OK and the ticket in *ticket, which the caller closes; PKV_NO_BLOCKS when max_tickets
 * tickets are open, or max_namespaces in use; PKV_UNSUPPORTED for a cache without tiers; PKV_BUSY
 * when the cache is closed; PKV_INVALID_ARGUMENT. O(num_tokens). */
PKV_API PKV_NODISCARD enum pkv_status pkv_tier_prefetch(pkv_cache *cache,
                                                        const struct pkv_seq_options *options,
                                                        const struct pkv_prompt *prompt,
                                                        int32_t max_cached, uint64_t now_ns,
                                                        pkv_ticket *ticket);

/* Begins to store the cached prefix of a prompt in all tiers, whether it is known to be there or
 * not: all of its blocks that a sequence with these options would adopt, or none. They are held
 * until they are stored. Blocks that wait to be stored since a commit are counted as this ticket's;
 * those of another open ticket are left to that one.
 *
 * options, prompt and now_ns are as in pkv_tier_prefetch.
 *
 * Returns PKV_OK and the ticket in *ticket, which the caller closes; closing it sooner does not
 * stop the store. PKV_NO_BLOCKS when max_tickets tickets are open, when so many blocks are waiting
 * that max_store_blocks would be passed, or when holding them would take blocks that admitted
 * sequences were promised; PKV_NOT_FOUND when nothing of the prompt is cached; PKV_UNSUPPORTED for
 * a cache without tiers; PKV_BUSY when the cache is closed; PKV_INVALID_ARGUMENT. O(num_tokens). */
PKV_API PKV_NODISCARD enum pkv_status pkv_tier_store(pkv_cache *cache,
                                                     const struct pkv_seq_options *options,
                                                     const struct pkv_prompt *prompt,
                                                     uint64_t now_ns, pkv_ticket *ticket);

/* Lets what pkv_tier_work has done take effect: stored blocks are released, prefetches that know
 * what there is take blocks, and those that have it are indexed. For between steps.
 *
 * *num_done (may be NULL) receives how many tickets are done since the last call.
 *
 * Returns PKV_OK, also when there was nothing; PKV_UNSUPPORTED for a cache without tiers. Takes no
 * memory, does not wait; O(open tickets + blocks that change + tokens of prefetches that go on). */
PKV_API enum pkv_status pkv_tier_poll(pkv_cache *cache, int32_t *num_done);

/* Reads and writes: does one piece of what is waiting, some 16 blocks, on the calling thread. When
 * nothing is waiting, it waits for it up to timeout_ns nanoseconds of the system's monotonic clock
 * (0 = not at all, UINT64_MAX = as long as it takes), and does it. Prefetches come first.
 *
 * *num_moved (may be NULL) receives the blocks that were looked up, read or written, 0 when there
 * was nothing.
 *
 * Returns PKV_OK; PKV_BUSY when the cache is closed and nothing is left to do, which ends the loop
 * of a thread (a flush that a tier has refused is left to pkv_tier_flush); PKV_NO_MEMORY, with the
 * work still waiting; PKV_UNSUPPORTED. Several threads may call it at once. O(blocks moved) and the
 * tiers' time. */
PKV_API enum pkv_status pkv_tier_work(pkv_cache *cache, uint64_t timeout_ns, int32_t *num_moved);

/* Works and polls until nothing is left: every store is in its tiers or has failed, every prefetch
 * is done, every flush has reached every tier, which is tried again as long as one does not answer.
 * For the end of a process, behind pkv_cache_close.
 *
 * timeout_ns bounds it, but not the call to a tier that it is in, which has a bound of its own;
 * UINT64_MAX = as long as it takes. *num_left (may be NULL) receives the blocks that are not stored
 * when the time is over, and flushes that have not reached a tier.
 *
 * Returns PKV_OK when nothing is left; PKV_BUSY when the time is over; PKV_NO_MEMORY;
 * PKV_UNSUPPORTED. */
PKV_API enum pkv_status pkv_tier_flush(pkv_cache *cache, uint64_t timeout_ns, int32_t *num_left);

/* Describes a ticket, after letting what was done take effect as pkv_tier_poll does.
 *
 * Returns PKV_OK and fills *info; PKV_STALE_HANDLE; PKV_UNSUPPORTED; PKV_INVALID_ARGUMENT. The cost
 * of pkv_tier_poll. */
PKV_API PKV_NODISCARD enum pkv_status pkv_ticket_describe(pkv_cache *cache, pkv_ticket ticket,
                                                          struct pkv_ticket_info *info);

/* Waits until a ticket is done, and does the work itself where no other thread does.
 *
 * timeout_ns as in pkv_tier_flush. info (may be NULL) is as in pkv_ticket_describe.
 *
 * Returns PKV_OK when it is done, with *info filled; PKV_BUSY when the time is over;
 * PKV_STALE_HANDLE, also when it is closed meanwhile; PKV_NO_MEMORY; PKV_UNSUPPORTED;
 * PKV_INVALID_ARGUMENT. */
PKV_API PKV_NODISCARD enum pkv_status pkv_ticket_wait(pkv_cache *cache, pkv_ticket ticket,
                                                      uint64_t timeout_ns,
                                                      struct pkv_ticket_info *info);

/* Ends a ticket, done or not: after the admission that it was for, or when the request is gone.
 * What a prefetch holds is released, and stays cached if it is indexed; blocks that a thread is
 * reading into at the moment become free when it has ended and pkv_tier_poll is called.
 *
 * Returns PKV_OK; PKV_STALE_HANDLE; PKV_UNSUPPORTED. Takes no memory, does not wait; O(its blocks).
 */
PKV_API enum pkv_status pkv_ticket_close(pkv_cache *cache, pkv_ticket ticket);

/* Lists open tickets that were begun at or before a time, such as those whose request is gone.
 *
 * tickets [max_tickets] receives the first so many, max_tickets >= 0; *count is how many there are.
 *
 * Returns PKV_OK; PKV_UNSUPPORTED; PKV_INVALID_ARGUMENT. O(config.max_tickets). */
PKV_API PKV_NODISCARD enum pkv_status pkv_ticket_list(pkv_cache *cache, uint64_t begun_until_ns,
                                                      pkv_ticket *tickets, int32_t max_tickets,
                                                      int32_t *count);

/* What a cache has done with one of its tiers, counted from create on. Blocks are those of single
 * groups. */
struct pkv_tier_stats {
    size_t size;
    /* Written, and their bytes. */
    uint64_t stored_blocks;
    uint64_t stored_bytes;
    /* Not written, because the tier failed. */
    uint64_t failed_stores;
    /* Not written, because max_store_blocks blocks were waiting. The same for all tiers. */
    uint64_t skipped_stores;
    /* Read, checked, and their bytes. */
    uint64_t loaded_blocks;
    uint64_t loaded_bytes;
    /* Looked up, and not there; void because of a flush; of another content under the same key. */
    uint64_t missed_blocks;
    uint64_t void_blocks;
    uint64_t collisions;
    /* Not read, because the tier failed, or because the value was damaged, which was removed. */
    uint64_t failed_loads;
    uint64_t corrupt_blocks;
    /* Tokens that admissions have adopted from blocks that came from this tier, each time. */
    uint64_t hit_tokens;
    /* At the moment: blocks that wait to be stored, in all tiers, and open tickets. */
    int32_t waiting_stores;
    int32_t num_tickets;
};

/* Reads the counters of one tier. pkv_metrics_write (metrics.h) has the same as text.
 *
 * tier is its index in config.tiers.
 *
 * Returns PKV_OK and fills *stats; PKV_UNSUPPORTED for a cache without tiers; PKV_INVALID_ARGUMENT.
 * O(1). */
PKV_API PKV_NODISCARD enum pkv_status pkv_tier_read_stats(pkv_cache *cache, int32_t tier,
                                                          struct pkv_tier_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
