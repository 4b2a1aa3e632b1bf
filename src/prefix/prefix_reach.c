/* SPDX-License-Identifier: MIT
 *
 * The set of fields can change at block 0 and at each block in which a field begins. */
#include "prefix/prefix_reach.h"

#include <string.h>

#include "base/error.h"

/* Copies the fields in order of tag. PKV_INVALID_ARGUMENT for a tag twice. */
static enum pkv_status sort_fields(const struct pkv_namespace_field *fields, int32_t num_fields,
                                   struct pkv_namespace_field *sorted)
{
    for (int32_t i = 0; i < num_fields; i++) {
        int32_t at = i;
        for (; at > 0 && sorted[at - 1].tag > fields[i].tag; at--) {
            sorted[at] = sorted[at - 1];
        }
        if (at > 0 && sorted[at - 1].tag == fields[i].tag) {
            return INVALID("namespace: tag %d appears twice", fields[i].tag);
        }
        sorted[at] = fields[i];
    }
    return PKV_OK;
}

/* The blocks at which the set changes, rising, each once. */
static void find_changes(struct prefix_reach *reach)
{
    reach->count = 1;
    for (int32_t done = 0; done < reach->num_fields; done++) {
        int32_t next = INT32_MAX;
        for (int32_t i = 0; i < reach->num_fields; i++) {
            const int32_t block = reach->first_block[i];
            if (block > reach->from[reach->count - 1] && block < next) {
                next = block;
            }
        }
        if (next == INT32_MAX) {
            return;
        }
        reach->from[reach->count++] = next;
    }
}

enum pkv_status prefix_reach_of(const struct pkv_namespace_field *fields, int32_t num_fields,
                                int32_t block_size, struct prefix_reach *reach)
{
    memset(reach, 0, sizeof *reach);
    const enum pkv_status status = sort_fields(fields, num_fields, reach->fields);
    if (status != PKV_OK) {
        return status;
    }
    reach->num_fields = num_fields;
    for (int32_t i = 0; i < num_fields; i++) {
        reach->first_block[i] = reach->fields[i].begins_at / block_size;
    }
    find_changes(reach);
    return PKV_OK;
}

int32_t prefix_reach_at(const struct prefix_reach *reach, int32_t block,
                        struct pkv_namespace_field begun[PKV_MAX_NAMESPACE_FIELDS])
{
    int32_t count = 0;
    for (int32_t i = 0; i < reach->num_fields; i++) {
        if (reach->first_block[i] <= block) {
            begun[count++] = reach->fields[i];
        }
    }
    return count;
}
