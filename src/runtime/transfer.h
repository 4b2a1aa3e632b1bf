/* SPDX-License-Identifier: MIT
 *
 * transfer.h: one piece of reading or writing tiers: a few blocks of one namespace, gathered under
 * the mutex, carried out without it, and noted under it again. Everything that carrying it out
 * reads is here, or is in pages of blocks that are held meanwhile. A leaf: it knows tiers and
 * memory alone. */
#ifndef PKV_RUNTIME_TRANSFER_H
#define PKV_RUNTIME_TRANSFER_H

#include "base/carve.h"
#include "pagedkv/cache.h"
#include "tiers/record.h"

#define TRANSFER_MAX_BLOCKS 16                /* that are read or written at once */
#define TRANSFER_MAX_NAMES 128                /* that are looked up at once */
#define TRANSFER_MAX_BYTES ((size_t)32 << 20) /* of payload at once, but for a single block */

enum transfer_kind { TRANSFER_FIND, TRANSFER_LOAD, TRANSFER_STORE, TRANSFER_RAISE };

/* A block to be read or written. */
struct transfer_block {
    unsigned char *head;  /* that is written, or expected */
    unsigned char *found; /* that is read */
    size_t head_bytes;
    size_t payload_bytes;
    struct pkv_piece *pieces; /* [1 + num_pieces]; the first is a head */
    int32_t num_pieces;       /* of the payload */
    uint64_t hash;            /* of the payload, once it is known */
};

/* What became of item i in tier t. */
enum transfer_result {
    TRANSFER_NONE, /* not asked */
    TRANSFER_DONE, /* found, read and checked, or written */
    TRANSFER_MISSED,
    TRANSFER_VOID,
    TRANSFER_OTHER,
    TRANSFER_CORRUPT,
    TRANSFER_FAILED
};

/* Items are names to be found, or blocks. Bit t of wanted: tier t is to be asked; a load or a
 * find stops at the first tier that has it. */
struct transfer {
    enum transfer_kind kind;
    int32_t count;
    int32_t num_fields;
    size_t payload_bytes;                                    /* of all blocks so far */
    char counters[RECORD_NUM_EPOCHS][PKV_MAX_TIER_NAME + 1]; /* of all, and of each field */
    char (*names)[PKV_MAX_TIER_NAME + 1];                    /* [TRANSFER_MAX_NAMES] */
    uint8_t *wanted;                                         /* likewise */
    uint8_t (*results)[PKV_MAX_TIERS];                       /* likewise, of enum transfer_result */
    struct transfer_block *blocks;                           /* [TRANSFER_MAX_BLOCKS] */
    struct pkv_tier_item *items; /* [TRANSFER_MAX_NAMES]: scratch of a call */
    int32_t *sources;            /* likewise: which item each of them is */
    /* what the caller notes of each item */
    int32_t *entries; /* [TRANSFER_MAX_NAMES] */
    int32_t ticket;   /* of all */
};

/* Cuts a transfer's arrays, for blocks of at most so many pieces and bytes of head. */
void transfer_carve(struct transfer *transfer, int32_t max_pieces, size_t max_head_bytes,
                    struct carver *carver);

/* Empties it, for items of this kind in a namespace of these fields. */
void transfer_begin(struct transfer *transfer, enum transfer_kind kind,
                    const struct pkv_namespace_field *fields, int32_t num_fields);

/* Adds an item; the caller fills its block in. Returns its number. */
int32_t transfer_add(struct transfer *transfer, const char *name, uint32_t tiers, int32_t entry);

/* Is there room for one more block, of so many bytes? */
bool transfer_has_room(const struct transfer *transfer, size_t payload_bytes);

/* Carries it out and fills results. Needs no mutex. */
void transfer_run(struct transfer *transfer, pkv_tier *const *tiers, int32_t num_tiers);

#endif
