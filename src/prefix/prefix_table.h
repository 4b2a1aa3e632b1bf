/* SPDX-License-Identifier: MIT
 *
 * prefix_table.h: the prefix index inside, for its own files (prefix_index, prefix_match,
 * prefix_names, prefix_check) and for the tests that must break it.
 *
 * Nodes are found through buckets of singly linked lists (bucket -> node -> next, by index + 1, so
 * that zeroed memory is empty). Nodes at and above num_touched were never used and their memory
 * never looked at; used ones that died wait on the free list, oldest first. Fields and namespaces
 * live in two tables of the same make. */
#ifndef PKV_PAGES_PREFIX_TABLE_H
#define PKV_PAGES_PREFIX_TABLE_H

#include "prefix/prefix_index.h"

/* A field value. refs: namespaces that contain it, and its quota if it has one. */
struct field_record {
    int64_t held;
    int64_t quota;    /* INT64_MAX = none */
    int64_t cached;   /* blocks attached to nodes of namespaces with this field */
    uint64_t flushed; /* nodes of an earlier epoch than this are dead */
    int32_t tag;
    int32_t length;
    int32_t refs;
    int32_t next;        /* in its bucket, or on the free list: index + 1 */
    int32_t seen_refs;   /* of prefix_index_check */
    int64_t seen_cached; /* likewise */
    unsigned char bytes[PKV_MAX_NAMESPACE_BYTES];
};

/* A set of fields in order of tag. refs: scopes and nodes; namespace 0 has one for ever. */
struct namespace_record {
    int32_t num_fields;
    int32_t fields[PKV_MAX_NAMESPACE_FIELDS];
    int32_t refs;
    int32_t next;
    int32_t seen_refs; /* of prefix_index_check */
};

/* Records of one kind: which are used and which come next. */
struct record_list {
    int32_t *buckets; /* [num_buckets], index + 1 */
    int32_t num_touched;
    int32_t free_head; /* index + 1 */
};

struct prefix_index {
    struct pkv_hooks hooks;
    struct prefix_config config; /* with defaults filled in; pools points to `pools` */
    pkv_pool **pools;            /* [num_groups] */
    struct prefix_sizes sizes;
    unsigned char *metadata;
    unsigned char *mapped;

    struct prefix_node *nodes; /* [num_nodes] */
    int32_t *tokens;           /* [num_nodes][block_size] */
    uint64_t *extra;           /* [num_nodes][block_size], touched where a node has some */
    int32_t *blocks;           /* [num_nodes][num_groups], PREFIX_NONE = none */
    int32_t **block_nodes;     /* [num_groups][num_blocks of that pool]: node + 1, 0 = none */
    int32_t *buckets;          /* [num_buckets], node + 1 */
    uint32_t num_buckets;      /* a power of two */
    int32_t num_touched;
    int32_t num_used;
    int32_t free_head; /* index + 1; nodes go to the tail and come from the head */
    int32_t free_tail;

    struct field_record *fields;         /* [max_namespaces] */
    struct namespace_record *namespaces; /* [max_namespaces] */
    struct record_list field_list;
    struct record_list namespace_list;
    uint32_t num_name_buckets; /* a power of two */

    struct prefix_key mask;      /* bits of a key that a search looks at */
    uint64_t epoch;              /* starts at 1; every flush and reset raises it */
    uint64_t reset;              /* nodes of an earlier epoch are dead */
    int32_t sweep_at;            /* next node to look at */
    int32_t sweep_left;          /* nodes still to look at */
    struct prefix_swept retired; /* taken apart ahead of it, not yet reported */
    unsigned char *buffer;       /* what is hashed for one block */
    int32_t *runs;               /* [num_groups][2], of prefix_index_resident */
    struct prefix_counters counters;
};

/* What is looked for, and its key. */
struct prefix_content {
    struct prefix_ref parent;
    int32_t namespace_id;
    const int32_t *tokens;
    const uint64_t *extra; /* NULL when it is all zeros */
    struct prefix_key key;
};

/* A live node with this content, by index, or PREFIX_NONE. *is_colliding: another live content has
 * the very same key. */
int32_t prefix_search(struct prefix_index *index, const struct prefix_content *content,
                      bool *is_colliding);

/* Content of one block under parent, with its key. head_bytes: what prefix_write_head returned for
 * this namespace. */
struct prefix_content prefix_content_of(struct prefix_index *index, struct prefix_ref parent,
                                        int32_t namespace_id, const int32_t *tokens,
                                        const uint64_t *extra, size_t head_bytes);

/* Writes the part of the hashed buffer that all blocks of a namespace share; its length. */
size_t prefix_write_head(struct prefix_index *index, int32_t namespace_id);

uint32_t prefix_bucket(const struct prefix_index *index, struct prefix_key key);

/* The node that ref names; NULL when it is stale, or the root. */
struct prefix_node *prefix_node_at(const struct prefix_index *index, struct prefix_ref ref);

static inline struct prefix_ref prefix_ref_of(const struct prefix_index *index, int32_t node)
{
    return (struct prefix_ref){node, index->nodes[node].generation};
}

static inline int32_t *prefix_tokens_at(const struct prefix_index *index, int32_t node)
{
    return index->tokens + (size_t)node * (size_t)index->config.block_size;
}

static inline uint64_t *prefix_extra_at(const struct prefix_index *index, int32_t node)
{
    return index->extra + (size_t)node * (size_t)index->config.block_size;
}

static inline int32_t *prefix_blocks_at(const struct prefix_index *index, int32_t node)
{
    return index->blocks + (size_t)node * (size_t)index->config.num_groups;
}

/* Namespaces, as nodes use them. */
void prefix_names_open(struct prefix_index *index);
void prefix_names_hold(struct prefix_index *index, int32_t namespace_id);
void prefix_names_release(struct prefix_index *index, int32_t namespace_id);
void prefix_names_count(struct prefix_index *index, int32_t namespace_id, int64_t blocks);

/* Buckets in both tables of names. */
uint32_t prefix_field_bucket(const struct prefix_index *index,
                             const struct pkv_namespace_field *field);
uint32_t prefix_namespace_bucket(const struct prefix_index *index, const int32_t *fields,
                                 int32_t num_fields);

#endif
