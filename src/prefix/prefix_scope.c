/* SPDX-License-Identifier: MIT
 *
 * A scope has one entry for block 0 and one for each block in which another field begins. O(fields
 * squared), and there are at most four. */
#include "prefix/prefix_scope.h"

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
        made.namespace_id[i] = prefix_namespace_intern(&index->namespaces, begun, count);
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
        scope->namespace_id[i] = prefix_namespace_find(&index->namespaces, begun, count);
    }
    return PKV_OK;
}

void prefix_scope_share(struct prefix_index *index, const struct prefix_scope *scope)
{
    for (int32_t i = 0; i < scope->count; i++) {
        prefix_namespace_hold(&index->namespaces, scope->namespace_id[i]);
    }
}

void prefix_scope_close(struct prefix_index *index, struct prefix_scope *scope)
{
    for (int32_t i = 0; i < scope->count; i++) {
        prefix_namespace_release(&index->namespaces, scope->namespace_id[i]);
    }
    memset(scope, 0, sizeof *scope);
}
