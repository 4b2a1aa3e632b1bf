/* SPDX-License-Identifier: MIT
 *
 * prefix_key.h: comparing the keys of blocks: 128 bits of hash over everything that determines the
 * content of a block (prefix_content.h). Keys find candidates; they prove nothing. */
#ifndef PKV_PREFIX_KEY_H
#define PKV_PREFIX_KEY_H

#include <stdbool.h>

#include "pagedkv/base.h"

#define PREFIX_KEY_BITS 128

/* True when a and b have the same bits wherever mask has ones. */
static inline bool prefix_key_matches(struct pkv_block_key a, struct pkv_block_key b,
                                      struct pkv_block_key mask)
{
    return (((a.low ^ b.low) & mask.low) | ((a.high ^ b.high) & mask.high)) == 0;
}

static inline bool prefix_key_equals(struct pkv_block_key a, struct pkv_block_key b)
{
    return a.low == b.low && a.high == b.high;
}

#endif
