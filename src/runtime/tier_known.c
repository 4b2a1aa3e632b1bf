/* SPDX-License-Identifier: MIT
 *
 * A hash that is equal by chance makes a hint wrong, which costs a question that finds nothing. */
#include "runtime/tier_known.h"

#include <string.h>

#define TIER_BITS (((uint64_t)1 << PKV_MAX_TIERS) - 1)

void tier_known_carve(struct tier_known *known, int64_t num_blocks, struct carver *carver)
{
    uint32_t num_sets = 1;
    while ((int64_t)num_sets * TIER_KNOWN_WAYS < num_blocks && num_sets < (uint32_t)1 << 26) {
        num_sets *= 2;
    }
    known->num_sets = num_sets;
    known->entries = carve(carver, (size_t)num_sets * TIER_KNOWN_WAYS, sizeof *known->entries);
}

static uint64_t hash_of(struct pkv_block_key key, int32_t group)
{
    uint64_t mixed = key.low ^ (key.high + (uint64_t)group) * 0x9e3779b97f4a7c15u;
    mixed ^= mixed >> 32;
    return mixed * 0xbf58476d1ce4e5b9u;
}

/* The set of a hash, and the place of its entry in it; TIER_KNOWN_WAYS when there is none. */
static uint64_t *set_of(const struct tier_known *known, uint64_t hash, int32_t *way)
{
    uint64_t *set =
        known->entries + (size_t)((uint32_t)(hash >> 32) & (known->num_sets - 1)) * TIER_KNOWN_WAYS;
    *way = 0;
    while (*way < TIER_KNOWN_WAYS && (set[*way] == 0 || ((set[*way] ^ hash) & ~TIER_BITS) != 0)) {
        ++*way;
    }
    return set;
}

uint32_t tier_known_get(const struct tier_known *known, struct pkv_block_key key, int32_t group)
{
    int32_t way = 0;
    const uint64_t *set = set_of(known, hash_of(key, group), &way);
    return way < TIER_KNOWN_WAYS ? (uint32_t)(set[way] & TIER_BITS) : 0;
}

void tier_known_add(struct tier_known *known, struct pkv_block_key key, int32_t group,
                    uint32_t tiers)
{
    int32_t way = 0;
    const uint64_t hash = hash_of(key, group);
    uint64_t *set = set_of(known, hash, &way);
    const uint64_t before = way < TIER_KNOWN_WAYS ? set[way] : hash & ~TIER_BITS;
    const int32_t moved = way < TIER_KNOWN_WAYS ? way : TIER_KNOWN_WAYS - 1;
    memmove(set + 1, set, (size_t)moved * sizeof *set);
    set[0] = before | (tiers & TIER_BITS);
}

void tier_known_remove(struct tier_known *known, struct pkv_block_key key, int32_t group,
                       uint32_t tiers)
{
    int32_t way = 0;
    uint64_t *set = set_of(known, hash_of(key, group), &way);
    if (way < TIER_KNOWN_WAYS) {
        set[way] &= ~((uint64_t)tiers & TIER_BITS);
        set[way] = (set[way] & TIER_BITS) == 0 ? 0 : set[way];
    }
}

void tier_known_clear(struct tier_known *known, uint32_t tiers)
{
    const size_t count = (size_t)known->num_sets * TIER_KNOWN_WAYS;
    for (size_t i = 0; i < count; i++) {
        known->entries[i] &= ~((uint64_t)tiers & TIER_BITS);
        known->entries[i] = (known->entries[i] & TIER_BITS) == 0 ? 0 : known->entries[i];
    }
}
