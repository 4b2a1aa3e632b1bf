/* SPDX-License-Identifier: MIT
 *
 * Integers are little-endian; `order` is written in the machine's order, as the payload is, so a
 * machine of the other order finds another content. */
#include "tiers/record.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/little_endian.h"

#define VERSION 1
#define ORDER 0x01020304u
#define EPOCHS_AT 96
#define EPOCH_BYTES (8 * (size_t)RECORD_NUM_EPOCHS)
#define FIELDS_AT (EPOCHS_AT + EPOCH_BYTES)
#define HASH_BYTES 16
#define FIELD_HEAD_BYTES 8

static const char magic[8] = {'P', 'K', 'V', 'B', 'L', 'O', 'C', 'K'};

size_t record_head_bytes(const struct record *record)
{
    size_t bytes = FIELDS_AT + HASH_BYTES;
    for (int32_t i = 0; i < record->num_fields; i++) {
        bytes += FIELD_HEAD_BYTES + (size_t)record->fields[i].length;
    }
    bytes += (size_t)record->block_size * sizeof *record->tokens;
    return bytes + (record->extra != NULL ? (size_t)record->block_size * sizeof *record->extra : 0);
}

size_t record_max_head_bytes(int32_t block_size)
{
    return FIELDS_AT + HASH_BYTES +
           PKV_MAX_NAMESPACE_FIELDS * (FIELD_HEAD_BYTES + (size_t)PKV_MAX_NAMESPACE_BYTES) +
           (size_t)block_size * (sizeof(int32_t) + sizeof(uint64_t));
}

static unsigned char *put_key(unsigned char *to, struct pkv_block_key key)
{
    return put_u64(put_u64(to, key.low), key.high);
}

static unsigned char *put_field(unsigned char *to, const struct pkv_namespace_field *field)
{
    to = put_u32(to, (uint32_t)field->tag);
    to = put_u32(to, (uint32_t)field->length);
    if (field->length > 0) {
        memcpy(to, field->bytes, (size_t)field->length);
    }
    return to + field->length;
}

void record_write(const struct record *record, unsigned char *head)
{
    const uint32_t order = ORDER;
    unsigned char *to = head;
    memcpy(to, magic, sizeof magic);
    to = put_u32(to + sizeof magic, VERSION);
    to = put_u32(to, (uint32_t)record_head_bytes(record));
    to = put_key(put_key(put_key(to, record->fingerprint), record->key), record->parent);
    to = put_u32(put_u32(to, (uint32_t)record->depth), (uint32_t)record->group);
    to = put_u32(put_u32(to, (uint32_t)record->block_size), (uint32_t)record->num_fields);
    to = put_u64(to, (uint64_t)record->payload_bytes);
    to = put_u32(to, record->extra != NULL);
    memcpy(to, &order, sizeof order);
    to += sizeof order;
    memset(to, 0, EPOCH_BYTES);
    to += EPOCH_BYTES;
    for (int32_t i = 0; i < record->num_fields; i++) {
        to = put_field(to, &record->fields[i]);
    }
    to = put_i32s(to, record->tokens, (size_t)record->block_size);
    for (int32_t i = 0; record->extra != NULL && i < record->block_size; i++) {
        to = put_u64(to, record->extra[i]);
    }
    memset(to, 0, HASH_BYTES);
}

void record_set_epochs(unsigned char *head, const uint64_t epochs[RECORD_NUM_EPOCHS])
{
    unsigned char *to = head + EPOCHS_AT;
    for (int32_t i = 0; i < RECORD_NUM_EPOCHS; i++) {
        to = put_u64(to, epochs[i]);
    }
}

void record_seal(unsigned char *head, size_t head_bytes, uint64_t payload_hash)
{
    unsigned char *to = put_u64(head + head_bytes - HASH_BYTES, payload_hash);
    (void)put_u64(to, hash_64(head, head_bytes - sizeof(uint64_t)));
}

enum record_verdict record_compare(const unsigned char *expected, const unsigned char *found,
                                   size_t head_bytes, uint64_t payload_hash)
{
    unsigned char hashes[HASH_BYTES];
    (void)put_u64(put_u64(hashes, payload_hash), hash_64(found, head_bytes - sizeof(uint64_t)));
    if (memcmp(found + head_bytes - HASH_BYTES, hashes, HASH_BYTES) != 0) {
        return RECORD_CORRUPT;
    }
    if (memcmp(found, expected, EPOCHS_AT) != 0 ||
        memcmp(found + FIELDS_AT, expected + FIELDS_AT, head_bytes - HASH_BYTES - FIELDS_AT) != 0) {
        return RECORD_OTHER;
    }
    return memcmp(found + EPOCHS_AT, expected + EPOCHS_AT, EPOCH_BYTES) == 0 ? RECORD_SAME
                                                                             : RECORD_VOID;
}

uint64_t record_hash(const struct pkv_piece *pieces, int32_t num_pieces)
{
    struct hash_stream stream;
    hash_begin(&stream);
    for (int32_t i = 0; i < num_pieces; i++) {
        hash_add(&stream, pieces[i].bytes, pieces[i].length);
    }
    return hash_end(&stream);
}

#define KEY_FORMAT "%016llx%016llx"
#define KEY_VALUES(key) (unsigned long long)(key).high, (unsigned long long)(key).low

void record_name(struct pkv_block_key of_namespace, struct pkv_block_key key, int32_t group,
                 char name[PKV_MAX_TIER_NAME + 1])
{
    snprintf(name, PKV_MAX_TIER_NAME + 1, KEY_FORMAT "." KEY_FORMAT ".%x", KEY_VALUES(of_namespace),
             KEY_VALUES(key), (unsigned)group);
}

void record_counter_name(const struct pkv_namespace_field *field, char name[PKV_MAX_TIER_NAME + 1])
{
    unsigned char bytes[FIELD_HEAD_BYTES + PKV_MAX_NAMESPACE_BYTES];
    if (field == NULL) {
        snprintf(name, PKV_MAX_TIER_NAME + 1, "epoch");
        return;
    }
    const unsigned char *end = put_field(bytes, field);
    const struct pkv_block_key key = hash_128(bytes, (size_t)(end - bytes));
    snprintf(name, PKV_MAX_TIER_NAME + 1, "epoch." KEY_FORMAT, KEY_VALUES(key));
}
