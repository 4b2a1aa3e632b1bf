/* SPDX-License-Identifier: MIT
 *
 * prefix_reach.h: from which block on each field of a namespace counts, by begins_at and block size
 * alone. O(fields squared), and there are at most four. */
#ifndef PKV_PREFIX_REACH_H
#define PKV_PREFIX_REACH_H

#include "pagedkv/base.h"

/* The set of fields changes at block from[i]; from[0] = 0 and from rises. */
struct prefix_reach {
    int32_t num_fields;
    struct pkv_namespace_field fields[PKV_MAX_NAMESPACE_FIELDS]; /* in order of tag */
    int32_t first_block[PKV_MAX_NAMESPACE_FIELDS];               /* of each */
    int32_t count;
    int32_t from[PKV_MAX_NAMESPACE_FIELDS + 1];
};

/* Of fields in any order, at most PKV_MAX_NAMESPACE_FIELDS, each checked by prefix_field_check.
 * PKV_INVALID_ARGUMENT: a tag appears twice. */
enum pkv_status prefix_reach_of(const struct pkv_namespace_field *fields, int32_t num_fields,
                                int32_t block_size, struct prefix_reach *reach);

/* The fields that count in a block, in order of tag; returns their number. */
int32_t prefix_reach_at(const struct prefix_reach *reach, int32_t block,
                        struct pkv_namespace_field begun[PKV_MAX_NAMESPACE_FIELDS]);

#endif
