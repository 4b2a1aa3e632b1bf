/* SPDX-License-Identifier: MIT
 *
 * prefix_key.h: the key of a block: 128 bits of hash over everything that determines its content
 * (prefix_content.h). Keys find candidates; they prove nothing. */
#ifndef PKV_PREFIX_KEY_H
#define PKV_PREFIX_KEY_H

#include <stdbool.h>
#include <stdint.h>

#define PREFIX_KEY_BITS 128

struct prefix_key {
    uint64_t low;
    uint64_t high;
};

/* True when a and b have the same bits wherever mask has ones. */
static inline bool prefix_key_matches(struct prefix_key a, struct prefix_key b,
                                      struct prefix_key mask)
{
    return (((a.low ^ b.low) & mask.low) | ((a.high ^ b.high) & mask.high)) == 0;
}

static inline bool prefix_key_equals(struct prefix_key a, struct prefix_key b)
{
    return a.low == b.low && a.high == b.high;
}

#endif
