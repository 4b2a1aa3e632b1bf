/* SPDX-License-Identifier: MIT
 *
 * All checksums are gathered in one more, which ends the file: parts of two files never pass for
 * one. */
#include "pages/saved_writer.h"

#include <string.h>

#include "base/error.h"
#include "base/little_endian.h"

/* A piece of this size is worth a call of its own. */
#define LARGE_BYTES (SAVED_BUFFER_BYTES / 4)

bool saved_plan_add(struct saved_header *header, uint64_t length)
{
    const uint64_t around = SAVED_SECTION_BYTES + SAVED_SUM_BYTES;
    if (header->num_sections == 0) {
        header->num_bytes = SAVED_HEADER_BYTES + SAVED_SUM_BYTES;
    }
    if (length > UINT64_MAX - around - header->num_bytes || header->num_sections == UINT32_MAX) {
        return false;
    }
    header->num_bytes += around + length;
    header->num_sections++;
    return true;
}

static void pass(struct saved_writer *writer, const void *bytes, size_t n)
{
    if (n > 0 && !writer->is_stopped) {
        writer->is_stopped = !writer->sink.write(writer->sink.context, bytes, n);
        writer->num_written += writer->is_stopped ? 0 : n;
    }
}

static void flush(struct saved_writer *writer)
{
    pass(writer, writer->buffer, writer->num_buffered);
    writer->num_buffered = 0;
}

static void put(struct saved_writer *writer, const void *bytes, size_t n)
{
    if (n >= LARGE_BYTES) {
        flush(writer);
        pass(writer, bytes, n);
        return;
    }
    if (writer->num_buffered + n > SAVED_BUFFER_BYTES) {
        flush(writer);
    }
    memcpy(writer->buffer + writer->num_buffered, bytes, n);
    writer->num_buffered += n;
}

static void put_sum(struct saved_writer *writer, uint64_t sum)
{
    unsigned char bytes[SAVED_SUM_BYTES];
    (void)put_u64(bytes, sum);
    put(writer, bytes, sizeof bytes);
}

/* A header is put, whose last bytes are its checksum. */
static void put_summed(struct saved_writer *writer, const unsigned char *bytes, size_t n)
{
    hash_add(&writer->sums, bytes + n - SAVED_SUM_BYTES, SAVED_SUM_BYTES);
    put(writer, bytes, n);
}

void saved_begin(struct saved_writer *writer, const struct saved_sink *sink,
                 const struct saved_header *header, unsigned char *buffer)
{
    unsigned char bytes[SAVED_HEADER_BYTES];
    *writer = (struct saved_writer){.sink = *sink, .header = *header, .buffer = buffer};
    hash_begin(&writer->sums);
    saved_put_header(bytes, header);
    put_summed(writer, bytes, sizeof bytes);
}

void saved_section_begin(struct saved_writer *writer, const struct saved_section *section)
{
    unsigned char bytes[SAVED_SECTION_BYTES];
    hash_begin(&writer->content);
    saved_put_section(bytes, section);
    put_summed(writer, bytes, sizeof bytes);
}

void saved_add(struct saved_writer *writer, const void *bytes, size_t n)
{
    const unsigned char *from = bytes;
    while (n > 0 && !writer->is_stopped) {
        const size_t part = n < SAVED_CHUNK_BYTES ? n : SAVED_CHUNK_BYTES;
        hash_add(&writer->content, from, part);
        put(writer, from, part);
        from += part;
        n -= part;
    }
}

void saved_section_end(struct saved_writer *writer)
{
    unsigned char bytes[SAVED_SUM_BYTES];
    const uint64_t sum = hash_end(&writer->content);
    (void)put_u64(bytes, sum);
    hash_add(&writer->sums, bytes, sizeof bytes);
    put_sum(writer, sum);
}

enum pkv_status saved_end(struct saved_writer *writer)
{
    put_sum(writer, hash_end(&writer->sums));
    flush(writer);
    if (writer->is_stopped) {
        return refuse(PKV_IO, "the writer stopped after %llu of %llu bytes",
                      (unsigned long long)writer->num_written,
                      (unsigned long long)writer->header.num_bytes);
    }
    pkv_assert(writer->num_written == writer->header.num_bytes);
    return PKV_OK;
}
