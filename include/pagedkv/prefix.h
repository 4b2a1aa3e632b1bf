/* SPDX-License-Identifier: MIT
 *
 * pagedkv/prefix.h: namespaces, pins, quotas and flushes of the prefix cache. Without
 * config.prefix_cache the calls below answer PKV_UNSUPPORTED. All lock inside; any thread. */
#ifndef PAGEDKV_PREFIX_H
#define PAGEDKV_PREFIX_H

#include "pagedkv/base.h"
#include "pagedkv/cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A block's key: the same content under the same fingerprint has the same key everywhere. */
struct pkv_block_key {
    uint64_t low;
    uint64_t high;
};

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

#ifdef __cplusplus
}
#endif

#endif
