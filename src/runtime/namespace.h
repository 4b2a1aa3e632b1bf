/* SPDX-License-Identifier: MIT
 *
 * namespace.h: the namespace fields that a caller passes, checked, and the namespaces that a
 * sequence joins while it lives. O(fields). */
#ifndef PKV_RUNTIME_NAMESPACE_H
#define PKV_RUNTIME_NAMESPACE_H

#include "runtime/cache.h"

/* Fields as the index takes them; kept_bytes is what one of them may point to. */
struct namespace_fields {
    int32_t count;
    struct pkv_namespace_field at[PKV_MAX_NAMESPACE_FIELDS];
    unsigned char kept_bytes[sizeof(int32_t)];
};

/* Fields of a caller, none to PKV_MAX_NAMESPACE_FIELDS. PKV_INVALID_ARGUMENT. */
enum pkv_status namespace_check(const struct pkv_namespace_field *fields, int32_t num_fields,
                                struct namespace_fields *checked);

/* The one field of a call on the prefix cache: PKV_UNSUPPORTED without one, PKV_INVALID_ARGUMENT.
 */
enum pkv_status namespace_check_one(const pkv_cache *cache,
                                    const struct pkv_namespace_field *field);

/* Adds the kept prefix of a sequence's own, where a window makes what it computes another content.
 * PKV_INVALID_ARGUMENT when all fields are used. Needs no mutex. */
enum pkv_status namespace_add_kept_prefix(const struct pkv_cache_config *config,
                                          const struct seq *prototype,
                                          struct namespace_fields *fields);

/* The namespaces of a new sequence, into prototype->reuse; namespace_leave releases them. Nothing
 * without the prefix cache. PKV_INVALID_ARGUMENT, PKV_NO_BLOCKS. The mutex is held. */
enum pkv_status namespace_join(pkv_cache *cache, const struct namespace_fields *fields,
                               struct seq *prototype);
void namespace_leave(pkv_cache *cache, struct seq *seq);

/* The namespaces that a probe or a pin looks in, without joining them: likewise. */
enum pkv_status namespace_look_up(pkv_cache *cache, const struct namespace_fields *fields,
                                  struct seq *prototype);

#endif
