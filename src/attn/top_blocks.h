/* SPDX-License-Identifier: MIT
 *
 * top_blocks.h: the blocks with the best scores, in ascending order. */
#ifndef PKV_ATTN_TOP_BLOCKS_H
#define PKV_ATTN_TOP_BLOCKS_H

#include <stdint.h>

/* Writes the `most` best of blocks [0, count) to chosen, ascending, and returns how many they are:
 * fewer when count is. Of equal scores the lower block is better; a score of -inf is never chosen,
 * none is NaN. chosen has room for min(most, count). O(count * log most). */
int32_t top_blocks(const float *scores, int32_t count, int32_t most, int32_t *chosen);

#endif
