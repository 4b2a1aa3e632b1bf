/* SPDX-License-Identifier: MIT
 *
 * prefix_scope.h: which namespace each block of a sequence is in.
 *
 * A field of a sequence's namespace counts in the blocks that hold a token at or after its
 * begins_at. Blocks before are in a namespace without it, so all values of the field share them:
 *
 *   block            0        1        2        3  ..
 *   tenant (at 0)    t        t        t        t
 *   salt (at 2 * block_size)           s        s
 *   entries          {t} from 0        {t, s} from 2
 */
#ifndef PKV_PREFIX_SCOPE_H
#define PKV_PREFIX_SCOPE_H

#include "prefix/prefix_index.h"

/* Entry i holds from block from[i] on; from[0] = 0 and from rises. */
struct prefix_scope {
    int32_t count;
    int32_t from[PKV_MAX_NAMESPACE_FIELDS + 1];
    int32_t namespace_id[PKV_MAX_NAMESPACE_FIELDS + 1];
};

/* Interns the namespaces of a sequence; fields in any order, at most PKV_MAX_NAMESPACE_FIELDS, each
 * checked by prefix_field_check. PKV_INVALID_ARGUMENT: a tag appears twice. PKV_NO_BLOCKS: the
 * table is full now. Nothing changed then. A namespace lives while a scope or a node names it:
 * close each scope. */
enum pkv_status prefix_scope_open(struct prefix_index *index,
                                  const struct pkv_namespace_field *fields, int32_t num_fields,
                                  struct prefix_scope *scope);
void prefix_scope_close(struct prefix_index *index, struct prefix_scope *scope);

/* One more holder of all of a scope's namespaces (a fork's copy). */
void prefix_scope_share(struct prefix_index *index, const struct prefix_scope *scope);

/* As open, but takes nothing and needs no close, for probes without a sequence: a namespace that is
 * not in the table, in which nothing can be cached, is PREFIX_NONE in *scope. */
enum pkv_status prefix_scope_find(struct prefix_index *index,
                                  const struct pkv_namespace_field *fields, int32_t num_fields,
                                  struct prefix_scope *scope);

/* The namespace of block number `block`. */
static inline int32_t prefix_scope_at(const struct prefix_scope *scope, int32_t block)
{
    int32_t i = scope->count - 1;
    while (i > 0 && scope->from[i] > block) {
        i--;
    }
    return scope->namespace_id[i];
}

#endif
