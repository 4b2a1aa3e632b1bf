/* SPDX-License-Identifier: MIT
 *
 * tier_known.h: which blocks are known to be in which tiers, so that a probe can tell without
 * asking them and nothing is stored twice. It is a hint: entries are hashes, the oldest of a set
 * are overwritten, and a tier loses values without a word. The mutex is held. O(1). */
#ifndef PKV_RUNTIME_TIER_KNOWN_H
#define PKV_RUNTIME_TIER_KNOWN_H

#include "base/carve.h"
#include "pagedkv/cache.h"

/* An entry is the upper bits of a hash of key and group, and in its lowest PKV_MAX_TIERS bits the
 * tiers; 0 = none. Sets of TIER_KNOWN_WAYS entries, the one used last first. */
#define TIER_KNOWN_WAYS 8

struct tier_known {
    uint64_t *entries; /* [num_sets][TIER_KNOWN_WAYS] */
    uint32_t num_sets; /* a power of two */
};

/* For about as many blocks as `num_blocks`. While counting, *known may be any memory. */
void tier_known_carve(struct tier_known *known, int64_t num_blocks, struct carver *carver);

/* Tiers that the block is known to be in: bit t for tier t. */
uint32_t tier_known_get(const struct tier_known *known, struct pkv_block_key key, int32_t group);

/* It is in these tiers too; it is not in these any more. */
void tier_known_add(struct tier_known *known, struct pkv_block_key key, int32_t group,
                    uint32_t tiers);
void tier_known_remove(struct tier_known *known, struct pkv_block_key key, int32_t group,
                       uint32_t tiers);

/* Nothing is known of these tiers any more. O(entries). */
void tier_known_clear(struct tier_known *known, uint32_t tiers);

#endif
