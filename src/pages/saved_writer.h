/* SPDX-License-Identifier: MIT
 *
 * saved_writer.h: writes a saved sequence, front to back, in one pass: how long each section will
 * be is planned first, its checksum comes behind it.
 *
 *   plan:   saved_plan_add for each section
 *   write:  saved_begin, then for each: saved_section_begin, saved_add.., saved_section_end; then
 *           saved_end
 *
 * Once the sink has said no, nothing more is written and saved_end says so. Small pieces are
 * gathered in the buffer, large ones go to the sink from where they are. */
#ifndef PKV_PAGES_SAVED_WRITER_H
#define PKV_PAGES_SAVED_WRITER_H

#include "base/hash.h"
#include "pages/saved_format.h"

/* Where the bytes go: all n of them, or false. */
struct saved_sink {
    void *context;
    bool (*write)(void *context, const void *bytes, size_t n);
};

struct saved_writer {
    struct saved_sink sink;
    struct saved_header header;
    unsigned char *buffer; /* [SAVED_BUFFER_BYTES], the caller's */
    size_t num_buffered;
    uint64_t num_written; /* what the sink has taken */
    bool is_stopped;
    struct hash_stream content; /* of the section at hand */
    struct hash_stream sums;
};

/* A zeroed header becomes that of one more section. False when the bytes overflow. */
bool saved_plan_add(struct saved_header *header, uint64_t length);

void saved_begin(struct saved_writer *writer, const struct saved_sink *sink,
                 const struct saved_header *header, unsigned char *buffer);
void saved_section_begin(struct saved_writer *writer, const struct saved_section *section);
void saved_add(struct saved_writer *writer, const void *bytes, size_t n);
void saved_section_end(struct saved_writer *writer);

/* PKV_IO when the sink has said no. */
enum pkv_status saved_end(struct saved_writer *writer);

#endif
