/* SPDX-License-Identifier: MIT
 *
 * A scope has one entry for each block at which the set of fields changes (prefix_reach.h). */
#include "prefix/prefix_scope.h"

#include <string.h>

#include "base/error.h"
#include "prefix/prefix_reach.h"

/* What *reach says of blocks, without namespaces yet. */
static void begin_scope(const struct prefix_reach *reach, struct prefix_scope *scope)
{
    memset(scope, 0, sizeof *scope);
    scope->count = reach->count;
    memcpy(scope->from, reach->from, sizeof scope->from);
}

enum pkv_status prefix_scope_open(struct prefix_index *index,
                                  const struct pkv_namespace_field *fields, int32_t num_fields,
                                  struct prefix_scope *scope)
{
    struct prefix_reach reach;
    const enum pkv_status status =
        prefix_reach_of(fields, num_fields, index->config.block_size, &reach);
    if (status != PKV_OK) {
        return status;
    }
    struct prefix_scope made;
    begin_scope(&reach, &made);
    for (int32_t i = 0; i < made.count; i++) {
        struct pkv_namespace_field begun[PKV_MAX_NAMESPACE_FIELDS];
        const int32_t count = prefix_reach_at(&reach, made.from[i], begun);
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
    struct prefix_reach reach;
    const enum pkv_status status =
        prefix_reach_of(fields, num_fields, index->config.block_size, &reach);
    if (status != PKV_OK) {
        return status;
    }
    begin_scope(&reach, scope);
    for (int32_t i = 0; i < scope->count; i++) {
        struct pkv_namespace_field begun[PKV_MAX_NAMESPACE_FIELDS];
        const int32_t count = prefix_reach_at(&reach, scope->from[i], begun);
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
