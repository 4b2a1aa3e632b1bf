/* SPDX-License-Identifier: MIT
 *
 * Namespaces of the prefix index: field values and sets of them, each interned, so that comparing
 * two namespaces is comparing two ids and nothing depends on how their bytes are strung together.
 *
 *   refs of a field      = namespaces that contain it, + 1 while it has a quota
 *   refs of a namespace  = scopes that name it, once an entry, + nodes in it (+ 1 for namespace 0)
 *   cached of a field    = sum of num_blocks of the nodes in namespaces that contain it
 *
 * A record whose refs reach zero is free at once: nothing that it said is needed any more. */
#include "prefix/prefix_table.h"

#include <string.h>

#include "base/error.h"
#include "prefix/prefix_hash.h"

uint32_t prefix_field_bucket(const struct prefix_index *index,
                             const struct pkv_namespace_field *field)
{
    const struct prefix_key key = prefix_hash_bytes(field->bytes, (size_t)field->length);
    return (uint32_t)(key.low ^ key.high ^ (uint32_t)field->tag ^ index->config.seed) &
           (index->num_name_buckets - 1);
}

uint32_t prefix_namespace_bucket(const struct prefix_index *index, const int32_t *fields,
                                 int32_t num_fields)
{
    const struct prefix_key key = prefix_hash_bytes(fields, (size_t)num_fields * sizeof fields[0]);
    return (uint32_t)(key.low ^ key.high ^ index->config.seed) & (index->num_name_buckets - 1);
}

/* --- fields */

static int32_t find_field(const struct prefix_index *index, const struct pkv_namespace_field *field,
                          uint32_t bucket)
{
    for (int32_t at = index->field_list.buckets[bucket]; at != 0;) {
        const struct field_record *record = &index->fields[at - 1];
        if (record->tag == field->tag && record->length == field->length &&
            (field->length == 0 ||
             memcmp(record->bytes, field->bytes, (size_t)field->length) == 0)) {
            return at - 1;
        }
        at = record->next;
    }
    return PREFIX_NONE;
}

static int32_t look_up_field(const struct prefix_index *index,
                             const struct pkv_namespace_field *field)
{
    return find_field(index, field, prefix_field_bucket(index, field));
}

/* One more reference to the field, made when there is none; PREFIX_NONE when the table is full. */
static int32_t intern_field(struct prefix_index *index, const struct pkv_namespace_field *field)
{
    struct record_list *list = &index->field_list;
    const uint32_t bucket = prefix_field_bucket(index, field);
    int32_t id = find_field(index, field, bucket);
    if (id != PREFIX_NONE) {
        index->fields[id].refs++;
        return id;
    }
    if (list->free_head != 0) {
        id = list->free_head - 1;
        list->free_head = index->fields[id].next;
    } else if (list->num_touched < index->config.max_namespaces) {
        id = list->num_touched++;
    } else {
        return PREFIX_NONE;
    }
    struct field_record *record = &index->fields[id];
    memset(record, 0, sizeof *record);
    record->quota = INT64_MAX;
    record->tag = field->tag;
    record->length = field->length;
    record->refs = 1;
    if (field->length > 0) {
        memcpy(record->bytes, field->bytes, (size_t)field->length);
    }
    record->next = list->buckets[bucket];
    list->buckets[bucket] = id + 1;
    return id;
}

static void release_field(struct prefix_index *index, int32_t id)
{
    struct field_record *record = &index->fields[id];
    if (--record->refs > 0) {
        return;
    }
    struct record_list *list = &index->field_list;
    const struct pkv_namespace_field field = {record->tag, record->length, record->bytes, 0};
    int32_t *link = &list->buckets[prefix_field_bucket(index, &field)];
    while (*link != id + 1) {
        link = &index->fields[*link - 1].next;
    }
    *link = record->next;
    record->next = list->free_head;
    list->free_head = id + 1;
}

/* --- sets of fields */

static int32_t find_namespace(const struct prefix_index *index, const int32_t *fields,
                              int32_t num_fields, uint32_t bucket)
{
    for (int32_t at = index->namespace_list.buckets[bucket]; at != 0;) {
        const struct namespace_record *record = &index->namespaces[at - 1];
        if (record->num_fields == num_fields &&
            memcmp(record->fields, fields, (size_t)num_fields * sizeof fields[0]) == 0) {
            return at - 1;
        }
        at = record->next;
    }
    return PREFIX_NONE;
}

