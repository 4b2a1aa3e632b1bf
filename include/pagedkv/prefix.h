/* SPDX-License-Identifier: MIT
 *
 * pagedkv/prefix.h: control over the prefix cache of a managed cache: pins that keep a prefix from
 * eviction, quotas and flushes by namespace field, and the keys by which blocks are known outside
 * (struct pkv_block_key, base.h). Adoption of cached prefixes itself is part of pkv_seq_admit
 * (cache.h), publication part of pkv_step_commit (step.h).
 *
 *     field = {.tag = TENANT, .bytes = "acme", .length = 4}
 *     pkv_namespace_quota(cache, &field, 4096)                     acme holds at most 4096 blocks
 *     pkv_prefix_pin(cache, &options, &prompt, ttl_ns, now_ns, &pin, &num_pinned)
 *     pkv_prefix_refresh(cache, pin, ttl_ns, now_ns)               it was used: keep it longer
 *     pkv_prefix_unpin(cache, pin)
 *     pkv_prefix_set_priority(cache, &options, &prompt, 0, n, PKV_PRIORITY_EVICT_FIRST, NULL)
 *     pkv_namespace_flush(cache, &field, &report)                  acme's cached text is gone
 *     pkv_cache_reset(cache, false, &report)                       new weights: nothing is kept
 *
 * Time. Pins end by a clock that the caller brings: now_ns of pkv_batch and of the calls here, in
 * nanoseconds from any origin. Nothing ends between such calls.
 *
 * Without config.prefix_cache every call below answers PKV_UNSUPPORTED.
 *
 * Threads. Any thread, at any time; the cache locks inside. */
#ifndef PAGEDKV_PREFIX_H
#define PAGEDKV_PREFIX_H

#include "pagedkv/base.h"
#include "pagedkv/cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- keys ---------------------------------------------------------------------------------- */

/* Computes the keys by which a cache knows the blocks of a prompt, without a cache: for a router,
 * which compares them with the events of many caches (metrics.h). They are those of every cache
 * with this configuration, in any process and on any machine. docs/keys.md has the format byte by
 * byte, and how a hit follows from keys and events.
 *
 * config is that of the caches, with prefix_cache; of it only groups (but not num_blocks), the
 * layers' group and shares_kv, dtype, max_seq_len (which limits windows) and the fingerprint enter
 * keys. options (may be NULL) are those of the sequence: its namespace fields, and its kept_prefix
 * where windows are. prompt may be longer than max_seq_len.
 *
 * keys [max_keys] receives one key for each full block of the prompt from the first on, and *count
 * how many: prompt->num_tokens / block_size, or max_keys (>= 0) when that is less; block_size is
 * the smallest of the groups, and the block of a larger one has the key that ends it. A cache never
 * adopts the last token of a prompt, so a block that ends with it is found by longer prompts only.
 *
 * Returns PKV_OK; PKV_UNSUPPORTED without prefix_cache or beside a continuous
 * group; PKV_NO_MEMORY when config->hooks have none
 * for the bytes of one block; else the statuses of pkv_cache_size and pkv_seq_create. Nothing is
 * written but on PKV_OK. Any thread, and no lock; O(num_tokens + groups + layers). */
PKV_API PKV_NODISCARD enum pkv_status pkv_prefix_keys(const struct pkv_cache_config *config,
                                                      const struct pkv_seq_options *options,
                                                      const struct pkv_prompt *prompt,
                                                      int32_t max_keys, struct pkv_block_key *keys,
                                                      int32_t *count);

/* ---- pins ---------------------------------------------------------------------------------- */

/* A pinned prefix. A zeroed handle is stale in every cache. */
typedef struct pkv_pin {
    uint64_t id;
} pkv_pin;

