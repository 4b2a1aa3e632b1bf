/* SPDX-License-Identifier: MIT
 *
 * A header's checksum is looked at before its version, so that a damaged header is not taken for
 * one of a later version. */
#include "pages/saved_format.h"

#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/little_endian.h"

/* No text file begins so, and what converts line ends or strips the eighth bit breaks it. */
static const unsigned char magic[8] = {0x89, 'p', 'k', 'v', '\r', '\n', 0x1a, '\n'};

#define BYTE_ORDER_MARK UINT32_C(0x01020304)

/* Where what stands. */
enum {
    AT_VERSION = 8,
    AT_HEADER_BYTES = 12,
    AT_BYTE_ORDER = 16,
    AT_NUM_SECTIONS = 20,
    AT_NUM_BYTES = 24,
    AT_RESERVED = 32,
    AT_SUM = SAVED_HEADER_BYTES - SAVED_SUM_BYTES,
    AT_KIND = 0,
    AT_FLAGS = 4,
    AT_INDEX = 8,
    AT_LENGTH = 16,
    AT_SECTION_SUM = SAVED_SECTION_BYTES - SAVED_SUM_BYTES
};

const char *saved_kind_name(uint32_t kind)
{
    static const char *const names[] = {"0",      "sequence", "namespace", "geometry", "blocks",
                                        "tokens", "extra",    "payload",   "state"};
    return kind < sizeof names / sizeof names[0] ? names[kind] : "of an unknown kind";
}

void saved_put_header(unsigned char bytes[SAVED_HEADER_BYTES], const struct saved_header *header)
{
    const uint32_t mark = BYTE_ORDER_MARK;
    memset(bytes, 0, SAVED_HEADER_BYTES);
    memcpy(bytes, magic, sizeof magic);
    (void)put_u32(bytes + AT_VERSION, SAVED_VERSION);
    (void)put_u32(bytes + AT_HEADER_BYTES, SAVED_HEADER_BYTES);
    memcpy(bytes + AT_BYTE_ORDER, &mark, sizeof mark);
    (void)put_u32(bytes + AT_NUM_SECTIONS, header->num_sections);
    (void)put_u64(bytes + AT_NUM_BYTES, header->num_bytes);
    (void)put_u64(bytes + AT_SUM, hash_64(bytes, AT_SUM));
}

void saved_put_section(unsigned char bytes[SAVED_SECTION_BYTES],
                       const struct saved_section *section)
{
    memset(bytes, 0, SAVED_SECTION_BYTES);
    (void)put_u32(bytes + AT_KIND, section->kind);
    (void)put_u32(bytes + AT_FLAGS, section->flags);
    (void)put_u32(bytes + AT_INDEX, section->index);
    (void)put_u64(bytes + AT_LENGTH, section->length);
    (void)put_u64(bytes + AT_SECTION_SUM, hash_64(bytes, AT_SECTION_SUM));
}

enum pkv_status saved_header_length(const unsigned char *bytes, size_t *length)
{
    const uint32_t claimed = get_u32(bytes + AT_HEADER_BYTES);
    if (memcmp(bytes, magic, sizeof magic) != 0) {
        return refuse(PKV_CORRUPT, "header: not a saved sequence");
    }
    if (claimed < SAVED_HEADER_BYTES || claimed > SAVED_MAX_HEADER_BYTES) {
        return refuse(PKV_CORRUPT, "header: a header of %u bytes", claimed);
    }
    *length = claimed;
    return PKV_OK;
}

static enum pkv_status check_version(const unsigned char *bytes, size_t length)
{
    const uint32_t version = get_u32(bytes + AT_VERSION);
    const uint32_t mark = BYTE_ORDER_MARK;
    if (version > SAVED_VERSION) {
        return refuse(PKV_UNSUPPORTED, "header: format version %u, later than %d", version,
                      SAVED_VERSION);
    }
    if (version != SAVED_VERSION || length != SAVED_HEADER_BYTES) {
        return refuse(PKV_CORRUPT, "header: format version %u with a header of %zu bytes", version,
                      length);
    }
    if (memcmp(bytes + AT_BYTE_ORDER, &mark, sizeof mark) != 0) {
        return refuse(PKV_UNSUPPORTED, "header: saved on a machine of another byte order");
    }
    return PKV_OK;
}

enum pkv_status saved_get_header(const unsigned char *bytes, size_t length,
                                 struct saved_header *header)
{
    static const unsigned char zeros[AT_SUM - AT_RESERVED];
    const size_t at_sum = length - SAVED_SUM_BYTES;
    if (get_u64(bytes + at_sum) != hash_64(bytes, at_sum)) {
        return refuse(PKV_CORRUPT, "header: its checksum does not match");
    }
    const enum pkv_status status = check_version(bytes, length);
    if (status != PKV_OK) {
        return status;
    }
    if (memcmp(bytes + AT_RESERVED, zeros, sizeof zeros) != 0) {
        return refuse(PKV_UNSUPPORTED, "header: reserved bytes are set");
    }
    header->num_sections = get_u32(bytes + AT_NUM_SECTIONS);
    header->num_bytes = get_u64(bytes + AT_NUM_BYTES);
    return PKV_OK;
}

enum pkv_status saved_get_section(const unsigned char bytes[SAVED_SECTION_BYTES], uint64_t at,
                                  struct saved_section *section)
{
    const unsigned long long offset = at;
    if (get_u64(bytes + AT_SECTION_SUM) != hash_64(bytes, AT_SECTION_SUM)) {
        return refuse(PKV_CORRUPT, "section header at offset %llu: its checksum does not match",
                      offset);
    }
    *section = (struct saved_section){
        .kind = get_u32(bytes + AT_KIND),
        .flags = get_u32(bytes + AT_FLAGS),
        .index = get_u32(bytes + AT_INDEX),
        .length = get_u64(bytes + AT_LENGTH),
    };
    if ((section->flags & ~SAVED_NEEDED) != 0 || get_u32(bytes + AT_INDEX + 4) != 0) {
        return refuse(PKV_UNSUPPORTED, "section %s at offset %llu: flags %x are not known",
                      saved_kind_name(section->kind), offset, section->flags);
    }
    return PKV_OK;
}