/* One more reference to the set, made when there is none. Its fields must be alive. */
static int32_t intern_namespace(struct prefix_index *index, const int32_t *fields,
                                int32_t num_fields)
{
    struct record_list *list = &index->namespace_list;
    const uint32_t bucket = prefix_namespace_bucket(index, fields, num_fields);
    int32_t id = find_namespace(index, fields, num_fields, bucket);
    if (id != PREFIX_NONE) {
        index->namespaces[id].refs++;
        return id;
    }
    if (list->free_head != 0) {
        id = list->free_head - 1;
        list->free_head = index->namespaces[id].next;
    } else if (list->num_touched < index->config.max_namespaces) {
        id = list->num_touched++;
    } else {
        return PREFIX_NONE;
    }
    struct namespace_record *record = &index->namespaces[id];
    memset(record, 0, sizeof *record);
    record->num_fields = num_fields;
    record->refs = 1;
    for (int32_t i = 0; i < num_fields; i++) {
        record->fields[i] = fields[i];
        index->fields[fields[i]].refs++;
    }
    record->next = list->buckets[bucket];
    list->buckets[bucket] = id + 1;
    return id;
}

void prefix_names_hold(struct prefix_index *index, int32_t namespace_id)
{
    index->namespaces[namespace_id].refs++;
}

void prefix_names_release(struct prefix_index *index, int32_t namespace_id)
{
    struct namespace_record *record = &index->namespaces[namespace_id];
    if (--record->refs > 0) {
        return;
    }
    struct record_list *list = &index->namespace_list;
    int32_t *link =
        &list->buckets[prefix_namespace_bucket(index, record->fields, record->num_fields)];
    while (*link != namespace_id + 1) {
        link = &index->namespaces[*link - 1].next;
    }
    *link = record->next;
    record->next = list->free_head;
    list->free_head = namespace_id + 1;
    for (int32_t i = 0; i < record->num_fields; i++) {
        release_field(index, record->fields[i]);
    }
}

void prefix_names_count(struct prefix_index *index, int32_t namespace_id, int64_t blocks)
{
    const struct namespace_record *record = &index->namespaces[namespace_id];
    for (int32_t i = 0; i < record->num_fields; i++) {
        index->fields[record->fields[i]].cached += blocks;
    }
}

void prefix_names_open(struct prefix_index *index)
{
    (void)intern_namespace(index, (const int32_t[]){0}, 0);
}

/* --- scopes */

static enum pkv_status check_field(const struct pkv_namespace_field *field)
{
    if (field->length < 0 || field->length > PKV_MAX_NAMESPACE_BYTES) {
        return refuse(PKV_INVALID_ARGUMENT, "namespace field %d: length = %d, outside [0, %d]",
                      field->tag, field->length, PKV_MAX_NAMESPACE_BYTES);
    }
    if (field->bytes == NULL && field->length > 0) {
        return refuse(PKV_INVALID_ARGUMENT, "namespace field %d: bytes is NULL", field->tag);
    }
    return PKV_OK;
}

/* Copies the fields in order of tag. */
static enum pkv_status sort_fields(const struct pkv_namespace_field *fields, int32_t num_fields,
                                   struct pkv_namespace_field *sorted)
{
    if (num_fields < 0 || num_fields > PKV_MAX_NAMESPACE_FIELDS) {
        return refuse(PKV_INVALID_ARGUMENT, "namespace: num_fields = %d, outside [0, %d]",
                      num_fields, PKV_MAX_NAMESPACE_FIELDS);
    }
    if (fields == NULL && num_fields > 0) {
        return refuse(PKV_INVALID_ARGUMENT, "namespace: fields is NULL");
    }
    for (int32_t i = 0; i < num_fields; i++) {
        const enum pkv_status status = check_field(&fields[i]);
        if (status != PKV_OK) {
            return status;
        }
        if (fields[i].begins_at < 0) {
            return refuse(PKV_INVALID_ARGUMENT, "namespace field %d: begins_at = %d, below 0",
                          fields[i].tag, fields[i].begins_at);
        }
        int32_t at = i;
        for (; at > 0 && sorted[at - 1].tag > fields[i].tag; at--) {
            sorted[at] = sorted[at - 1];
        }
        if (at > 0 && sorted[at - 1].tag == fields[i].tag) {
            return refuse(PKV_INVALID_ARGUMENT, "namespace: tag %d appears twice", fields[i].tag);
        }
        sorted[at] = fields[i];
    }
    return PKV_OK;
}

