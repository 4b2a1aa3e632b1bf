/* SPDX-License-Identifier: MIT
 *
 * slot_map.h: the map behind pagedkv/slots.h. A block pool knows which slots are free: a claimed
 * slot is an id that is held once. The map adds each slot's length and generation.
 *
 *   0 <= length <= max_seq,   length = 0 in a free slot
 *   a claim is good exactly when its slot is held and has its generation, which is never 0 and
 *   advances at release */
#ifndef PKV_SLOTS_SLOT_MAP_H
#define PKV_SLOTS_SLOT_MAP_H

#include "base/hooks.h"
#include "pagedkv/alloc.h"
#include "pagedkv/slots.h"

struct slot_map_record {
    uint32_t generation;
    uint32_t stamp; /* the last fill that named this slot */
    int32_t length;
};

/* In this header for the tests of pkv_slots_check, which must break it; other modules use the
 * calls. */
struct pkv_slots {
    struct pkv_hooks hooks;
    pkv_pool *pool;
    struct slot_map_record *records; /* [max_seqs] */
    int32_t max_seqs;
    int32_t max_seq;
    uint32_t epoch; /* of the last fill; 0 before the first */
};

/* Bytes that a map of max_seqs slots takes through its hooks. */
size_t slot_map_bytes(int32_t max_seqs);

#endif
