/* SPDX-License-Identifier: MIT
 *
 * reuse.h: the runtime's side of prefix caching, as a whole: the prefix index over the groups'
 * blocks, the tokens that sequences record for it, and scratch of a match. Without
 * config.prefix_cache index is NULL and the rest zero. */
#ifndef PKV_RUNTIME_REUSE_H
#define PKV_RUNTIME_REUSE_H

#include "alloc/mem.h"
#include "prefix/prefix_match.h"
#include "runtime/events.h"
#include "runtime/group.h"
#include "runtime/state_group.h"

/* Constant after create, but for what index, tokens and the two arrays of a match hold: the mutex
 * guards that. */
struct reuse {
    struct prefix_index *index;
    struct seq_tokens_rows tokens;
    int32_t block_size; /* of a node: the smallest of the groups */
    size_t index_bytes; /* of index and tokens */

    /* of the match at hand */
    struct prefix_ref *matched;    /* [max_nodes of a sequence] nodes of the cached prefix */
    int32_t num_known;             /* nodes of the prompt, some without blocks */
    int32_t num_furthest;          /* leading nodes of them that some group could go on from */
    struct prefix_ref source;      /* the node whose first tokens are copied; the root: none */
    struct prefix_window *windows; /* [num_groups], state groups too */
};

/* Nodes of the index of a config; num_blocks [num_groups] are those in force. */
int64_t reuse_num_nodes(const struct pkv_cache_config *config, const int32_t *num_blocks);

/* Adds what reuse takes, beside its arrays, to *sizes. num_blocks [num_groups] are those in force.
 * PKV_INVALID_ARGUMENT. O(groups). */
enum pkv_status reuse_add_sizes(const struct pkv_cache_config *config, const int32_t *num_blocks,
                                struct pkv_cache_sizes *sizes);

/* The arrays, for a config with prefix_cache. */
void reuse_carve(const struct pkv_cache_config *config, struct reuse *reuse, struct carver *carver);

/* Builds the index over the groups, and the state groups behind them; events hears of its changes.
 * seed is the index's own. PKV_NO_MEMORY; free it in either case. */
enum pkv_status reuse_build(struct reuse *reuse, const struct pkv_cache_config *config,
                            const struct group *groups, const struct state_group *states,
                            uint64_t seed, struct events *events, struct mem *mem);
void reuse_free(struct reuse *reuse, const struct pkv_hooks *hooks);

#endif
