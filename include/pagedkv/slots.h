/* SPDX-License-Identifier: MIT
 *
 * pagedkv/slots.h: the slot-id map: which slot of a continuous cache
 * [max_seqs][kv_heads][max_seq][width] belongs to which sequence. A sequence claims a slot once and
 * keeps it for life, while the batch around it changes; a batch names slots by slot_ids (attn.h).
 *
 * A claim is a value with a generation: once the slot is released, the old claim answers
 * PKV_STALE_HANDLE even when the slot has a new owner. Used by one thread at a time. */
#ifndef PAGEDKV_SLOTS_H
#define PAGEDKV_SLOTS_H

#include "pagedkv/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pkv_slots pkv_slots;

/* slot id in the low 32 bits, generation above; never 0, so that a zeroed handle is stale. */
typedef struct pkv_slot {
    uint64_t id;
} pkv_slot;

/* A map of max_seqs slots of max_seq cells each, all free. Both in [1, INT32_MAX].
 * PKV_INVALID_ARGUMENT, PKV_NO_MEMORY. O(max_seqs). */
PKV_API PKV_NODISCARD enum pkv_status pkv_slots_create(int32_t max_seqs, int32_t max_seq,
                                                       const struct pkv_hooks *hooks,
                                                       pkv_slots **slots);
/* Frees the map, whatever is still claimed. NULL is accepted. */
PKV_API void pkv_slots_destroy(pkv_slots *slots);

/* Claims the slot that has been free longest, with length 0. PKV_NO_BLOCKS when none is free. O(1).
 */
PKV_API PKV_NODISCARD enum pkv_status pkv_slots_claim(pkv_slots *slots, pkv_slot *slot);

/* Gives the slot back: its length is 0 and the claim is stale at once. PKV_STALE_HANDLE. O(1). */
PKV_API PKV_NODISCARD enum pkv_status pkv_slots_release(pkv_slots *slots, pkv_slot slot);

/* The slot id that slot_ids takes, in [0, max_seqs). PKV_STALE_HANDLE. O(1). */
PKV_API PKV_NODISCARD enum pkv_status pkv_slots_id(const pkv_slots *slots, pkv_slot slot,
                                                   int32_t *slot_id);

/* The number of cells of the slot that hold content.
 * set: length in [0, max_seq], else PKV_INVALID_ARGUMENT. PKV_STALE_HANDLE. O(1). */
PKV_API PKV_NODISCARD enum pkv_status pkv_slots_length(const pkv_slots *slots, pkv_slot slot,
                                                       int32_t *length);
PKV_API PKV_NODISCARD enum pkv_status pkv_slots_set_length(pkv_slots *slots, pkv_slot slot,
                                                           int32_t length);

/* Fills what a batch of count sequences needs: slot_ids[i] and kv_lens[i] = length +
 * q_lens[i] (q_lens NULL = one each). Refuses whole, with no element written: a stale claim
 * (PKV_STALE_HANDLE), the same slot twice, a negative q_len, or a length that would pass max_seq
 * (PKV_INVALID_ARGUMENT, the last error names the index). O(count). */
PKV_API PKV_NODISCARD enum pkv_status pkv_slots_fill(pkv_slots *slots, const pkv_slot *claims,
                                                     const int32_t *q_lens, int32_t count,
                                                     int32_t *slot_ids, int32_t *kv_lens);

/* Slots that can be claimed. O(1). */
PKV_API int32_t pkv_slots_num_free(const pkv_slots *slots);

/* Number of broken invariants, 0 when sound; each is reported through the log hook. O(max_seqs). */
PKV_API int32_t pkv_slots_check(const pkv_slots *slots);

#ifdef __cplusplus
}
#endif

#endif
