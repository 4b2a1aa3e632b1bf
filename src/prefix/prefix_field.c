/* SPDX-License-Identifier: MIT
 *
 * The table of field values. A tag is part of what is compared, and so is the length, so nothing
 * depends on how the bytes of several fields would be strung together. */
#include "prefix/prefix_field.h"

#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "prefix/prefix_ref.h"

enum pkv_status prefix_field_check(const struct pkv_namespace_field *field)
{
    if (field->length < 0 || field->length > PKV_MAX_NAMESPACE_BYTES) {
        return INVALID("namespace field %d: length = %d, outside [0, %d]", field->tag,
                       field->length, PKV_MAX_NAMESPACE_BYTES);
    }
    if (field->bytes == NULL && field->length > 0) {
        return INVALID("namespace field %d: bytes is NULL", field->tag);
    }
    if (field->begins_at < 0) {
        return INVALID("namespace field %d: begins_at = %d, below 0", field->tag, field->begins_at);
    }
    return PKV_OK;
}

static uint32_t bucket_of(const struct prefix_field_table *table,
                          const struct pkv_namespace_field *field)
{
    const struct pkv_block_key key = hash_128(field->bytes, (size_t)field->length);
    return (uint32_t)(key.low ^ key.high ^ (uint32_t)field->tag ^ table->seed) &
           (table->num_buckets - 1);
}

static bool is_field(const struct prefix_field *record, const struct pkv_namespace_field *field)
{
    return record->tag == field->tag && record->length == field->length &&
           (field->length == 0 || memcmp(record->bytes, field->bytes, (size_t)field->length) == 0);
}

static int32_t find_in(const struct prefix_field_table *table, uint32_t bucket,
                       const struct pkv_namespace_field *field)
{
    for (int32_t link = table->buckets[bucket]; link != 0; link = table->records[link - 1].next) {
        if (is_field(&table->records[link - 1], field)) {
            return link - 1;
        }
    }
    return PREFIX_NONE;
}

int32_t prefix_field_find(const struct prefix_field_table *table,
                          const struct pkv_namespace_field *field)
{
    return find_in(table, bucket_of(table, field), field);
}

/* An unused record; PREFIX_NONE when the table is full. */
static int32_t take_record(struct prefix_field_table *table)
{
    if (table->free_head != 0) {
        const int32_t taken = table->free_head - 1;
        table->free_head = table->records[taken].next;
        return taken;
    }
    return table->num_touched < table->max_records ? table->num_touched++ : PREFIX_NONE;
}

int32_t prefix_field_intern(struct prefix_field_table *table,
                            const struct pkv_namespace_field *field)
{
    const uint32_t bucket = bucket_of(table, field);
    int32_t id = find_in(table, bucket, field);
    if (id != PREFIX_NONE) {
        table->records[id].refs++;
        return id;
    }
    id = take_record(table);
    if (id == PREFIX_NONE) {
        return PREFIX_NONE;
    }
    struct prefix_field *record = &table->records[id];
    *record = (struct prefix_field){.quota = INT64_MAX,
                                    .tag = field->tag,
                                    .length = field->length,
                                    .refs = 1,
                                    .next = table->buckets[bucket]};
    if (field->length > 0) {
        memcpy(record->bytes, field->bytes, (size_t)field->length);
    }
    table->buckets[bucket] = id + 1;
    return id;
}

void prefix_field_release(struct prefix_field_table *table, int32_t id)
{
    struct prefix_field *record = &table->records[id];
    if (--record->refs > 0) {
        return;
    }
    const struct pkv_namespace_field field = prefix_field_read(table, id);
    int32_t *link = &table->buckets[bucket_of(table, &field)];
    while (*link != id + 1) {
        link = &table->records[*link - 1].next;
    }
    *link = record->next;
    record->next = table->free_head;
    table->free_head = id + 1;
}

struct pkv_namespace_field prefix_field_read(const struct prefix_field_table *table, int32_t id)
{
    const struct prefix_field *record = &table->records[id];
    return (struct pkv_namespace_field){record->tag, record->length, record->bytes, 0};
}
