/* SPDX-License-Identifier: MIT
 *
 * The table of namespaces. A namespace refers to the records of its fields, so those live as long
 * as it does, and two sets are equal exactly when their lists of record numbers are. */
#include "prefix/prefix_namespace.h"

#include <string.h>

#include "base/hash.h"
#include "prefix/prefix_ref.h"

static uint32_t bucket_of(const struct prefix_namespace_table *table, const int32_t *fields,
                          int32_t num_fields)
{
    const struct pkv_block_key key = hash_128(fields, (size_t)num_fields * sizeof fields[0]);
    return (uint32_t)(key.low ^ key.high ^ table->seed) & (table->num_buckets - 1);
}

static int32_t find_in(const struct prefix_namespace_table *table, uint32_t bucket,
                       const int32_t *fields, int32_t num_fields)
{
    for (int32_t link = table->buckets[bucket]; link != 0; link = table->records[link - 1].next) {
        const struct prefix_namespace *record = &table->records[link - 1];
        if (record->num_fields == num_fields &&
            memcmp(record->fields, fields, (size_t)num_fields * sizeof fields[0]) == 0) {
            return link - 1;
        }
    }
    return PREFIX_NONE;
}

/* An unused record; PREFIX_NONE when the table is full. */
static int32_t take_record(struct prefix_namespace_table *table)
{
    if (table->free_head != 0) {
        const int32_t taken = table->free_head - 1;
        table->free_head = table->records[taken].next;
        return taken;
    }
    return table->num_touched < table->max_records ? table->num_touched++ : PREFIX_NONE;
}

/* One more reference to the set, made when there is none. Its fields have records. */
static int32_t intern_set(struct prefix_namespace_table *table, const int32_t *fields,
                          int32_t num_fields)
{
    const uint32_t bucket = bucket_of(table, fields, num_fields);
    int32_t id = find_in(table, bucket, fields, num_fields);
    if (id != PREFIX_NONE) {
        table->records[id].refs++;
        return id;
    }
    id = take_record(table);
    if (id == PREFIX_NONE) {
        return PREFIX_NONE;
    }
    struct prefix_namespace *record = &table->records[id];
    *record = (struct prefix_namespace){
        .num_fields = num_fields, .refs = 1, .next = table->buckets[bucket]};
    for (int32_t i = 0; i < num_fields; i++) {
        record->fields[i] = fields[i];
        table->fields.records[fields[i]].refs++;
    }
    table->buckets[bucket] = id + 1;
    return id;
}

void prefix_namespace_start(struct prefix_namespace_table *table)
{
    table->epoch = 1;
    (void)intern_set(table, (const int32_t[]){0}, 0);
}

int32_t prefix_namespace_intern(struct prefix_namespace_table *table,
                                const struct pkv_namespace_field *fields, int32_t num_fields)
{
    int32_t ids[PKV_MAX_NAMESPACE_FIELDS] = {0};
    int32_t num_interned = 0;
    while (num_interned < num_fields) {
        ids[num_interned] = prefix_field_intern(&table->fields, &fields[num_interned]);
        if (ids[num_interned] == PREFIX_NONE) {
            break;
        }
        num_interned++;
    }
    const int32_t id =
        num_interned == num_fields ? intern_set(table, ids, num_fields) : PREFIX_NONE;
    for (int32_t i = 0; i < num_interned; i++) {
        prefix_field_release(&table->fields, ids[i]); /* the set has references of its own */
    }
    return id;
}

int32_t prefix_namespace_find(const struct prefix_namespace_table *table,
                              const struct pkv_namespace_field *fields, int32_t num_fields)
{
    int32_t ids[PKV_MAX_NAMESPACE_FIELDS] = {0};
    for (int32_t i = 0; i < num_fields; i++) {
        ids[i] = prefix_field_find(&table->fields, &fields[i]);
        if (ids[i] == PREFIX_NONE) {
            return PREFIX_NONE;
        }
    }
    return find_in(table, bucket_of(table, ids, num_fields), ids, num_fields);
}

void prefix_namespace_hold(struct prefix_namespace_table *table, int32_t id)
{
    table->records[id].refs++;
}

void prefix_namespace_release(struct prefix_namespace_table *table, int32_t id)
{
    struct prefix_namespace *record = &table->records[id];
    if (--record->refs > 0) {
        return;
    }
    int32_t *link = &table->buckets[bucket_of(table, record->fields, record->num_fields)];
    while (*link != id + 1) {
        link = &table->records[*link - 1].next;
    }
    *link = record->next;
    record->next = table->free_head;
    table->free_head = id + 1;
    for (int32_t i = 0; i < record->num_fields; i++) {
        prefix_field_release(&table->fields, record->fields[i]);
    }
}

int32_t prefix_namespace_read(const struct prefix_namespace_table *table, int32_t id,
                              struct pkv_namespace_field fields[PKV_MAX_NAMESPACE_FIELDS])
{
    const struct prefix_namespace *record = &table->records[id];
    for (int32_t i = 0; i < record->num_fields; i++) {
        fields[i] = prefix_field_read(&table->fields, record->fields[i]);
    }
    return record->num_fields;
}

void prefix_namespace_count(struct prefix_namespace_table *table, int32_t id, int64_t num_blocks)
{
    const struct prefix_namespace *record = &table->records[id];
    for (int32_t i = 0; i < record->num_fields; i++) {
        table->fields.records[record->fields[i]].cached += num_blocks;
    }
}

bool prefix_namespace_is_current(const struct prefix_namespace_table *table, int32_t id,
                                 uint64_t epoch)
{
    const struct prefix_namespace *record = &table->records[id];
    bool is_current = epoch >= table->reset;
    for (int32_t i = 0; i < record->num_fields; i++) {
        is_current = is_current && epoch >= table->fields.records[record->fields[i]].flushed;
    }
    return is_current;
}
