/* SPDX-License-Identifier: MIT
 *
 * prefix_content.h: the content of one block, and the key that it has. What is hashed, integers
 * little-endian:
 *
 *   | fingerprint 16 | block_size 4 | num_fields 4 | per field: tag 4, length 4, bytes |   the head
 *   | has_parent 4 | has_extra 4 | parent's key 16 | tokens 4 each | extras 8 each |
 *
 * Each field's length comes before its bytes, and the size of all that follows was told before, so
 * different contents are different strings. The parent's key makes the key of a block depend on
 * all blocks before it. */
#ifndef PKV_PREFIX_CONTENT_H
#define PKV_PREFIX_CONTENT_H

#include <stddef.h>

#include "prefix/prefix_key.h"
#include "prefix/prefix_ref.h"

struct prefix_content {
    struct prefix_ref parent;
    int32_t namespace_id;
    const int32_t *tokens; /* [block_size] */
    const uint64_t *extra; /* [block_size], NULL when it is all zeros */
    struct pkv_block_key key;
};

/* What writes the strings. The head is written once for a run of blocks of one namespace. */
struct prefix_content_writer {
    struct pkv_block_key fingerprint;
    int32_t block_size;
    unsigned char *buffer; /* [prefix_content_bytes(block_size)] */
};

size_t prefix_content_bytes(int32_t block_size);

/* Writes the head of a namespace, whose fields are in order of tag; its length. */
size_t prefix_content_head(const struct prefix_content_writer *writer,
                           const struct pkv_namespace_field *fields, int32_t num_fields);

/* Content of a block behind one with key *above, NULL for none, after the head of its namespace was
 * written with this length. extra may be NULL. The parent is the root: the caller sets it. */
void prefix_content_make(const struct prefix_content_writer *writer, size_t head_bytes,
                         int32_t namespace_id, const struct pkv_block_key *above,
                         const int32_t *tokens, const uint64_t *extra,
                         struct prefix_content *content);

#endif
