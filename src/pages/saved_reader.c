/* SPDX-License-Identifier: MIT
 *
 * A length is compared with what is left of the input before it is added to anything, so no sum
 * overflows. */
#include "pages/saved_reader.h"

#include "base/error.h"
#include "base/little_endian.h"

static enum pkv_status read_at(const struct saved_source *source, uint64_t offset, void *to,
                               size_t n)
{
    return source->read_at(source->context, offset, to, n)
               ? PKV_OK
               : refuse(PKV_IO, "the input could not be read at offset %llu",
                        (unsigned long long)offset);
}

static enum pkv_status refuse_end(const char *what, uint64_t offset, const struct saved_source *of)
{
    return refuse(PKV_CORRUPT, "%s at offset %llu: the input ends at %llu", what,
                  (unsigned long long)offset, (unsigned long long)of->num_bytes);
}

static enum pkv_status read_header(struct saved_reader *reader)
{
    size_t length = 0;
    if (reader->source->num_bytes < SAVED_HEADER_BYTES) {
        return refuse_end("header", 0, reader->source);
    }
    enum pkv_status status = read_at(reader->source, 0, reader->buffer, SAVED_HEADER_BYTES);
    if (status == PKV_OK) {
        status = saved_header_length(reader->buffer, &length);
    }
    if (status == PKV_OK && reader->source->num_bytes < length) {
        return refuse_end("header", 0, reader->source);
    }
    if (status == PKV_OK) {
        status = read_at(reader->source, 0, reader->buffer, length);
    }
    return status == PKV_OK ? saved_get_header(reader->buffer, length, &reader->header) : status;
}

enum pkv_status saved_open(struct saved_reader *reader, const struct saved_source *source,
                           unsigned char *buffer)
{
    *reader = (struct saved_reader){.source = source, .buffer = buffer, .at = SAVED_HEADER_BYTES};
    const enum pkv_status status = read_header(reader);
    if (status != PKV_OK) {
        return status;
    }
    if (reader->header.num_bytes != source->num_bytes) {
        return refuse(PKV_CORRUPT, "header: %llu bytes, but the input has %llu",
                      (unsigned long long)reader->header.num_bytes,
                      (unsigned long long)source->num_bytes);
    }
    hash_begin(&reader->sums);
    hash_add(&reader->sums, buffer + SAVED_HEADER_BYTES - SAVED_SUM_BYTES, SAVED_SUM_BYTES);
    return PKV_OK;
}

/* Of what is left, the last checksum is no section's. */
static uint64_t num_left(const struct saved_reader *reader)
{
    const uint64_t left = reader->source->num_bytes - reader->at;
    return left > SAVED_SUM_BYTES ? left - SAVED_SUM_BYTES : 0;
}

static enum pkv_status check_order(struct saved_reader *reader, const struct saved_section *section)
{
    const bool ascends = section->kind > reader->kind ||
                         (section->kind == reader->kind && section->index > reader->index);
    if (reader->num_read > 0 && !ascends) {
        return refuse(PKV_CORRUPT, "section %s %u at offset %llu: twice, or out of order",
                      saved_kind_name(section->kind), section->index,
                      (unsigned long long)reader->at);
    }
    reader->kind = section->kind;
    reader->index = section->index;
    return PKV_OK;
}

enum pkv_status saved_next(struct saved_reader *reader, struct saved_section *section)
{
    unsigned char bytes[SAVED_SECTION_BYTES];
    if (num_left(reader) < SAVED_SECTION_BYTES + SAVED_SUM_BYTES) {
        return refuse_end("section header", reader->at, reader->source);
    }
    enum pkv_status status = read_at(reader->source, reader->at, bytes, sizeof bytes);
    if (status == PKV_OK) {
        status = saved_get_section(bytes, reader->at, section);
    }
    if (status == PKV_OK) {
        status = check_order(reader, section);
    }
    if (status != PKV_OK) {
        return status;
    }
    if (section->length > num_left(reader) - SAVED_SECTION_BYTES - SAVED_SUM_BYTES) {
        return refuse_end(saved_kind_name(section->kind), reader->at, reader->source);
    }
    hash_add(&reader->sums, bytes + SAVED_SECTION_BYTES - SAVED_SUM_BYTES, SAVED_SUM_BYTES);
    reader->at += SAVED_SECTION_BYTES;
    section->offset = reader->at;
    reader->num_read++;
    return PKV_OK;
}

