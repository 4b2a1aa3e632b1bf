/* SPDX-License-Identifier: MIT
 *
 * prefix_publish.h: making nodes of what sequences have computed. The
 * blocks follow by prefix_index_attach (prefix_blocks.h). */
#ifndef PKV_PREFIX_PUBLISH_H
#define PKV_PREFIX_PUBLISH_H

#include "prefix/prefix_index.h"
#include "prefix/prefix_siblings.h"

enum prefix_insert {
    PREFIX_NEW,       /* *node is new, without blocks */
    PREFIX_FOUND,     /* *node was there; it may have blocks already */
    PREFIX_NOT_NOW,   /* no node is free, nor by evicting some blocks: counted as not_indexed */
    PREFIX_COLLIDING, /* its key names another content: counted as not_indexed */
    PREFIX_FLUSHED    /* parent is stale, or namespace flushed or all reset since `epoch` */
};

/* The node for this content under parent, made when there is none; it and its ancestors are raised
 * to `priority`. *node gets a holder, which the caller releases (a sequence holds its newest node,
 * and only that: insert the next, then release the one before; a window shorter than a block may
 * take the newest node's block before the next is published). *node is written for the first two
 * answers alone. epoch: the publishing sequence's. */
enum prefix_insert prefix_index_insert(struct prefix_index *index, struct prefix_ref parent,
                                       int32_t namespace_id, uint64_t epoch, const int32_t *tokens,
                                       const uint64_t *extra, int32_t priority,
                                       struct prefix_ref *node);

/* Of what an insertion reads, the bucket of its content, and, when that is there, the node that is
 * found through it: both are loaded. For callers that are about to insert several. */
uint32_t prefix_index_prefetch_bucket(const struct prefix_index *index, struct prefix_ref parent,
                                      int32_t namespace_id, const int32_t *tokens,
                                      const uint64_t *extra);
void prefix_index_prefetch_found(const struct prefix_index *index, uint32_t bucket);

/* A tail: fewer tokens than a block, which nothing goes on from. Makes a node for them, which the
 * caller holds, and whose blocks are still to be attached; PREFIX_ROOT when another node has them
 * all, when the parent was flushed, or no node is free. For an index with config.finds_partial. */
struct prefix_ref prefix_index_insert_tail(struct prefix_index *index,
                                           const struct prefix_start *start, uint64_t epoch);

/* A node has got its blocks: the tail that is the beginning of it, if that is free, is found no
 * more. */
void prefix_index_supersede(struct prefix_index *index, struct prefix_ref node);

#endif
