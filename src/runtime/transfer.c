/* SPDX-License-Identifier: MIT
 *
 * A block is written with the counts of flushes as they were before it is written, and read with
 * those before it is read: what a flush comes in between of is void. */
#include "runtime/transfer.h"

#include <string.h>

#include "tiers/tier.h"

void transfer_carve(struct transfer *transfer, int32_t max_pieces, size_t max_head_bytes,
                    struct carver *carver)
{
    const size_t max_blocks = TRANSFER_MAX_BLOCKS;
    const size_t max_names = TRANSFER_MAX_NAMES;
    transfer->names = carve(carver, max_names, sizeof *transfer->names);
    transfer->wanted = carve(carver, max_names, sizeof *transfer->wanted);
    transfer->results = carve(carver, max_names, sizeof *transfer->results);
    transfer->items = carve(carver, max_names, sizeof *transfer->items);
    transfer->sources = carve(carver, max_names, sizeof *transfer->sources);
    transfer->entries = carve(carver, max_names, sizeof *transfer->entries);
    transfer->blocks = carve(carver, max_blocks, sizeof *transfer->blocks);
    unsigned char *heads = carve(carver, 2 * max_blocks, max_head_bytes);
    struct pkv_piece *pieces = carve(carver, max_blocks, ((size_t)max_pieces + 1) * sizeof *pieces);
    for (size_t i = 0; carver->base != NULL && i < max_blocks; i++) {
        transfer->blocks[i].head = heads + 2 * i * max_head_bytes;
        transfer->blocks[i].found = heads + (2 * i + 1) * max_head_bytes;
        transfer->blocks[i].pieces = pieces + i * ((size_t)max_pieces + 1);
    }
}

void transfer_begin(struct transfer *transfer, enum transfer_kind kind,
                    const struct pkv_namespace_field *fields, int32_t num_fields)
{
    transfer->kind = kind;
    transfer->count = 0;
    transfer->num_fields = num_fields;
    transfer->payload_bytes = 0;
    record_counter_name(NULL, transfer->counters[0]);
    for (int32_t i = 0; i < num_fields; i++) {
        record_counter_name(&fields[i], transfer->counters[1 + i]);
    }
}

int32_t transfer_add(struct transfer *transfer, const char *name, uint32_t tiers, int32_t entry)
{
    const int32_t at = transfer->count++;
    memcpy(transfer->names[at], name, strlen(name) + 1);
    memset(transfer->results[at], TRANSFER_NONE, sizeof transfer->results[at]);
    transfer->wanted[at] = (uint8_t)tiers;
    transfer->entries[at] = entry;
    return at;
}

bool transfer_has_room(const struct transfer *transfer, size_t payload_bytes)
{
    return transfer->count == 0 ||
           (transfer->count < TRANSFER_MAX_BLOCKS && payload_bytes <= TRANSFER_MAX_BYTES &&
            transfer->payload_bytes <= TRANSFER_MAX_BYTES - payload_bytes);
}

/* The counts of flushes in a tier; false when it does not tell. */
static bool read_epochs(const struct transfer *transfer, const pkv_tier *tier,
                        uint64_t epochs[RECORD_NUM_EPOCHS])
{
    struct pkv_tier_counter counters[RECORD_NUM_EPOCHS] = {{0}};
    const int32_t count = 1 + transfer->num_fields;
    bool is_known = true;
    for (int32_t i = 0; i < count; i++) {
        counters[i].name = transfer->counters[i];
    }
    tier_count(tier, counters, count);
    for (int32_t i = 0; i < RECORD_NUM_EPOCHS; i++) {
        epochs[i] = counters[i].value;
        is_known = is_known && (i >= count || counters[i].status == PKV_OK);
    }
    return is_known;
}

/* The items that tier t is to look up, read or write, as items of a call; returns their number. */
static int32_t gather(struct transfer *transfer, int32_t t)
{
    int32_t count = 0;
    for (int32_t i = 0; i < transfer->count; i++) {
        if ((transfer->wanted[i] >> t & 1) == 0) {
            continue;
        }
        struct pkv_tier_item *item = &transfer->items[count];
        *item = (struct pkv_tier_item){.name = transfer->names[i]};
        if (transfer->kind != TRANSFER_FIND) {
            const struct transfer_block *block = &transfer->blocks[i];
            item->pieces = block->pieces;
            item->num_pieces = 1 + block->num_pieces;
            item->bytes = block->head_bytes + block->payload_bytes;
        }
        transfer->sources[count++] = i;
    }
    return count;
}

static void fail(struct transfer *transfer, int32_t t, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        transfer->results[transfer->sources[i]][t] = TRANSFER_FAILED;
    }
}

