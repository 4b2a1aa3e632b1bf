/* SPDX-License-Identifier: MIT
 *
 * Parts double up to a bound, so that few are needed and none is copied into a larger one. Reads
 * go forward but for the step from one pass to the next, so a part is found from the last one. */
#include "pages/saved_spool.h"

#include <string.h>

#include "base/error.h"

#define FIRST_PART_BYTES ((uint64_t)SAVED_BUFFER_BYTES)
#define MAX_PART_BYTES ((uint64_t)16 << 20)

static unsigned char *bytes_of(struct saved_spool_part *part)
{
    return (unsigned char *)(part + 1);
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* One more part, for the bytes from `offset` on. */
static struct saved_spool_part *add_part(struct saved_spool *spool, uint64_t offset,
                                         size_t num_bytes)
{
    struct saved_spool_part *part = hooks_alloc_array(spool->hooks, 1, sizeof *part + num_bytes);
    if (part == NULL) {
        (void)refuse(PKV_NO_MEMORY, "no memory for %zu bytes of a stream", num_bytes);
        return NULL;
    }
    *part = (struct saved_spool_part){.offset = offset, .num_bytes = num_bytes};
    if (spool->last != NULL) {
        spool->last->next = part;
    } else {
        spool->first = part;
    }
    spool->last = part;
    return part;
}

static enum pkv_status receive(const struct saved_stream *stream, uint64_t offset, void *to,
                               size_t n)
{
    return stream->read(stream->context, to, n)
               ? PKV_OK
               : refuse(PKV_IO, "the stream could not be read at offset %llu",
                        (unsigned long long)offset);
}

/* The header, to bytes [SAVED_MAX_HEADER_BYTES]. */
static enum pkv_status receive_header(const struct saved_stream *stream, unsigned char *bytes,
                                      size_t *length, struct saved_header *header)
{
    enum pkv_status status = receive(stream, 0, bytes, SAVED_HEADER_BYTES);
    if (status == PKV_OK) {
        status = saved_header_length(bytes, length);
    }
    if (status == PKV_OK && *length > SAVED_HEADER_BYTES) {
        status = receive(stream, SAVED_HEADER_BYTES, bytes + SAVED_HEADER_BYTES,
                         *length - SAVED_HEADER_BYTES);
    }
    if (status == PKV_OK) {
        status = saved_get_header(bytes, *length, header);
    }
    if (status == PKV_OK && header->num_bytes < *length) {
        return refuse(PKV_CORRUPT, "header: %llu bytes, fewer than its own",
                      (unsigned long long)header->num_bytes);
    }
    return status;
}

static enum pkv_status receive_rest(struct saved_spool *spool, const struct saved_stream *stream,
                                    uint64_t at, uint64_t num_bytes)
{
    enum pkv_status status = PKV_OK;
    while (status == PKV_OK && at < num_bytes) {
        const uint64_t grown =
            min_u64(MAX_PART_BYTES, at > FIRST_PART_BYTES ? at : FIRST_PART_BYTES);
        const size_t wanted = (size_t)min_u64(num_bytes - at, grown);
        struct saved_spool_part *part = add_part(spool, at, wanted);
        status = part != NULL ? receive(stream, at, bytes_of(part), wanted) : PKV_NO_MEMORY;
        at += wanted;
    }
    return status;
}

static bool read_at(void *context, uint64_t offset, void *bytes, size_t n)
{
    struct saved_spool *spool = context;
    unsigned char *to = bytes;
    if (spool->current == NULL || spool->current->offset > offset) {
        spool->current = spool->first;
    }
    while (n > 0) {
        struct saved_spool_part *part = spool->current;
        while (offset - part->offset >= part->num_bytes) {
            part = part->next;
        }
        const size_t in_part = (size_t)(offset - part->offset);
        const size_t count = (size_t)min_u64(n, part->num_bytes - in_part);
        memcpy(to, bytes_of(part) + in_part, count);
        spool->current = part;
        offset += count;
        to += count;
        n -= count;
    }
    return true;
}

enum pkv_status saved_spool_fill(struct saved_spool *spool, const struct pkv_hooks *hooks,
                                 const struct saved_stream *stream, struct saved_source *source)
{
    unsigned char bytes[SAVED_MAX_HEADER_BYTES];
    size_t length = 0;
    struct saved_header header;
    *spool = (struct saved_spool){.hooks = hooks};
    const enum pkv_status status = receive_header(stream, bytes, &length, &header);
    if (status != PKV_OK) {
        return status;
    }
    struct saved_spool_part *part = add_part(spool, 0, length);
    if (part == NULL) {
        return PKV_NO_MEMORY;
    }
    memcpy(bytes_of(part), bytes, length);
    *source =
        (struct saved_source){.context = spool, .read_at = read_at, .num_bytes = header.num_bytes};
    return receive_rest(spool, stream, length, header.num_bytes);
}

void saved_spool_free(struct saved_spool *spool)
{
    while (spool->first != NULL) {
        struct saved_spool_part *part = spool->first;
        spool->first = part->next;
        hooks_free_array(spool->hooks, part, 1, sizeof *part + part->num_bytes);
    }
}
