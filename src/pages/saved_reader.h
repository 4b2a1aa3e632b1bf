/* SPDX-License-Identifier: MIT
 *
 * saved_reader.h: reads a saved sequence from an input of known length whose bytes can be read at
 * any offset. A first pass walks all sections and verifies every checksum:
 *
 *   saved_open, then for each section saved_next and saved_take or saved_skim; then saved_finish
 *
 * What is too large to be kept is read again, by saved_fetch, to where it belongs, and compared
 * with the checksum that the first pass has seen. Nothing is trusted before its checksum matches;
 * no memory is taken, and no length is believed beyond the input's. */
#ifndef PKV_PAGES_SAVED_READER_H
#define PKV_PAGES_SAVED_READER_H

#include "base/hash.h"
#include "pages/saved_format.h"

/* Where the bytes come from: bytes [offset, offset + n), all within num_bytes, or false. */
struct saved_source {
    void *context;
    bool (*read_at)(void *context, uint64_t offset, void *bytes, size_t n);
    uint64_t num_bytes;
};

struct saved_reader {
    const struct saved_source *source;
    unsigned char *buffer; /* [SAVED_BUFFER_BYTES], the caller's */
    struct saved_header header;
    uint64_t at; /* of the next section */
    uint32_t num_read;
    uint32_t kind; /* of the section before */
    uint32_t index;
    struct hash_stream sums;
};

/* PKV_IO, PKV_CORRUPT, PKV_UNSUPPORTED, as all that follows. */
enum pkv_status saved_open(struct saved_reader *reader, const struct saved_source *source,
                           unsigned char *buffer);

static inline bool saved_has_next(const struct saved_reader *reader)
{
    return reader->num_read < reader->header.num_sections;
}

/* The header of the next section, whose content lies within the input. */
enum pkv_status saved_next(struct saved_reader *reader, struct saved_section *section);

/* Reads its content to `to` [length], and verifies it. */
enum pkv_status saved_take(struct saved_reader *reader, struct saved_section *section, void *to);

/* Verifies its content, which `see` (may be NULL) is shown in parts, each before it is verified and
 * as long as the buffer but for the last. */
enum pkv_status saved_skim(struct saved_reader *reader, struct saved_section *section,
                           void (*see)(void *context, const unsigned char *bytes, size_t n),
                           void *context);

/* The last checksum, and that nothing is behind it. */
enum pkv_status saved_finish(struct saved_reader *reader);

/* A section that was verified, read again. */
struct saved_fetch {
    const struct saved_source *source;
    const struct saved_section *section;
    uint64_t num_read;
    struct hash_stream sum;
};

void saved_fetch_begin(struct saved_fetch *fetch, const struct saved_source *source,
                       const struct saved_section *section);
enum pkv_status saved_fetch(struct saved_fetch *fetch, void *to, size_t n);

/* PKV_CORRUPT when the content is not what it was. */
enum pkv_status saved_fetch_end(const struct saved_fetch *fetch);

#endif
