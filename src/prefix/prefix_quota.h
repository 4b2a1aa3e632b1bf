/* SPDX-License-Identifier: MIT
 *
 * prefix_quota.h: how much each field of a namespace holds, and may hold, in the caller's unit (say
 * blocks). Nothing here refuses: the caller looks at the room before it charges. O(1). */
#ifndef PKV_PREFIX_QUOTA_H
#define PKV_PREFIX_QUOTA_H

#include "prefix/prefix_index.h"

struct prefix_usage {
    int64_t held;   /* the sum of charges */
    int64_t quota;  /* INT64_MAX = none */
    int64_t cached; /* blocks, held or free, that have a node in a namespace with this field */
};

/* Adds `amount`, which may be negative, to what every field of the namespace holds. */
void prefix_index_charge(struct prefix_index *index, int32_t namespace_id, int64_t amount);

/* The least of quota - held over the fields of a namespace, INT64_MAX without any quota; may be
 * negative. */
int64_t prefix_index_room(const struct prefix_index *index, int32_t namespace_id);

/* Sets the quota of one field value, >= 0; INT64_MAX = none. The field then stays in the table
 * until its quota is taken away. begins_at does not matter, here and below. PKV_NO_BLOCKS when the
 * table is full. */
enum pkv_status prefix_index_set_quota(struct prefix_index *index,
                                       const struct pkv_namespace_field *field, int64_t quota);

/* PKV_NOT_FOUND for a field that no scope, node or quota names. */
enum pkv_status prefix_index_usage(const struct prefix_index *index,
                                   const struct pkv_namespace_field *field,
                                   struct prefix_usage *usage);

#endif
