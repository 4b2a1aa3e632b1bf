/* SPDX-License-Identifier: MIT
 *
 * prefix_keys.h: the keys of a prompt's blocks, which need no nodes. */
#ifndef PKV_PREFIX_KEYS_H
#define PKV_PREFIX_KEYS_H

#include "prefix/prefix_content.h"
#include "prefix/prefix_index.h"
#include "prefix/prefix_reach.h"

/* Keys of the first num_blocks full blocks of tokens; extra may be NULL. O(tokens). */
void prefix_keys(const struct prefix_content_writer *writer, const struct prefix_reach *reach,
                 const int32_t *tokens, const uint64_t *extra, int32_t num_blocks,
                 struct pkv_block_key *keys);

/* The same as an index would have them, whether it has them or not, for a sequence with these
 * fields, which were checked. PKV_INVALID_ARGUMENT: a tag appears twice. */
enum pkv_status prefix_index_keys(struct prefix_index *index,
                                  const struct pkv_namespace_field *fields, int32_t num_fields,
                                  const int32_t *tokens, const uint64_t *extra, int32_t num_blocks,
                                  struct pkv_block_key *keys);

#endif