/* Pins a cached prefix: its blocks stay in memory, and so can be adopted, until the pin ends. For a
 * system prompt that must not be evicted between two requests.
 *
 * What is pinned is the longest cached prefix of the prompt, in whole blocks, in the namespace of
 * options (may be NULL), and less of it where config.max_pinned_blocks would be passed in a group,
 * or where that would hold blocks that admitted sequences were promised.
 * *num_pinned is its length in tokens. It is 0, with a zeroed *pin, when nothing could be pinned:
 * the call does not compute anything, so run the prompt first. Several pins may hold one block.
 *
 * The pin ends at now_ns + ttl_ns; ttl_ns 0 = only by pkv_prefix_unpin, a flush or a reset. Pins
 * whose time is up at now_ns end first.
 *
 * Returns PKV_OK, also when nothing was pinned; PKV_NO_BLOCKS when max_pinned_blocks pins exist;
 * PKV_INVALID_ARGUMENT; PKV_UNSUPPORTED. O(num_tokens + pins). */
PKV_API PKV_NODISCARD enum pkv_status pkv_prefix_pin(pkv_cache *cache,
                                                     const struct pkv_seq_options *options,
                                                     const struct pkv_prompt *prompt,
                                                     uint64_t ttl_ns, uint64_t now_ns, pkv_pin *pin,
                                                     int32_t *num_pinned);

/* Ends a pin. Its blocks stay cached as if a sequence had released them now.
 *
 * Returns PKV_OK; PKV_STALE_HANDLE when the pin has ended before; PKV_UNSUPPORTED. O(its blocks).
 */
PKV_API enum pkv_status pkv_prefix_unpin(pkv_cache *cache, pkv_pin pin);

/* Gives a pin a new end, now_ns + ttl_ns (ttl_ns 0 = only by pkv_prefix_unpin): for a server that
 * keeps what is in use. Pins whose time is up at now_ns end first, this one too.
 *
 * Returns PKV_OK; PKV_STALE_HANDLE when the pin has ended; PKV_UNSUPPORTED. O(pins), and the blocks
 * of those that end. */
PKV_API PKV_NODISCARD enum pkv_status pkv_prefix_refresh(pkv_cache *cache, pkv_pin pin,
                                                         uint64_t ttl_ns, uint64_t now_ns);

/* Ends every pin whose time is up at now_ns, as pkv_step_begin and the calls above do when they
 * bring a clock. UINT64_MAX ends all pins, 0 none.
 *
 * *num_ended receives how many; it may be NULL.
 *
 * Returns PKV_OK; PKV_UNSUPPORTED. O(pins + blocks of those that end). */
PKV_API PKV_NODISCARD enum pkv_status pkv_prefix_expire(pkv_cache *cache, uint64_t now_ns,
                                                        int32_t *num_ended);

/* ---- priorities ---------------------------------------------------------------------------- */

/* Below every priority of struct pkv_seq_options: evicted first. */
#define PKV_PRIORITY_EVICT_FIRST (-1)

/* Changes the priority of cached blocks: to let go of a finished branch, or to keep a system prompt
 * longer than the rest of the requests that computed it.
 *
 * Of the cached blocks that prompt begins with, in the namespace of options (may be NULL; its
 * priority is not read), those change that lie within tokens [from_token, to_token), 0 <=
 * from_token <= to_token <= prompt->num_tokens. priority is PKV_PRIORITY_EVICT_FIRST or in [0,
 * PKV_NUM_PRIORITIES), and lasts until a request with a higher one, or any for
 * PKV_PRIORITY_EVICT_FIRST, computes or adopts the same text.
 *
 * A block is never evicted before what goes on from it, so a higher priority counts for the blocks
 * before from_token too, and a lower one only as far as no block that follows has a higher one and
 * no running sequence that has computed or adopted it claims a higher one: what others share is as
 * before. Where a block becomes of a priority above 0, those before it keep theirs without end
 * (retention_ns of struct pkv_seq_options counts no more for them).
 *
 * *num_changed receives the tokens within the range whose priority has changed; it may be NULL.
 *
 * Returns PKV_OK, also when nothing is cached; PKV_INVALID_ARGUMENT; PKV_UNSUPPORTED.
 * O(num_tokens + max_seqs). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_prefix_set_priority(pkv_cache *cache, const struct pkv_seq_options *options,
                        const struct pkv_prompt *prompt, int32_t from_token, int32_t to_token,
                        int32_t priority, int32_t *num_changed);

/* ---- quotas -------------------------------------------------------------------------------- */