static int32_t first_block_of(const struct prefix_index *index,
                              const struct pkv_namespace_field *field)
{
    return (int32_t)(field->begins_at / index->config.block_size);
}

/* The blocks at which the namespace changes: 0, and where fields begin, rising, each once. */
static void find_changes(const struct prefix_index *index, const struct pkv_namespace_field *sorted,
                         int32_t num_fields, struct prefix_scope *scope)
{
    memset(scope, 0, sizeof *scope);
    scope->count = 1;
    for (int32_t done = 0; done < num_fields; done++) {
        int32_t next = INT32_MAX;
        for (int32_t i = 0; i < num_fields; i++) {
            const int32_t block = first_block_of(index, &sorted[i]);
            if (block > scope->from[scope->count - 1] && block < next) {
                next = block;
            }
        }
        if (next == INT32_MAX) {
            return;
        }
        scope->from[scope->count++] = next;
    }
}

/* The fields among the sorted that have begun at a block. */
static int32_t begun_at(const struct prefix_index *index, const struct pkv_namespace_field *sorted,
                        int32_t num_fields, int32_t block, struct pkv_namespace_field *begun)
{
    int32_t count = 0;
    for (int32_t i = 0; i < num_fields; i++) {
        if (first_block_of(index, &sorted[i]) <= block) {
            begun[count++] = sorted[i];
        }
    }
    return count;
}

static int32_t intern_names(struct prefix_index *index, const struct pkv_namespace_field *begun,
                            int32_t count)
{
    int32_t fields[PKV_MAX_NAMESPACE_FIELDS] = {0};
    int32_t interned = 0;
    while (interned < count) {
        fields[interned] = intern_field(index, &begun[interned]);
        if (fields[interned] == PREFIX_NONE) {
            break;
        }
        interned++;
    }
    const int32_t id = interned == count ? intern_namespace(index, fields, count) : PREFIX_NONE;
    for (int32_t i = 0; i < interned; i++) {
        release_field(index, fields[i]); /* the namespace has references of its own */
    }
    return id;
}

static int32_t look_up_names(const struct prefix_index *index,
                             const struct pkv_namespace_field *begun, int32_t count)
{
    int32_t fields[PKV_MAX_NAMESPACE_FIELDS] = {0};
    for (int32_t i = 0; i < count; i++) {
        fields[i] = look_up_field(index, &begun[i]);
        if (fields[i] == PREFIX_NONE) {
            return PREFIX_NONE;
        }
    }
    return find_namespace(index, fields, count, prefix_namespace_bucket(index, fields, count));
}

enum pkv_status prefix_scope_open(struct prefix_index *index,
                                  const struct pkv_namespace_field *fields, int32_t num_fields,
                                  struct prefix_scope *scope)
{
    struct pkv_namespace_field sorted[PKV_MAX_NAMESPACE_FIELDS];
    const enum pkv_status status = sort_fields(fields, num_fields, sorted);
    if (status != PKV_OK) {
        return status;
    }
    struct prefix_scope made;
    find_changes(index, sorted, num_fields, &made);
    for (int32_t i = 0; i < made.count; i++) {
        struct pkv_namespace_field begun[PKV_MAX_NAMESPACE_FIELDS];
        const int32_t count = begun_at(index, sorted, num_fields, made.from[i], begun);
        made.namespace_id[i] = intern_names(index, begun, count);
        if (made.namespace_id[i] == PREFIX_NONE) {
            made.count = i;
            prefix_scope_close(index, &made);
            return refuse(PKV_NO_BLOCKS, "the table of %d namespaces is full",
                          index->config.max_namespaces);
        }
    }
    *scope = made;
    return PKV_OK;
}

enum pkv_status prefix_scope_find(struct prefix_index *index,
                                  const struct pkv_namespace_field *fields, int32_t num_fields,
                                  struct prefix_scope *scope)
{
    struct pkv_namespace_field sorted[PKV_MAX_NAMESPACE_FIELDS];
    const enum pkv_status status = sort_fields(fields, num_fields, sorted);
    if (status != PKV_OK) {
        return status;
    }
    find_changes(index, sorted, num_fields, scope);
    for (int32_t i = 0; i < scope->count; i++) {
        struct pkv_namespace_field begun[PKV_MAX_NAMESPACE_FIELDS];
        const int32_t count = begun_at(index, sorted, num_fields, scope->from[i], begun);
        scope->namespace_id[i] = look_up_names(index, begun, count);
    }
    return PKV_OK;
}

