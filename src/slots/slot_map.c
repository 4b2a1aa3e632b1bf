/* SPDX-License-Identifier: MIT
 *
 * Slots of a continuous cache. A claim carries a slot id and a generation, and both are compared
 * before anything is looked up; ids are compared as unsigned, so no arithmetic meets a negative
 * one. A fill stamps each slot with its epoch, which finds a slot named twice without memory; when
 * the epoch wraps, the stamps are cleared. All O(1) or O(count). */
#include "slots/slot_map.h"

#include "alloc/block_pool.h"
#include "base/error.h"
#include "base/report.h"

#define GENERATION_SHIFT 32

/* Released slots are a queue; those never claimed, of class 0, go before. */
#define CLASS_RELEASED 1

static uint32_t slot_of(pkv_slot claim)
{
    return (uint32_t)claim.id;
}

static uint32_t generation_of(pkv_slot claim)
{
    return (uint32_t)(claim.id >> GENERATION_SHIFT);
}

static bool is_good(const pkv_slots *slots, pkv_slot claim)
{
    const uint32_t slot = slot_of(claim);
    return slot < (uint32_t)slots->max_seqs &&
           slots->records[slot].generation == generation_of(claim) &&
           pkv_pool_ref_count(slots->pool, (int32_t)slot) == 1;
}

/* The claim's record, or NULL with *status set. */
static struct slot_map_record *find(const pkv_slots *slots, pkv_slot claim, enum pkv_status *status)
{
    if (slots == NULL) {
        *status = INVALID("slots is NULL");
        return NULL;
    }
    if (!is_good(slots, claim)) {
        *status = refuse(PKV_STALE_HANDLE, "slot = %#llx, released or never claimed here",
                         (unsigned long long)claim.id);
        return NULL;
    }
    *status = PKV_OK;
    return &slots->records[slot_of(claim)];
}

size_t slot_map_bytes(int32_t max_seqs)
{
    return hooks_array_bytes(1, sizeof(pkv_slots)) +
           hooks_array_bytes((size_t)max_seqs, sizeof(struct slot_map_record)) +
           block_pool_bytes(max_seqs);
}

/* A half-built map is destroyed like a whole one. */
static enum pkv_status build(pkv_slots *slots)
{
    const size_t count = (size_t)slots->max_seqs;
    slots->records = hooks_alloc_array(&slots->hooks, count, sizeof slots->records[0]);
    if (slots->records == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for %d slots", slots->max_seqs);
    }
    for (size_t i = 0; i < count; i++) {
        slots->records[i].generation = 1;
    }
    return pkv_pool_create(slots->max_seqs, &slots->hooks, &slots->pool);
}

enum pkv_status pkv_slots_create(int32_t max_seqs, int32_t max_seq, const struct pkv_hooks *hooks,
                                 pkv_slots **slots)
{
    struct pkv_hooks memory;
    if (slots == NULL) {
        return INVALID("slots is NULL");
    }
    if (max_seqs < 1) {
        return INVALID("max_seqs = %d, below 1", max_seqs);
    }
    if (max_seq < 1) {
        return INVALID("max_seq = %d, below 1", max_seq);
    }
    enum pkv_status status = hooks_copy(hooks, &memory);
    if (status != PKV_OK) {
        return status;
    }
    pkv_slots *made = hooks_alloc_array(&memory, 1, sizeof *made);
    if (made == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for a slot map");
    }
    made->hooks = memory;
    made->max_seqs = max_seqs;
    made->max_seq = max_seq;
    status = build(made);
    if (status != PKV_OK) {
        pkv_slots_destroy(made);
        return status;
    }
    *slots = made;
    return PKV_OK;
}

void pkv_slots_destroy(pkv_slots *slots)
{
    if (slots == NULL) {
        return;
    }
    const struct pkv_hooks memory = slots->hooks;
    pkv_pool_destroy(slots->pool);
    hooks_free_array(&memory, slots->records, (size_t)slots->max_seqs, sizeof slots->records[0]);
    hooks_free_array(&memory, slots, 1, sizeof *slots);
}

enum pkv_status pkv_slots_claim(pkv_slots *slots, pkv_slot *slot)
{
    if (slots == NULL || slot == NULL) {
        return INVALID("%s is NULL", slots == NULL ? "slots" : "slot");
    }
    const int32_t taken = block_pool_take(slots->pool);
    if (taken < 0) {
        return refuse(PKV_NO_BLOCKS, "all %d slots are claimed", slots->max_seqs);
    }
    const uint64_t generation = slots->records[taken].generation;
    slot->id = generation << GENERATION_SHIFT | (uint32_t)taken;
    return PKV_OK;
}

enum pkv_status pkv_slots_release(pkv_slots *slots, pkv_slot slot)
{
    enum pkv_status status;
    struct slot_map_record *record = find(slots, slot, &status);
    if (record == NULL) {
        return status;
    }
    record->length = 0;
    record->generation = record->generation == UINT32_MAX ? 1 : record->generation + 1;
    block_pool_drop_to(slots->pool, (int32_t)slot_of(slot), CLASS_RELEASED);
    return PKV_OK;
}

