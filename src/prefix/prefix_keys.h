/* SPDX-License-Identifier: MIT
 *
 * prefix_keys.h: the keys of a prompt's blocks, without an index. */
#ifndef PKV_PREFIX_KEYS_H
#define PKV_PREFIX_KEYS_H

#include "prefix/prefix_content.h"
#include "prefix/prefix_reach.h"

/* Keys of the first num_blocks full blocks of tokens; extra may be NULL. O(tokens). */
void prefix_keys(const struct prefix_content_writer *writer, const struct prefix_reach *reach,
                 const int32_t *tokens, const uint64_t *extra, int32_t num_blocks,
                 struct pkv_block_key *keys);

#endif
