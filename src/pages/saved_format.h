/* SPDX-License-Identifier: MIT
 *
 * saved_format.h: the bytes of a saved sequence, as docs/format.md describes them: a header,
 * sections, and a checksum over all checksums.
 *
 *   header 64 | section header 32 | content | XXH3-64 8 | section header | .. | XXH3-64 8
 *
 * Integers are little-endian; the payload has the byte order of the machine, which the header
 * tells. Sections come in ascending order of (kind, index), each at most once. This module knows
 * no cache: what is in a section is its caller's matter. */
#ifndef PKV_PAGES_SAVED_FORMAT_H
#define PKV_PAGES_SAVED_FORMAT_H

#include <stddef.h>

#include "pagedkv/base.h"

#define SAVED_VERSION 1
#define SAVED_HEADER_BYTES 64
#define SAVED_SECTION_BYTES 32
#define SAVED_SUM_BYTES 8

/* The header of a later version may be longer; its checksum is its last 8 bytes in each. */
#define SAVED_MAX_HEADER_BYTES 1024

/* Buffers of a writer and a reader; and how much payload is moved before it is hashed, so that it
 * is still in the processor's cache. */
#define SAVED_BUFFER_BYTES 65536
#define SAVED_CHUNK_BYTES 262144

enum saved_kind {
    SAVED_SEQUENCE = 1,
    SAVED_NAMESPACE = 2,
    SAVED_GEOMETRY = 3,
    SAVED_BLOCKS = 4,
    SAVED_TOKENS = 5,
    SAVED_EXTRA = 6,
    SAVED_PAYLOAD = 7, /* index: the group */
    SAVED_STATE = 8    /* index: the group */
};

/* A reader that does not know a needed kind refuses the file; it skips others. */
#define SAVED_NEEDED 1u

struct saved_section {
    uint32_t kind;
    uint32_t flags;
    uint32_t index;
    uint64_t length; /* of the content, in bytes */
    uint64_t offset; /* of the content in the input; a reader's */
    uint64_t sum;    /* of the content; a reader's, once it was read */
};

/* The fields of a header. */
struct saved_header {
    uint32_t num_sections;
    uint64_t num_bytes; /* of everything, from the header to the last checksum */
};

/* For messages: "tokens". */
const char *saved_kind_name(uint32_t kind);

void saved_put_header(unsigned char bytes[SAVED_HEADER_BYTES], const struct saved_header *header);
void saved_put_section(unsigned char bytes[SAVED_SECTION_BYTES],
                       const struct saved_section *section);

/* Whether bytes [num_bytes], the beginning of an input, may be a header at all, and how long that
 * is. num_bytes >= 16. PKV_CORRUPT. */
enum pkv_status saved_header_length(const unsigned char *bytes, size_t *length);

/* A whole header of that length. PKV_CORRUPT, PKV_UNSUPPORTED. */
enum pkv_status saved_get_header(const unsigned char *bytes, size_t length,
                                 struct saved_header *header);

/* kind, flags, index and length of a section whose header is at `at`. PKV_CORRUPT,
 * PKV_UNSUPPORTED. */
enum pkv_status saved_get_section(const unsigned char bytes[SAVED_SECTION_BYTES], uint64_t at,
                                  struct saved_section *section);

#endif