/* The content was read: its checksum follows. */
static enum pkv_status check_sum(struct saved_reader *reader, const struct saved_fetch *fetch,
                                 struct saved_section *section)
{
    unsigned char bytes[SAVED_SUM_BYTES];
    const enum pkv_status status =
        read_at(reader->source, section->offset + section->length, bytes, sizeof bytes);
    if (status != PKV_OK) {
        return status;
    }
    section->sum = hash_end(&fetch->sum);
    if (section->sum != get_u64(bytes)) {
        return refuse(PKV_CORRUPT, "section %s %u at offset %llu: its checksum does not match",
                      saved_kind_name(section->kind), section->index,
                      (unsigned long long)section->offset);
    }
    hash_add(&reader->sums, bytes, sizeof bytes);
    reader->at = section->offset + section->length + SAVED_SUM_BYTES;
    return PKV_OK;
}

enum pkv_status saved_take(struct saved_reader *reader, struct saved_section *section, void *to)
{
    struct saved_fetch fetch;
    saved_fetch_begin(&fetch, reader->source, section);
    const enum pkv_status status = saved_fetch(&fetch, to, (size_t)section->length);
    return status == PKV_OK ? check_sum(reader, &fetch, section) : status;
}

enum pkv_status saved_skim(struct saved_reader *reader, struct saved_section *section,
                           void (*see)(void *context, const unsigned char *bytes, size_t n),
                           void *context)
{
    struct saved_fetch fetch;
    enum pkv_status status = PKV_OK;
    saved_fetch_begin(&fetch, reader->source, section);
    while (status == PKV_OK && fetch.num_read < section->length) {
        const uint64_t left = section->length - fetch.num_read;
        const size_t part = left < SAVED_BUFFER_BYTES ? (size_t)left : SAVED_BUFFER_BYTES;
        status = saved_fetch(&fetch, reader->buffer, part);
        if (status == PKV_OK && see != NULL) {
            see(context, reader->buffer, part);
        }
    }
    return status == PKV_OK ? check_sum(reader, &fetch, section) : status;
}

enum pkv_status saved_finish(struct saved_reader *reader)
{
    unsigned char bytes[SAVED_SUM_BYTES];
    if (reader->source->num_bytes - reader->at != sizeof bytes) {
        return refuse(PKV_CORRUPT, "end at offset %llu: the input ends at %llu",
                      (unsigned long long)reader->at,
                      (unsigned long long)reader->source->num_bytes);
    }
    const enum pkv_status status = read_at(reader->source, reader->at, bytes, sizeof bytes);
    if (status != PKV_OK) {
        return status;
    }
    return get_u64(bytes) == hash_end(&reader->sums)
               ? PKV_OK
               : refuse(PKV_CORRUPT, "end at offset %llu: the checksum of all does not match",
                        (unsigned long long)reader->at);
}

void saved_fetch_begin(struct saved_fetch *fetch, const struct saved_source *source,
                       const struct saved_section *section)
{
    fetch->source = source;
    fetch->section = section;
    fetch->num_read = 0;
    hash_begin(&fetch->sum);
}

enum pkv_status saved_fetch(struct saved_fetch *fetch, void *to, size_t n)
{
    unsigned char *bytes = to;
    while (n > 0) {
        const size_t part = n < SAVED_CHUNK_BYTES ? n : SAVED_CHUNK_BYTES;
        const enum pkv_status status =
            read_at(fetch->source, fetch->section->offset + fetch->num_read, bytes, part);
        if (status != PKV_OK) {
            return status;
        }
        hash_add(&fetch->sum, bytes, part);
        fetch->num_read += part;
        bytes += part;
        n -= part;
    }
    return PKV_OK;
}

enum pkv_status saved_fetch_end(const struct saved_fetch *fetch)
{
    const struct saved_section *section = fetch->section;
    return fetch->num_read == section->length && hash_end(&fetch->sum) == section->sum
               ? PKV_OK
               : refuse(PKV_CORRUPT, "section %s %u at offset %llu: changed while it was loaded",
                        saved_kind_name(section->kind), section->index,
                        (unsigned long long)section->offset);
}
