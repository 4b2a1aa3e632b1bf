/* SPDX-License-Identifier: MIT
 *
 * Writing the string of a block and hashing it. O(block_size), no memory but the writer's buffer.
 */
#include "prefix/prefix_content.h"

#include <string.h>

#include "base/hash.h"
#include "base/little_endian.h"

#define FIELD_BYTES (4 + 4 + PKV_MAX_NAMESPACE_BYTES)
#define HEAD_BYTES (16 + 4 + 4 + PKV_MAX_NAMESPACE_FIELDS * FIELD_BYTES)
#define LINK_BYTES (4 + 4 + 16)

size_t prefix_content_bytes(int32_t block_size)
{
    return HEAD_BYTES + LINK_BYTES + (size_t)block_size * (sizeof(int32_t) + sizeof(uint64_t));
}

static unsigned char *put_key(unsigned char *to, struct pkv_block_key key)
{
    return put_u64(put_u64(to, key.low), key.high);
}

size_t prefix_content_head(const struct prefix_content_writer *writer,
                           const struct pkv_namespace_field *fields, int32_t num_fields)
{
    unsigned char *to = put_key(writer->buffer, writer->fingerprint);
    to = put_u32(to, (uint32_t)writer->block_size);
    to = put_u32(to, (uint32_t)num_fields);
    for (int32_t i = 0; i < num_fields; i++) {
        to = put_u32(to, (uint32_t)fields[i].tag);
        to = put_u32(to, (uint32_t)fields[i].length);
        if (fields[i].length > 0) {
            memcpy(to, fields[i].bytes, (size_t)fields[i].length);
        }
        to += fields[i].length;
    }
    return (size_t)(to - writer->buffer);
}

/* extra, or NULL when it is all zeros. */
static const uint64_t *extra_of(const uint64_t *extra, int32_t count)
{
    uint64_t any = 0;
    for (int32_t i = 0; extra != NULL && i < count; i++) {
        any |= extra[i];
    }
    return any == 0 ? NULL : extra;
}

void prefix_content_make(const struct prefix_content_writer *writer, size_t head_bytes,
                         int32_t namespace_id, const struct pkv_block_key *above,
                         const int32_t *tokens, const uint64_t *extra,
                         struct prefix_content *content)
{
    const int32_t block_size = writer->block_size;
    unsigned char *to = writer->buffer + head_bytes;
    extra = extra_of(extra, block_size);
    to = put_u64(to, (uint64_t)(above != NULL) | (uint64_t)(extra != NULL) << 32);
    to = put_key(to, above != NULL ? *above : (struct pkv_block_key){0, 0});
    to = put_i32s(to, tokens, (size_t)block_size);
    for (int32_t i = 0; extra != NULL && i < block_size; i++) {
        to = put_u64(to, extra[i]);
    }
    content->parent = PREFIX_ROOT;
    content->namespace_id = namespace_id;
    content->tokens = tokens;
    content->extra = extra;
    content->key = hash_128(writer->buffer, (size_t)(to - writer->buffer));
}
