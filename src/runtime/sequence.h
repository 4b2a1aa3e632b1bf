/* SPDX-License-Identifier: MIT
 *
 * sequence.h: the records of sequences: found by handle, claimed and released by index. What a
 * sequence holds elsewhere (tables, slots, namespaces) is seq_life's. The mutex is held. O(1). */
#ifndef PKV_RUNTIME_SEQUENCE_H
#define PKV_RUNTIME_SEQUENCE_H

#include "pagedkv/cache.h"
#include "runtime/seq_reuse.h"
#include "runtime/seq_tokens.h"

enum seq_state {
    SEQ_FREE = 0,
    SEQ_LIVE,
    SEQ_HIDDEN, /* it holds what it will have, but no call finds it: its cells are being read */
    SEQ_DYING /* destroyed while in the open step or moving: the handle is stale, the rest goes when
                 that ends */
};

/* One sequence; its index is its row in every per-sequence array for life. Generation moves when a
 * sequence is destroyed, so no handle names two of them. */
struct seq {
    uint64_t generation;
    uint64_t stamp; /* of the last batch that named it */
    int32_t length; /* committed tokens: the one authority */
    int32_t max_rewind;
    int32_t max_tokens;  /* that it may ever have; max_seq_len at most */
    int32_t kept_prefix; /* -1: each group's own */
    struct seq_tokens tokens;
    enum seq_state state;
    struct seq_reuse reuse; /* begins with what each step reads, up to here */
    uint64_t tag;
    int32_t next_free;
    bool in_step;
    bool is_moving;  /* payload is read or written without the mutex (seq_life_begin_move) */
    bool is_swapped; /* its cells are in the swap area, and its tables of paged groups are empty */
};

/* All records.
 *
 *   number of SEQ_FREE records = num_free = length of the list that begins at first_free */
struct seq_records {
    struct seq *at; /* [capacity] */
    int32_t capacity;
    int32_t first_free;
    int32_t num_free;
};

/* All records are free. */
void sequence_init(struct seq_records *seqs, int32_t capacity, uint64_t first_generation);

static inline int32_t sequence_index(const struct seq_records *seqs, const struct seq *seq)
{
    return (int32_t)(seq - seqs->at);
}

/* Loads a record, which is as long as three lines of the processor's cache. */
static inline void sequence_prefetch(const struct seq_records *seqs, int32_t index)
{
    const unsigned char *bytes = (const unsigned char *)&seqs->at[index];
    PKV_PREFETCH(bytes);
    PKV_PREFETCH(bytes + HOOKS_CACHE_LINE);
    PKV_PREFETCH(bytes + 2 * HOOKS_CACHE_LINE);
}

pkv_seq sequence_handle(const struct seq_records *seqs, int32_t index);

/* The live sequence that a handle names, or NULL. */
struct seq *sequence_find(const struct seq_records *seqs, pkv_seq handle);

/* A live sequence that is neither in the open step nor moving: PKV_STALE_HANDLE, PKV_BUSY. */
enum pkv_status sequence_find_idle(const struct seq_records *seqs, pkv_seq handle,
                                   struct seq **seq);

/* One whose cells are in its blocks, too: PKV_NOT_RESIDENT. */
enum pkv_status sequence_find_resident(const struct seq_records *seqs, pkv_seq handle,
                                       struct seq **seq);

/* Says that a sequence is swapped out: PKV_NOT_RESIDENT. */
enum pkv_status sequence_refuse_swapped(pkv_seq handle);

/* Says that a handle is stale: PKV_STALE_HANDLE. */
enum pkv_status sequence_refuse_stale(pkv_seq handle);

/* A free record becomes a live, empty sequence with the options, namespaces and epoch of
 * `prototype`. There must be one. */
int32_t sequence_claim(struct seq_records *seqs, const struct seq *prototype);

/* The record is free again. */
void sequence_release(struct seq_records *seqs, int32_t index);

#endif
