/* SPDX-License-Identifier: MIT
 *
 * record.h: a block as a tier keeps it: a head, which says what the block holds, and its payload.
 * docs/format.md shows the bytes.
 *
 *   | "PKVBLOCK" | version 4 | head bytes 4 | fingerprint 16 | key 16 | parent's key 16 |
 *   | depth 4 | group 4 | block_size 4 | num_fields 4 | payload bytes 8 | has_extra 4 | order 4 |
 *   | epochs 8 * 5 | per field: tag 4, length 4, bytes | tokens 4 each | extras 8 each |
 *   | hash of the payload 8 | hash of all before 8 |
 *
 * A reader knows what it wants, so it writes the head that it expects, and compares: nothing of
 * what comes from outside is interpreted. Epochs are counts of flushes (tier.h, counters): of the
 * whole tier, then of each field. O(head bytes), no memory. */
#ifndef PKV_TIERS_RECORD_H
#define PKV_TIERS_RECORD_H

#include "pagedkv/tier.h"

#define RECORD_NUM_EPOCHS (1 + PKV_MAX_NAMESPACE_FIELDS)

/* What a block holds. */
struct record {
    struct pkv_block_key fingerprint;
    struct pkv_block_key key;
    struct pkv_block_key parent; /* zeros: none */
    int32_t depth;
    int32_t group;
    int32_t block_size;
    int32_t num_fields;
    const struct pkv_namespace_field *fields; /* in order of tag */
    size_t payload_bytes;
    const int32_t *tokens; /* [block_size] */
    const uint64_t *extra; /* [block_size]; NULL: none */
};

/* What a head that was read is, beside the one that was expected. */
enum record_verdict {
    RECORD_SAME,
    RECORD_VOID,   /* the same, but stored before a flush */
    RECORD_OTHER,  /* sound, and of another content */
    RECORD_CORRUPT /* not what was written */
};

size_t record_head_bytes(const struct record *record);
size_t record_max_head_bytes(int32_t block_size);

/* Writes a head, without epochs and hashes. */
void record_write(const struct record *record, unsigned char *head);

/* Completes a head that was written. */
void record_set_epochs(unsigned char *head, const uint64_t epochs[RECORD_NUM_EPOCHS]);
void record_seal(unsigned char *head, size_t head_bytes, uint64_t payload_hash);

/* Judges what was read. expected has its epochs, and no hashes. */
enum record_verdict record_compare(const unsigned char *expected, const unsigned char *found,
                                   size_t head_bytes, uint64_t payload_hash);

/* XXH3-64 of a payload. O(its bytes). */
uint64_t record_hash(const struct pkv_piece *pieces, int32_t num_pieces);

/* The name of a value: "<namespace>.<key>.<group>" in hexadecimal digits; that of the counter of a
 * field, and of all, for fields NULL. */
void record_name(struct pkv_block_key of_namespace, struct pkv_block_key key, int32_t group,
                 char name[PKV_MAX_TIER_NAME + 1]);
void record_counter_name(const struct pkv_namespace_field *field, char name[PKV_MAX_TIER_NAME + 1]);

#endif
