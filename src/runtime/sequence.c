/* SPDX-License-Identifier: MIT
 *
 * Free records form a stack, linked inside the records. */
#include "runtime/sequence.h"

#include "base/error.h"
#include "runtime/block.h"
#include "runtime/handle.h"

void sequence_init(struct seq_records *seqs, int32_t capacity, uint64_t first_generation)
{
    for (int32_t i = 0; i < capacity; i++) {
        seqs->at[i].generation = first_generation;
        seqs->at[i].next_free = i + 1 < capacity ? i + 1 : NO_SEQ;
    }
    seqs->capacity = capacity;
    seqs->first_free = 0;
    seqs->num_free = capacity;
}

pkv_seq sequence_handle(const struct seq_records *seqs, int32_t index)
{
    return (pkv_seq){handle_make(seqs->at[index].generation, index)};
}

struct seq *sequence_find(const struct seq_records *seqs, pkv_seq handle)
{
    const uint64_t index = handle.id & HANDLE_INDEX_MASK;
    if (index >= (uint64_t)seqs->capacity) {
        return NULL;
    }
    struct seq *seq = &seqs->at[index];
    const bool is_live = seq->state == SEQ_LIVE;
    return is_live && sequence_handle(seqs, (int32_t)index).id == handle.id ? seq : NULL;
}

enum pkv_status sequence_refuse_stale(pkv_seq handle)
{
    return refuse(PKV_STALE_HANDLE, "sequence %016llx is stale", (unsigned long long)handle.id);
}

enum pkv_status sequence_find_idle(const struct seq_records *seqs, pkv_seq handle, struct seq **seq)
{
    struct seq *found = sequence_find(seqs, handle);
    if (found == NULL) {
        return sequence_refuse_stale(handle);
    }
    if (found->in_step) {
        return refuse(PKV_BUSY, "sequence %016llx is in the open step",
                      (unsigned long long)handle.id);
    }
    if (found->is_moving) {
        return refuse(PKV_BUSY, "the keys and values of sequence %016llx are being copied",
                      (unsigned long long)handle.id);
    }
    *seq = found;
    return PKV_OK;
}

enum pkv_status sequence_refuse_swapped(pkv_seq handle)
{
    return refuse(PKV_NOT_RESIDENT, "sequence %016llx is swapped out",
                  (unsigned long long)handle.id);
}

enum pkv_status sequence_find_resident(const struct seq_records *seqs, pkv_seq handle,
                                       struct seq **seq)
{
    struct seq *found = NULL;
    const enum pkv_status status = sequence_find_idle(seqs, handle, &found);
    if (status == PKV_OK && found->is_swapped) {
        return sequence_refuse_swapped(handle);
    }
    *seq = found;
    return status;
}

int32_t sequence_claim(struct seq_records *seqs, const struct seq *prototype)
{
    const int32_t index = seqs->first_free;
    struct seq *seq = &seqs->at[index];
    seqs->first_free = seq->next_free;
    seqs->num_free--;
    seq->state = SEQ_LIVE;
    seq->tag = prototype->tag;
    seq->max_rewind = prototype->max_rewind;
    seq->max_tokens = prototype->max_tokens;
    seq->kept_prefix = prototype->kept_prefix;
    seq->length = 0;
    seq->next_free = NO_SEQ;
    seq->tokens = (struct seq_tokens){0};
    seq->reuse = (struct seq_reuse){
        .scope = prototype->reuse.scope,
        .newest = PREFIX_ROOT,
        .epoch = prototype->reuse.epoch,
        .priority = prototype->reuse.priority,
        .retention_ns = prototype->reuse.retention_ns,
        .no_publish = prototype->reuse.no_publish,
    };
    return index;
}

void sequence_release(struct seq_records *seqs, int32_t index)
{
    struct seq *seq = &seqs->at[index];
    seq->state = SEQ_FREE;
    seq->in_step = false;
    seq->is_moving = false;
    seq->next_free = seqs->first_free;
    seqs->first_free = index;
    seqs->num_free++;
}