static void store(struct transfer *transfer, const pkv_tier *tier, int32_t t, int32_t count)
{
    uint64_t epochs[RECORD_NUM_EPOCHS];
    if (!read_epochs(transfer, tier, epochs)) {
        fail(transfer, t, count);
        return;
    }
    for (int32_t i = 0; i < count; i++) {
        struct transfer_block *block = &transfer->blocks[transfer->sources[i]];
        record_set_epochs(block->head, epochs);
        record_seal(block->head, block->head_bytes, block->hash);
    }
    tier_put(tier, transfer->items, count);
    for (int32_t i = 0; i < count; i++) {
        transfer->results[transfer->sources[i]][t] =
            transfer->items[i].status == PKV_OK ? TRANSFER_DONE : TRANSFER_FAILED;
    }
}

static enum transfer_result judge(struct transfer_block *block, enum pkv_status status,
                                  const uint64_t epochs[RECORD_NUM_EPOCHS])
{
    if (status != PKV_OK) {
        return status == PKV_NOT_FOUND ? TRANSFER_MISSED
               : status == PKV_CORRUPT ? TRANSFER_CORRUPT
                                       : TRANSFER_FAILED;
    }
    record_set_epochs(block->head, epochs);
    switch (record_compare(block->head, block->found, block->head_bytes,
                           record_hash(block->pieces + 1, block->num_pieces))) {
    case RECORD_SAME: return TRANSFER_DONE;
    case RECORD_VOID: return TRANSFER_VOID;
    case RECORD_OTHER: return TRANSFER_OTHER;
    default: return TRANSFER_CORRUPT;
    }
}

/* What is damaged or void is removed: nothing finds it twice. */
static void remove_broken(struct transfer *transfer, const pkv_tier *tier, int32_t t, int32_t count)
{
    int32_t num_broken = 0;
    for (int32_t i = 0; i < count; i++) {
        const int32_t source = transfer->sources[i];
        const uint8_t result = transfer->results[source][t];
        if (result == TRANSFER_CORRUPT || result == TRANSFER_VOID) {
            transfer->items[num_broken++] = (struct pkv_tier_item){.name = transfer->names[source]};
        }
    }
    tier_remove(tier, transfer->items, num_broken);
}

static void load(struct transfer *transfer, const pkv_tier *tier, int32_t t, int32_t count)
{
    uint64_t epochs[RECORD_NUM_EPOCHS];
    if (!read_epochs(transfer, tier, epochs)) {
        fail(transfer, t, count);
        return;
    }
    tier_get(tier, transfer->items, count);
    for (int32_t i = 0; i < count; i++) {
        const int32_t source = transfer->sources[i];
        transfer->results[source][t] =
            (uint8_t)judge(&transfer->blocks[source], transfer->items[i].status, epochs);
    }
    remove_broken(transfer, tier, t, count);
}

static void find(struct transfer *transfer, const pkv_tier *tier, int32_t t, int32_t count)
{
    tier_find(tier, transfer->items, count);
    for (int32_t i = 0; i < count; i++) {
        const enum pkv_status status = transfer->items[i].status;
        transfer->results[transfer->sources[i]][t] = status == PKV_OK          ? TRANSFER_DONE
                                                     : status == PKV_NOT_FOUND ? TRANSFER_MISSED
                                                                               : TRANSFER_FAILED;
    }
}

static void raise_counter(struct transfer *transfer, const pkv_tier *tier, int32_t t)
{
    struct pkv_tier_counter counter = {.name = transfer->names[0], .add = 1};
    tier_count(tier, &counter, 1);
    transfer->results[0][t] = counter.status == PKV_OK ? TRANSFER_DONE : TRANSFER_FAILED;
}

/* Tiers behind this one need not look for what it has. */
static void settle(struct transfer *transfer, int32_t t)
{
    for (int32_t i = 0; i < transfer->count; i++) {
        if (transfer->results[i][t] == TRANSFER_DONE) {
            transfer->wanted[i] = (uint8_t)(transfer->wanted[i] & ((1u << (t + 1)) - 1));
        }
    }
}

void transfer_run(struct transfer *transfer, pkv_tier *const *tiers, int32_t num_tiers)
{
    for (int32_t i = 0; transfer->kind == TRANSFER_STORE && i < transfer->count; i++) {
        struct transfer_block *block = &transfer->blocks[i];
        block->hash = record_hash(block->pieces + 1, block->num_pieces);
    }
    for (int32_t t = 0; t < num_tiers; t++) {
        const int32_t count = gather(transfer, t);
        if (count == 0) {
            continue;
        }
        switch (transfer->kind) {
        case TRANSFER_FIND: find(transfer, tiers[t], t, count); break;
        case TRANSFER_LOAD: load(transfer, tiers[t], t, count); break;
        case TRANSFER_STORE: store(transfer, tiers[t], t, count); break;
        case TRANSFER_RAISE: raise_counter(transfer, tiers[t], t); break;
        }
        if (transfer->kind == TRANSFER_FIND || transfer->kind == TRANSFER_LOAD) {
            settle(transfer, t);
        }
    }
}
