/* SPDX-License-Identifier: MIT
 *
 * publish.h: a sequence and the prefix index: its full blocks become nodes, nodes that a prompt
 * matched become its blocks. Without the prefix cache every call does nothing. The mutex is held.
 * O(blocks that change). */
#ifndef PKV_RUNTIME_PUBLISH_H
#define PKV_RUNTIME_PUBLISH_H

#include "runtime/cache.h"

/* The empty sequence `seq` holds the first num_blocks blocks that were matched and, when num_copied
 * is not 0, reuse.source, of which it has that many first tokens. Its tables must be those of
 * seq_table_adopted. */
void publish_adopt(pkv_cache *cache, int32_t seq, int32_t num_blocks, int32_t num_copied);

/* The open step brings the sequence to `length` tokens: notes it, if a block becomes full. */
void publish_expect(pkv_cache *cache, int32_t seq, int32_t length);

/* Commit begins: loads what publishing the blocks of the sequences that were noted touches. */
void publish_prefetch(pkv_cache *cache);

/* Publishes what became full. Where the node has an equal block already, that one replaces the
 * sequence's own. */
void publish_full_blocks(pkv_cache *cache, int32_t seq);

/* The sequence is finished: what it published ends in a retention point. */
void publish_finish(pkv_cache *cache, int32_t seq);

/* An admission matched a prompt and adopted so many blocks: before they are adopted, the index
 * hears when what was found was used last, and the sequence that may be a chat's next turn. */
void publish_met(pkv_cache *cache, int32_t seq, int32_t num_adopted);

/* An admission found nodes up to `furthest` resident in some group, and adopted less: it ends in a
 * retention point for sequences like `prototype`. */
void publish_missed(pkv_cache *cache, const struct seq *prototype, struct prefix_ref furthest);

/* The block of a group that holds entry i of what the sequence has published or adopted, in its
 * table or not; NO_BLOCK when it is evicted, or entry i is not published. */
int32_t publish_block_of(const pkv_cache *cache, int32_t seq, int32_t group, int32_t i);

/* The sequence was cut to `length`. */
void publish_cut(pkv_cache *cache, int32_t seq, int32_t length);

/* The nodes of the blocks that the sequence has published, into reuse.matched
 * [reuse.num_published]; the root where they were flushed. */
void publish_list(pkv_cache *cache, int32_t seq);

/* The sequence has blocks again of what it has published: those nodes get them that have none. */
void publish_again(pkv_cache *cache, int32_t seq);

/* A fresh child has recorded and published what its parent has of the first `at` tokens. */
void publish_fork(pkv_cache *cache, int32_t parent, int32_t child, int32_t at);

#endif