/* Limits the blocks that sequences of one namespace field may hold together, over all groups. A
 * block that several of them share counts once for each.
 *
 * field: tag and bytes name it; begins_at is not read. num_blocks >= 0; 0 takes the limit away.
 * What an admission promises counts from then on, held or not. pkv_seq_admit and pkv_step_begin
 * keep to the limit, but a step within a promise is never refused by it. pkv_seq_fork may pass it,
 * because it shares blocks that exist, and a limit below what is held already takes nothing away.
 *
 * Returns PKV_OK; PKV_NO_BLOCKS when max_namespaces are in use; PKV_INVALID_ARGUMENT;
 * PKV_UNSUPPORTED. O(1). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_namespace_quota(pkv_cache *cache, const struct pkv_namespace_field *field, int64_t num_blocks);

/* The blocks of one namespace field. */
struct pkv_field_usage {
    size_t size;
    /* Blocks in the tables of its sequences, or promised to them if more, in all groups: what its
     * quota limits. */
    int64_t held;
    /* 0 = none. */
    int64_t quota;
    /* Indexed blocks under the field, held or free. */
    int64_t cached;
};

/* Counts the blocks of one namespace field.
 *
 * field: tag and bytes name it; begins_at is not read.
 *
 * Returns PKV_OK and fills *usage; PKV_NOT_FOUND for a field that no sequence, cached block or
 * quota names; PKV_INVALID_ARGUMENT; PKV_UNSUPPORTED. O(1). */
PKV_API PKV_NODISCARD enum pkv_status pkv_namespace_usage(pkv_cache *cache,
                                                          const struct pkv_namespace_field *field,
                                                          struct pkv_field_usage *usage);

/* ---- flush and reset ----------------------------------------------------------------------- */

/* What a flush or a reset met, in blocks of all groups. */
struct pkv_flush_report {
    size_t size;
    /* Blocks of the whole cache that sequences and pins hold; pins that the flush has ended do not
     * count. */
    int32_t held;
    /* Of the flushed blocks, those that were held: their sequences go on, but nobody finds them. */
    int32_t orphaned;
    /* Of the flushed blocks, those that were free: they hold nothing now. */
    int32_t removed;
};

/* Flushes one namespace field: nothing cached under it is found any more, from the first moment of
 * the call on. Sequences of the field that exist go on, but what they compute is not indexed; pins
 * on it end. Until the call returns, its free blocks still count as cached in the counters.
 *
 * field: tag and bytes name it; begins_at is not read. *report may be NULL; it counts each block as
 * it is when the walk over the index comes to it.
 *
 * Returns PKV_OK, also for a field that nothing names; PKV_INVALID_ARGUMENT; PKV_UNSUPPORTED.
 * O(nodes + pins), with the mutex released in between so that steps go on. */
PKV_API PKV_NODISCARD enum pkv_status pkv_namespace_flush(pkv_cache *cache,
                                                          const struct pkv_namespace_field *field,
                                                          struct pkv_flush_report *report);

/* Flushes everything cached, in all namespaces, as after new weights were loaded. Sequences that
 * exist go on, but what they compute is not indexed; pins end.
 *
 * Without `force` nothing may be held: finish the requests and unpin first. *report may be NULL; it
 * is exact as long as no other thread flushes meanwhile.
 *
 * Returns PKV_OK; PKV_BUSY without `force` while sequences or pins hold blocks, with only
 * report->held filled and nothing changed; PKV_INVALID_ARGUMENT; PKV_UNSUPPORTED. O(nodes + pins),
 * with the mutex released in between. */
PKV_API PKV_NODISCARD enum pkv_status pkv_cache_reset(pkv_cache *cache, bool force,
                                                      struct pkv_flush_report *report);

#ifdef __cplusplus
}
#endif

#endif