enum pkv_status pkv_slots_id(const pkv_slots *slots, pkv_slot slot, int32_t *slot_id)
{
    enum pkv_status status;
    if (slot_id == NULL) {
        return INVALID("slot_id is NULL");
    }
    if (find(slots, slot, &status) != NULL) {
        *slot_id = (int32_t)slot_of(slot);
    }
    return status;
}

enum pkv_status pkv_slots_length(const pkv_slots *slots, pkv_slot slot, int32_t *length)
{
    enum pkv_status status;
    if (length == NULL) {
        return INVALID("length is NULL");
    }
    const struct slot_map_record *record = find(slots, slot, &status);
    if (record != NULL) {
        *length = record->length;
    }
    return status;
}

enum pkv_status pkv_slots_set_length(pkv_slots *slots, pkv_slot slot, int32_t length)
{
    enum pkv_status status;
    struct slot_map_record *record = find(slots, slot, &status);
    if (record == NULL) {
        return status;
    }
    if (length < 0 || length > slots->max_seq) {
        return INVALID("length = %d, outside [0, %d]", length, slots->max_seq);
    }
    record->length = length;
    return PKV_OK;
}

static void begin_fill(pkv_slots *slots)
{
    slots->epoch++;
    if (slots->epoch == 0) {
        for (int32_t i = 0; i < slots->max_seqs; i++) {
            slots->records[i].stamp = 0;
        }
        slots->epoch = 1;
    }
}

static int32_t q_len_of(const int32_t *q_lens, int32_t i)
{
    return q_lens == NULL ? 1 : q_lens[i];
}

static enum pkv_status check_claim(pkv_slots *slots, const pkv_slot *claims, const int32_t *q_lens,
                                   int32_t i)
{
    if (!is_good(slots, claims[i])) {
        return refuse(PKV_STALE_HANDLE, "claims[%d] = %#llx, released or never claimed here", i,
                      (unsigned long long)claims[i].id);
    }
    struct slot_map_record *record = &slots->records[slot_of(claims[i])];
    if (record->stamp == slots->epoch) {
        return INVALID("claims[%d] names slot %u, which the list names already", i,
                       (unsigned)slot_of(claims[i]));
    }
    record->stamp = slots->epoch;
    const int32_t q_len = q_len_of(q_lens, i);
    if (q_len < 0) {
        return INVALID("q_lens[%d] = %d, below 0", i, q_len);
    }
    if (q_len > slots->max_seq - record->length) {
        return INVALID("q_lens[%d] = %d after %d cells, but max_seq is %d", i, q_len,
                       record->length, slots->max_seq);
    }
    return PKV_OK;
}

static enum pkv_status check_fill(const pkv_slots *slots, const pkv_slot *claims, int32_t count,
                                  const int32_t *slot_ids, const int32_t *kv_lens)
{
    if (slots == NULL) {
        return INVALID("slots is NULL");
    }
    if (count < 0) {
        return INVALID("count = %d, below 0", count);
    }
    if (count > 0 && (claims == NULL || slot_ids == NULL || kv_lens == NULL)) {
        return INVALID("%s is NULL", claims == NULL     ? "claims"
                                     : slot_ids == NULL ? "slot_ids"
                                                        : "kv_lens");
    }
    return PKV_OK;
}

enum pkv_status pkv_slots_fill(pkv_slots *slots, const pkv_slot *claims, const int32_t *q_lens,
                               int32_t count, int32_t *slot_ids, int32_t *kv_lens)
{
    enum pkv_status status = check_fill(slots, claims, count, slot_ids, kv_lens);
    if (status != PKV_OK) {
        return status;
    }
    begin_fill(slots);
    for (int32_t i = 0; i < count; i++) {
        status = check_claim(slots, claims, q_lens, i);
        if (status != PKV_OK) {
            return status;
        }
    }
    for (int32_t i = 0; i < count; i++) {
        const uint32_t slot = slot_of(claims[i]);
        kv_lens[i] = slots->records[slot].length + q_len_of(q_lens, i);
        slot_ids[i] = (int32_t)slot;
    }
    return PKV_OK;
}

int32_t pkv_slots_num_free(const pkv_slots *slots)
{
    return slots == NULL ? 0 : pkv_pool_num_free(slots->pool);
}

static void check_slot(struct report *report, const pkv_slots *slots, int32_t i)
{
    const struct slot_map_record *record = &slots->records[i];
    const int32_t owners = pkv_pool_ref_count(slots->pool, i);
    report_expect(report, owners <= 1, "%d owners (slot %d)", owners, i);
    report_expect(report, owners > 0 || record->length == 0, "free, but with a length (slot %d)",
                  i);
    report_expect(report, record->length >= 0 && record->length <= slots->max_seq,
                  "length %d, outside [0, %d] (slot %d)", record->length, slots->max_seq, i);
    report_expect(report, record->generation != 0, "generation 0 (slot %d)", i);
    report_expect(report, record->stamp <= slots->epoch, "a stamp of a later fill (slot %d)", i);
}

int32_t pkv_slots_check(const pkv_slots *slots)
{
    if (slots == NULL) {
        (void)INVALID("slots is NULL");
        return 1;
    }
    struct report report = {&slots->hooks, "slot map", pkv_pool_check(slots->pool)};
    for (int32_t i = 0; i < slots->max_seqs; i++) {
        check_slot(&report, slots, i);
    }
    return report.num_broken;
}
