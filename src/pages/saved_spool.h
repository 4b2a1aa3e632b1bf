/* SPDX-License-Identifier: MIT
 *
 * saved_spool.h: a saved sequence that arrives as a stream, kept in memory so that all of it is
 * verified before anything is done with it. Memory is taken as bytes arrive, in parts, never for
 * what the stream says of itself:
 *
 *   bytes taken <= 2 * bytes arrived + SAVED_BUFFER_BYTES */
#ifndef PKV_PAGES_SAVED_SPOOL_H
#define PKV_PAGES_SAVED_SPOOL_H

#include "base/hooks.h"
#include "pages/saved_reader.h"

/* A part of the bytes; `bytes` lie behind the struct. */
struct saved_spool_part {
    struct saved_spool_part *next;
    uint64_t offset;
    size_t num_bytes;
};

struct saved_spool {
    const struct pkv_hooks *hooks;
    struct saved_spool_part *first;
    struct saved_spool_part *last;
    struct saved_spool_part *current; /* where the last read was */
};

/* The stream: the next n bytes, all of them, or false. */
struct saved_stream {
    void *context;
    bool (*read)(void *context, void *bytes, size_t n);
};

/* Reads as many bytes as the stream's header says, no more, and makes a source of them. PKV_IO,
 * PKV_NO_MEMORY, PKV_CORRUPT, PKV_UNSUPPORTED. Free it in either case. */
enum pkv_status saved_spool_fill(struct saved_spool *spool, const struct pkv_hooks *hooks,
                                 const struct saved_stream *stream, struct saved_source *source);
void saved_spool_free(struct saved_spool *spool);

#endif
