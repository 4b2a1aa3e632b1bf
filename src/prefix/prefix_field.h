/* SPDX-License-Identifier: MIT
 *
 * prefix_field.h: the values of namespace fields, interned: each (tag, bytes) that is in use has
 * one record, whose number identifies it. A quota, a flush and the counts of blocks are per field
 * value, so they are kept here, where each costs O(1).
 *
 *   refs   = namespaces that contain the field, + 1 while it has a quota
 *   cached = sum of num_blocks of the nodes in namespaces that contain it
 *
 * Records are found through buckets of singly linked lists (links are number + 1, so that zeroed
 * memory is empty). A record without references is free at once. */
#ifndef PKV_PREFIX_FIELD_H
#define PKV_PREFIX_FIELD_H

#include "pagedkv/base.h"

struct prefix_field {
    int64_t held;     /* by sequences, as charged (prefix_quota.h) */
    int64_t quota;    /* INT64_MAX = none */
    int64_t cached;   /* blocks that have a node in a namespace with this field */
    uint64_t flushed; /* nodes of an earlier epoch than this are dead */
    int32_t tag;
    int32_t length;
    int32_t refs;
    int32_t next;        /* in its bucket, or on the free list */
    int32_t seen_refs;   /* scratch of prefix_index_check */
    int64_t seen_cached; /* likewise */
    unsigned char bytes[PKV_MAX_NAMESPACE_BYTES];
};

struct prefix_field_table {
    struct prefix_field *records; /* [max_records] */
    int32_t *buckets;             /* [num_buckets] */
    uint32_t num_buckets;         /* a power of two */
    int32_t max_records;
    int32_t num_touched; /* records above were never used */
    int32_t free_head;
    uint64_t seed; /* mixes the choice of a bucket */
};

/* What is a field at all: PKV_INVALID_ARGUMENT for a length or begins_at out of range, or NULL
 * bytes of a length above 0. Every other call of this module takes fields that were checked. */
enum pkv_status prefix_field_check(const struct pkv_namespace_field *field);

/* The number of the field's record; PREFIX_NONE when it has none. */
int32_t prefix_field_find(const struct prefix_field_table *table,
                          const struct pkv_namespace_field *field);

/* One more reference to the field's record, made when there is none; PREFIX_NONE when the table is
 * full. */
int32_t prefix_field_intern(struct prefix_field_table *table,
                            const struct pkv_namespace_field *field);
void prefix_field_release(struct prefix_field_table *table, int32_t id);

/* Reads a record back; bytes points into the table. */
struct pkv_namespace_field prefix_field_read(const struct prefix_field_table *table, int32_t id);

#endif
