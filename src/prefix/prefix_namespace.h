/* SPDX-License-Identifier: MIT
 *
 * prefix_namespace.h: namespaces: sets of field values, interned, so that comparing two namespaces
 * is comparing two ids. Namespace 0 is the empty set and always exists.
 *
 *   refs = scopes that name it, once an entry, + nodes in it (+ 1 for namespace 0)
 *
 * Flush and reset are epochs: a count that each of them raises. What was made in an earlier epoch
 * than the last flush of one of its fields, or than the last reset, is dead.
 *
 * Buckets and free records are linked as in prefix_field.h. O(1), fields being few. */
#ifndef PKV_PREFIX_NAMESPACE_H
#define PKV_PREFIX_NAMESPACE_H

#include "prefix/prefix_field.h"

struct prefix_namespace {
    int32_t num_fields;
    int32_t fields[PKV_MAX_NAMESPACE_FIELDS]; /* in order of tag */
    int32_t refs;
    int32_t next;
    int32_t seen_refs; /* scratch of prefix_index_check */
};

struct prefix_namespace_table {
    struct prefix_field_table fields;
    struct prefix_namespace *records; /* [max_records] */
    int32_t *buckets;                 /* [num_buckets] */
    uint32_t num_buckets;             /* a power of two */
    int32_t max_records;
    int32_t num_touched;
    int32_t free_head;
    uint64_t seed;
    uint64_t epoch; /* starts at 1; every flush and reset raises it */
    uint64_t reset; /* nodes of an earlier epoch are dead */
};

/* Begins the first epoch and makes namespace 0. Memory and bounds are set already. */
void prefix_namespace_start(struct prefix_namespace_table *table);

/* The namespace of these fields, which are checked and in order of tag: found, PREFIX_NONE when it
 * is not there; or interned, with one more reference, PREFIX_NONE when a table is full. */
int32_t prefix_namespace_find(const struct prefix_namespace_table *table,
                              const struct pkv_namespace_field *fields, int32_t num_fields);
int32_t prefix_namespace_intern(struct prefix_namespace_table *table,
                                const struct pkv_namespace_field *fields, int32_t num_fields);

void prefix_namespace_hold(struct prefix_namespace_table *table, int32_t id);
void prefix_namespace_release(struct prefix_namespace_table *table, int32_t id);

/* Reads the fields back, in order of tag, bytes pointing into the table, begins_at 0. Returns their
 * number. */
int32_t prefix_namespace_read(const struct prefix_namespace_table *table, int32_t id,
                              struct pkv_namespace_field fields[PKV_MAX_NAMESPACE_FIELDS]);

/* Adds to the cached blocks of every field of a namespace. */
void prefix_namespace_count(struct prefix_namespace_table *table, int32_t id, int64_t num_blocks);

/* True when no field of the namespace was flushed, nor all reset, since `epoch`. */
bool prefix_namespace_is_current(const struct prefix_namespace_table *table, int32_t id,
                                 uint64_t epoch);

#endif
