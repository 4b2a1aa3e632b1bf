/* SPDX-License-Identifier: MIT
 *
 * Quotas. A field with a quota has a reference for it, so that the quota outlasts the sequences. */
#include "prefix/prefix_quota.h"

#include "base/error.h"

void prefix_index_charge(struct prefix_index *index, int32_t namespace_id, int64_t amount)
{
    const struct prefix_namespace *record = &index->namespaces.records[namespace_id];
    for (int32_t i = 0; i < record->num_fields; i++) {
        index->namespaces.fields.records[record->fields[i]].held += amount;
    }
}

int64_t prefix_index_room(const struct prefix_index *index, int32_t namespace_id)
{
    const struct prefix_namespace *record = &index->namespaces.records[namespace_id];
    int64_t room = INT64_MAX;
    for (int32_t i = 0; i < record->num_fields; i++) {
        const struct prefix_field *field = &index->namespaces.fields.records[record->fields[i]];
        if (field->quota != INT64_MAX && field->quota - field->held < room) {
            room = field->quota - field->held;
        }
    }
    return room;
}

static void take_away(struct prefix_field_table *fields, int32_t id)
{
    if (id != PREFIX_NONE && fields->records[id].quota != INT64_MAX) {
        fields->records[id].quota = INT64_MAX;
        prefix_field_release(fields, id);
    }
}

enum pkv_status prefix_index_set_quota(struct prefix_index *index,
                                       const struct pkv_namespace_field *field, int64_t quota)
{
    struct prefix_field_table *fields = &index->namespaces.fields;
    int32_t id = prefix_field_find(fields, field);
    if (quota == INT64_MAX) {
        take_away(fields, id);
        return PKV_OK;
    }
    if (id == PREFIX_NONE || fields->records[id].quota == INT64_MAX) {
        id = prefix_field_intern(fields, field);
    }
    if (id == PREFIX_NONE) {
        return refuse(PKV_NO_BLOCKS, "the table of %d namespace fields is full",
                      fields->max_records);
    }
    fields->records[id].quota = quota;
    return PKV_OK;
}

enum pkv_status prefix_index_usage(const struct prefix_index *index,
                                   const struct pkv_namespace_field *field,
                                   struct prefix_usage *usage)
{
    const struct prefix_field_table *fields = &index->namespaces.fields;
    const int32_t id = prefix_field_find(fields, field);
    if (id == PREFIX_NONE) {
        return refuse(PKV_NOT_FOUND, "namespace field %d: none has these bytes", field->tag);
    }
    const struct prefix_field *record = &fields->records[id];
    *usage = (struct prefix_usage){record->held, record->quota, record->cached};
    return PKV_OK;
}
