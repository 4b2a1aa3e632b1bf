/* SPDX-License-Identifier: MIT
 *
 * match.h: the cached prefix that a prompt begins with. Without the prefix cache nothing is ever
 * found. The mutex is held. O(tokens of the prompt). */
#ifndef PKV_RUNTIME_MATCH_H
#define PKV_RUNTIME_MATCH_H

#include "runtime/cache.h"

/* Whole blocks of a prompt that may be adopted: at most max_cached tokens, and never its last one,
 * which has to be computed. */
int32_t match_max_blocks(const pkv_cache *cache, const struct pkv_prompt *prompt,
                         int32_t max_cached);

/* What each group's queries see, for sequences like `prototype`: [num_groups], until the next call.
 */
const struct prefix_window *match_windows(pkv_cache *cache, const struct seq *prototype);

/* As many leading blocks as do not end inside a bidirectional range of the prompt, whose tokens are
 * computed together. */
int32_t match_uncut(const struct pkv_prompt *prompt, int32_t num_blocks, int32_t block_size);

/* The nodes of at most max_blocks leading blocks, whether they have blocks or not, into
 * reuse.matched; returns how many there are. */
int32_t match_chain(pkv_cache *cache, const struct seq *prototype, const struct pkv_prompt *prompt,
                    int32_t max_blocks);

/* The longest cached prefix of at most max_blocks whole blocks that a sequence like `prototype` can
 * go on from: their nodes are in reuse.matched until the next match, and after them those of a
 * longer prefix, of reuse.num_furthest blocks, that only some group can go on from, up to
 * reuse.num_known, the last that there are. */
int32_t match_prefix(pkv_cache *cache, const struct seq *prototype, const struct pkv_prompt *prompt,
                     int32_t max_blocks);

/* The longest of at most max_cached tokens, which may end inside a block unless
 * config.no_partial_hits; without the prompt's last token, and not inside one of its bidirectional
 * ranges. Returns its whole blocks, whose nodes are in reuse.matched as above. *num_copied is how
 * many tokens it has behind them, in [0, block_size): they are the first tokens of a cached block
 * that every group has, whose node is reuse.source. Of all such blocks that one has the most.
 * O(block_size * log(nodes)) more. */
int32_t match_longest(pkv_cache *cache, const struct seq *prototype,
                      const struct pkv_prompt *prompt, int32_t max_cached, int32_t *num_copied);

/* The node of block i of a prefix of num_blocks whole blocks, or of the one that is copied from. */
struct prefix_ref match_node(const struct reuse *reuse, int32_t i, int32_t num_blocks);

/* The cached prefix, in blocks, that each group could go on from if it were the only one, into
 * group_blocks [num_groups]. */
void match_groups(pkv_cache *cache, const struct seq *prototype, const struct pkv_prompt *prompt,
                  int32_t max_blocks, int32_t *group_blocks);

/* Tokens past num_cached, of those that the prompt could adopt, that a live sequence is to publish.
 * O(sequences) more. */
int32_t match_pending(const pkv_cache *cache, const struct seq *prototype,
                      const struct pkv_prompt *prompt, int32_t num_cached, int32_t max_cached);

#endif