void prefix_scope_share(struct prefix_index *index, const struct prefix_scope *scope)
{
    for (int32_t i = 0; i < scope->count; i++) {
        prefix_names_hold(index, scope->namespace_id[i]);
    }
}

void prefix_scope_close(struct prefix_index *index, struct prefix_scope *scope)
{
    for (int32_t i = 0; i < scope->count; i++) {
        prefix_names_release(index, scope->namespace_id[i]);
    }
    memset(scope, 0, sizeof *scope);
}

/* --- quotas, epochs, reading */

void prefix_index_charge(struct prefix_index *index, int32_t namespace_id, int64_t amount)
{
    const struct namespace_record *record = &index->namespaces[namespace_id];
    for (int32_t i = 0; i < record->num_fields; i++) {
        index->fields[record->fields[i]].held += amount;
    }
}

int64_t prefix_index_room(const struct prefix_index *index, int32_t namespace_id)
{
    const struct namespace_record *record = &index->namespaces[namespace_id];
    int64_t room = INT64_MAX;
    for (int32_t i = 0; i < record->num_fields; i++) {
        const struct field_record *field = &index->fields[record->fields[i]];
        if (field->quota != INT64_MAX && field->quota - field->held < room) {
            room = field->quota - field->held;
        }
    }
    return room;
}

enum pkv_status prefix_index_set_quota(struct prefix_index *index,
                                       const struct pkv_namespace_field *field, int64_t quota)
{
    const enum pkv_status status = check_field(field);
    if (status != PKV_OK) {
        return status;
    }
    if (quota < 0) {
        return refuse(PKV_INVALID_ARGUMENT, "quota = %lld, below 0", (long long)quota);
    }
    int32_t id = look_up_field(index, field);
    if (quota == INT64_MAX) {
        if (id != PREFIX_NONE && index->fields[id].quota != INT64_MAX) {
            index->fields[id].quota = INT64_MAX;
            release_field(index, id);
        }
        return PKV_OK;
    }
    if (id == PREFIX_NONE || index->fields[id].quota == INT64_MAX) {
        id = intern_field(index, field);
    }
    if (id == PREFIX_NONE) {
        return refuse(PKV_NO_BLOCKS, "the table of %d namespace fields is full",
                      index->config.max_namespaces);
    }
    index->fields[id].quota = quota;
    return PKV_OK;
}

enum pkv_status prefix_index_field_usage(const struct prefix_index *index,
                                         const struct pkv_namespace_field *field,
                                         struct prefix_field_usage *usage)
{
    const enum pkv_status status = check_field(field);
    if (status != PKV_OK) {
        return status;
    }
    const int32_t id = look_up_field(index, field);
    if (id == PREFIX_NONE) {
        return refuse(PKV_NOT_FOUND, "no namespace field %d with these bytes", field->tag);
    }
    const struct field_record *record = &index->fields[id];
    *usage = (struct prefix_field_usage){record->held, record->quota, record->cached};
    return PKV_OK;
}

int32_t prefix_namespace_fields(const struct prefix_index *index, int32_t namespace_id,
                                struct pkv_namespace_field fields[PKV_MAX_NAMESPACE_FIELDS])
{
    const struct namespace_record *record = &index->namespaces[namespace_id];
    for (int32_t i = 0; i < record->num_fields; i++) {
        const struct field_record *field = &index->fields[record->fields[i]];
        fields[i] = (struct pkv_namespace_field){field->tag, field->length, field->bytes, 0};
    }
    return record->num_fields;
}

uint64_t prefix_index_epoch(const struct prefix_index *index)
{
    return index->epoch;
}

bool prefix_index_is_current(const struct prefix_index *index, int32_t namespace_id, uint64_t epoch)
{
    const struct namespace_record *record = &index->namespaces[namespace_id];
    bool is_current = epoch >= index->reset;
    for (int32_t i = 0; i < record->num_fields; i++) {
        is_current = is_current && epoch >= index->fields[record->fields[i]].flushed;
    }
    return is_current;
}

static void begin_sweep(struct prefix_index *index)
{
    index->sweep_at = 0;
    index->sweep_left = index->num_touched;
}

void prefix_index_flush(struct prefix_index *index, const struct pkv_namespace_field *field)
{
    const int32_t id = look_up_field(index, field);
    if (id != PREFIX_NONE) {
        index->fields[id].flushed = ++index->epoch;
        begin_sweep(index);
    }
}

void prefix_index_reset(struct prefix_index *index)
{
    index->reset = ++index->epoch;
    begin_sweep(index);
}
