/* SPDX-License-Identifier: MIT
 *
 * pagedkv/slots.h: slot maps: which slot of a continuous cache [max_seqs][kv_heads][max_seq][width]
 * belongs to which sequence, and how many of its cells hold tokens. A sequence claims a slot once
 * and keeps it for life, while the batch around it changes from step to step; a batch then names
 * its slots by slot_ids (attn.h).
 *
 *     pkv_slots_create(max_seqs, max_seq, NULL, &slots)
 *     pkv_slots_claim(slots, &claim)                                    a request arrives
 *     for each step
 *         pkv_slots_fill(slots, claims, q_lens, batch, slot_ids, kv_lens)
 *         pkv_gqa(workspace, &args)                                     form CONTINUOUS
 *         pkv_slots_set_length(slots, claim, kv_len)                    for each row
 *     pkv_slots_release(slots, claim)                                   the request ends
 *     pkv_slots_destroy(slots)
 *
 * A claim is a value that can be copied and logged. It carries a generation: once its slot is
 * released, the claim is stale for ever and answers PKV_STALE_HANDLE, even after the slot has a new
 * owner. The map holds no keys and values; the caller does.
 *
 * Threads: one thread at a time uses a map. Different maps are independent. */
#ifndef PAGEDKV_SLOTS_H
#define PAGEDKV_SLOTS_H

#include "pagedkv/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pkv_slots pkv_slots;

/* A claim on a slot: slot id in the low 32 bits, generation in the high ones. It is never 0, so a
 * zeroed claim is stale. */
typedef struct pkv_slot {
    uint64_t id;
} pkv_slot;

/* Makes a map of max_seqs free slots, each with a capacity of max_seq cells. Both are in [1,
 * INT32_MAX]. hooks may be NULL; only alloc, free and log are used.
 *
 * Returns PKV_OK and the map in *slots, which the caller destroys; PKV_INVALID_ARGUMENT;
 * PKV_NO_MEMORY. O(max_seqs). */
PKV_API PKV_NODISCARD enum pkv_status pkv_slots_create(int32_t max_seqs, int32_t max_seq,
                                                       const struct pkv_hooks *hooks,
                                                       pkv_slots **slots);

/* Frees a map, whether or not some of its slots are claimed. NULL is accepted. O(1). */
PKV_API void pkv_slots_destroy(pkv_slots *slots);

/* Claims the slot that has been free longest. Its length is 0.
 *
 * Returns PKV_OK and the claim in *slot; PKV_NO_BLOCKS when all slots are claimed. O(1). */
PKV_API PKV_NODISCARD enum pkv_status pkv_slots_claim(pkv_slots *slots, pkv_slot *slot);

/* Releases a slot: its length becomes 0 and the claim is stale from now on.
 *
 * Returns PKV_OK; PKV_STALE_HANDLE for a claim that was released before. O(1). */
PKV_API enum pkv_status pkv_slots_release(pkv_slots *slots, pkv_slot slot);

/* Reads the slot id of a claim: the index into the cache's first dimension, and the entry for
 * slot_ids.
 *
 * Returns PKV_OK and a number in [0, max_seqs) in *slot_id; PKV_STALE_HANDLE. O(1). */
PKV_API PKV_NODISCARD enum pkv_status pkv_slots_id(const pkv_slots *slots, pkv_slot slot,
                                                   int32_t *slot_id);

/* Reads how many cells of a slot hold tokens, as the last pkv_slots_set_length stored it. The map
 * is the one authority for it.
 *
 * Returns PKV_OK and a number in [0, max_seq] in *length; PKV_STALE_HANDLE. O(1). */
PKV_API PKV_NODISCARD enum pkv_status pkv_slots_length(const pkv_slots *slots, pkv_slot slot,
                                                       int32_t *length);

/* Stores how many cells of a slot hold tokens: larger after an append, smaller after rejected
 * drafts or a truncation. Cells from there on are free to be overwritten.
 *
 * Returns PKV_OK; PKV_INVALID_ARGUMENT for a length outside [0, max_seq]; PKV_STALE_HANDLE. O(1).
 */
PKV_API PKV_NODISCARD enum pkv_status pkv_slots_set_length(pkv_slots *slots, pkv_slot slot,
                                                           int32_t length);

/* Fills the arrays that a batch of sequences passes to the attention operator:
 *
 *     slot_ids[i] = the slot id        kv_lens[i] = length + q_lens[i]
 *
 * claims [count], in the order of the batch; q_lens [count] are the new tokens of each row, >= 0,
 * NULL = one each. slot_ids [count] and kv_lens [count] are written. Lengths do not change: the
 * caller stores the new ones after the append has succeeded.
 *
 * Returns PKV_OK; PKV_STALE_HANDLE for a stale claim; PKV_INVALID_ARGUMENT for one slot named
 * twice, a negative q_len, or a row that would pass max_seq. On a refusal no element is written and
 * the last error names the index. O(count). */
PKV_API PKV_NODISCARD enum pkv_status pkv_slots_fill(pkv_slots *slots, const pkv_slot *claims,
                                                     const int32_t *q_lens, int32_t count,
                                                     int32_t *slot_ids, int32_t *kv_lens);

/* The number of slots that can be claimed.
 *
 * Returns a number in [0, max_seqs]; 0 for NULL. O(1). */
PKV_API int32_t pkv_slots_num_free(const pkv_slots *slots);

/* Verifies every invariant of a map. Each broken one is one line through the log hook.
 *
 * Returns the number of broken invariants: 0 for a sound map, 1 for NULL. O(max_seqs). */
PKV_API int32_t pkv_slots_check(const pkv_slots *slots);

#ifdef __cplusplus
}
#endif

#endif
