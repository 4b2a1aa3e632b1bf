/* SPDX-License-Identifier: MIT
 *
 * Contents are made as an index makes them, one behind the other; only their keys are kept. */
#include "prefix/prefix_keys.h"

void prefix_keys(const struct prefix_content_writer *writer, const struct prefix_reach *reach,
                 const int32_t *tokens, const uint64_t *extra, int32_t num_blocks,
                 struct pkv_block_key *keys)
{
    const size_t block_size = (size_t)writer->block_size;
    size_t head_bytes = 0;
    int32_t change = 0;
    for (int32_t block = 0; block < num_blocks; block++) {
        const size_t first = (size_t)block * block_size;
        if (change < reach->count && reach->from[change] == block) {
            struct pkv_namespace_field begun[PKV_MAX_NAMESPACE_FIELDS];
            const int32_t num_begun = prefix_reach_at(reach, block, begun);
            head_bytes = prefix_content_head(writer, begun, num_begun);
            change++;
        }
        struct prefix_content content;
        prefix_content_make(writer, head_bytes, 0, block > 0 ? &keys[block - 1] : NULL,
                            tokens + first, extra != NULL ? extra + first : NULL, &content);
        keys[block] = content.key;
    }
}

enum pkv_status prefix_index_keys(struct prefix_index *index,
                                  const struct pkv_namespace_field *fields, int32_t num_fields,
                                  const int32_t *tokens, const uint64_t *extra, int32_t num_blocks,
                                  struct pkv_block_key *keys)
{
    struct prefix_reach reach;
    const enum pkv_status status =
        prefix_reach_of(fields, num_fields, index->nodes.block_size, &reach);
    if (status == PKV_OK) {
        prefix_keys(&index->writer, &reach, tokens, extra, num_blocks, keys);
    }
    return status;
}
