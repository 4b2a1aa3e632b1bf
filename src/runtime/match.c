/* SPDX-License-Identifier: MIT
 *
 * The index finds the chain of nodes; how much of it each group still has, of what a query there
 * sees, limits it. Pending tokens are those of running sequences, compared token by token: they
 * have no keys yet. */
#include "runtime/match.h"

#include "base/minmax.h"
#include "prefix/prefix_flush.h"

static int32_t max_tokens_of(const pkv_cache *cache, const struct pkv_prompt *prompt,
                             int32_t max_cached)
{
    const int32_t max_tokens = max_i32(min_i32(prompt->num_tokens - 1, max_cached), 0);
    return min_i32(max_tokens, cache->config.max_seq_len);
}

int32_t match_max_blocks(const pkv_cache *cache, const struct pkv_prompt *prompt,
                         int32_t max_cached)
{
    return cache_has_reuse(cache)
               ? max_tokens_of(cache, prompt, max_cached) / cache->reuse.block_size
               : 0;
}

const struct prefix_window *match_windows(pkv_cache *cache, const struct seq *prototype)
{
    struct prefix_window *windows = cache->reuse.windows;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        const int64_t window = cache->groups[g].config->sliding_window;
        windows[g] = (struct prefix_window){
            .window = window > 0 ? window + prototype->max_rewind : 0,
            .kept_prefix = group_kept_prefix(&cache->groups[g], prototype),
        };
    }
    for (int32_t s = 0; s < cache->num_states; s++) { /* that of the last token's block alone */
        windows[cache->config.num_groups + s] = (struct prefix_window){.window = 2};
    }
    return windows;
}

int32_t match_uncut(const struct pkv_prompt *prompt, int32_t num_blocks, int32_t block_size)
{
    for (int32_t i = prompt->num_bidirectional - 1; i >= 0; i--) {
        const struct pkv_token_range *range = &prompt->bidirectional[i];
        const int64_t length = (int64_t)num_blocks * block_size;
        if (range->begin < length && length < range->end) {
            num_blocks = range->begin / block_size;
        }
    }
    return num_blocks;
}

int32_t match_chain(pkv_cache *cache, const struct seq *prototype, const struct pkv_prompt *prompt,
                    int32_t max_blocks)
{
    struct reuse *reuse = &cache->reuse;
    return prefix_index_match(reuse->index, &prototype->reuse.scope, prompt->token_ids,
                              prompt->token_extra, max_blocks, reuse->matched);
}

int32_t match_prefix(pkv_cache *cache, const struct seq *prototype, const struct pkv_prompt *prompt,
                     int32_t max_blocks)
{
    struct reuse *reuse = &cache->reuse;
    reuse->num_known = 0;
    reuse->num_furthest = 0;
    if (max_blocks == 0) {
        return 0;
    }
    reuse->num_known = match_chain(cache, prototype, prompt, max_blocks);
    int32_t count = reuse->num_known;
    const struct prefix_window *windows = match_windows(cache, prototype);
    int32_t before;
    do { /* what is resident of a shorter prefix may be cut by an earlier range */
        before = count;
        count = prefix_index_resident(reuse->index, reuse->matched, count, windows,
                                      &reuse->num_furthest);
        count = match_uncut(prompt, count, reuse->block_size);
    } while (count < before);
    return count;
}

/* As many leading tokens as do not end inside a bidirectional range. */
static int32_t uncut_tokens(const struct pkv_prompt *prompt, int32_t num_tokens)
{
    for (int32_t i = 0; i < prompt->num_bidirectional; i++) {
        const struct pkv_token_range *range = &prompt->bidirectional[i];
        if (range->begin < num_tokens && num_tokens < range->end) {
            return range->begin;
        }
    }
    return num_tokens;
}

/* How many first tokens, of max_tokens, of the block behind the first num_blocks ones are cached.
 * Every key that a query behind them sees is there, because those that one behind the blocks sees
 * are, and the block that has the tokens is in every group. */
static int32_t match_start(pkv_cache *cache, const struct seq *prototype,
                           const struct pkv_prompt *prompt, int32_t num_blocks, int32_t max_tokens)
{
    struct reuse *reuse = &cache->reuse;
    const int32_t first = num_blocks * reuse->block_size;
    if (max_tokens <= 0) { /* and the prompt may have no ids */
        reuse->source = PREFIX_ROOT;
        return 0;
    }
    return prefix_index_match_start(
        reuse->index, &prototype->reuse.scope,
        num_blocks > 0 ? reuse->matched[num_blocks - 1] : PREFIX_ROOT, num_blocks,
        prompt->token_ids + first, prompt->token_extra != NULL ? prompt->token_extra + first : NULL,
        min_i32(max_tokens, reuse->block_size - 1), &reuse->source);
}

int32_t match_longest(pkv_cache *cache, const struct seq *prototype,
                      const struct pkv_prompt *prompt, int32_t max_cached, int32_t *num_copied)
{
    struct reuse *reuse = &cache->reuse;
    const int32_t max_blocks = match_max_blocks(cache, prompt, max_cached);
    *num_copied = 0;
    reuse->source = PREFIX_ROOT;
    if (!cache_has_reuse(cache) || cache->config.no_partial_hits) {
        return match_prefix(cache, prototype, prompt, max_blocks);
    }
    const int32_t max_tokens = max_tokens_of(cache, prompt, max_cached);
    const struct prefix_window *windows = match_windows(cache, prototype);
    reuse->num_known = match_chain(cache, prototype, prompt, max_blocks);
    int32_t count = reuse->num_known;
    for (;;) { /* whole blocks may end inside a range when what follows them ends behind it */
        count = prefix_index_resident(reuse->index, reuse->matched, count, windows,
                                      &reuse->num_furthest);
        const int32_t first = count * reuse->block_size;
        const int32_t found = match_start(cache, prototype, prompt, count, max_tokens - first);
        const int32_t length = uncut_tokens(prompt, first + found);
        if (length >= first) {
            *num_copied = length - first;
            return count;
        }
        count = length / reuse->block_size;
    }
}

struct prefix_ref match_node(const struct reuse *reuse, int32_t i, int32_t num_blocks)
{
    return i < num_blocks ? reuse->matched[i] : reuse->source;
}

static int32_t match_in_group(const struct reuse *reuse, const struct pkv_prompt *prompt,
                              int32_t group, int32_t count)
{
    int32_t before;
    do {
        before = count;
        count = prefix_index_resident_in(reuse->index, reuse->matched, count, group,
                                         &reuse->windows[group]);
        count = match_uncut(prompt, count, reuse->block_size);
    } while (count < before);
    return count;
}

void match_groups(pkv_cache *cache, const struct seq *prototype, const struct pkv_prompt *prompt,
                  int32_t max_blocks, int32_t *group_blocks)
{
    struct reuse *reuse = &cache->reuse;
    const int32_t count = match_chain(cache, prototype, prompt, max_blocks);
    (void)match_windows(cache, prototype);
    for (int32_t g = 0; g < cache->config.num_groups + cache->num_states; g++) {
        group_blocks[g] = match_in_group(reuse, prompt, g, count);
    }
}

/* Block i of a prompt, or of a sequence's tokens. */
static struct pkv_prompt block_of(const struct pkv_prompt *prompt, int32_t i, int32_t block_size)
{
    const size_t first = (size_t)i * (size_t)block_size;
    return (struct pkv_prompt){
        .size = sizeof *prompt,
        .token_ids = prompt->token_ids + first,
        .token_extra = prompt->token_extra != NULL ? prompt->token_extra + first : NULL,
        .num_tokens = block_size,
    };
}

/* Leading blocks of a prompt that a live sequence has, or will have, in the same namespaces. */
static int32_t shared_blocks(const pkv_cache *cache, const struct seq *prototype,
                             const struct pkv_prompt *prompt, int32_t seq, int32_t max_blocks)
{
    const int32_t block_size = cache->reuse.block_size;
    const struct seq *other = &cache->seqs.at[seq];
    const struct pkv_prompt known =
        seq_tokens_at(&cache->reuse.tokens, seq, &other->tokens, 0, other->tokens.num_known);
    const int32_t limit = min_i32(max_blocks, known.num_tokens / block_size);
    int32_t count = 0;
    while (count < limit) {
        const int32_t namespace_id = prefix_scope_at(&prototype->reuse.scope, count);
        const struct pkv_prompt own = block_of(prompt, count, block_size);
        const struct pkv_prompt others = block_of(&known, count, block_size);
        if (namespace_id == PREFIX_NONE ||
            namespace_id != prefix_scope_at(&other->reuse.scope, count) ||
            !prefix_index_is_current(cache->reuse.index, namespace_id, other->reuse.epoch) ||
            !seq_tokens_equal(&own, &others, block_size)) {
            break;
        }
        count++;
    }
    return count;
}

int32_t match_pending(const pkv_cache *cache, const struct seq *prototype,
                      const struct pkv_prompt *prompt, int32_t num_cached, int32_t max_cached)
{
    int32_t longest = 0;
    const int32_t max_blocks = match_max_blocks(cache, prompt, max_cached);
    for (int32_t i = 0; max_blocks > 0 && i < cache->seqs.capacity; i++) {
        const struct seq *seq = &cache->seqs.at[i];
        if (seq->state != SEQ_LIVE || seq->is_swapped || seq->reuse.no_publish) {
            continue;
        }
        const int32_t shared =
            match_uncut(prompt, shared_blocks(cache, prototype, prompt, i, max_blocks),
                        cache->reuse.block_size);
        if (shared > seq->reuse.num_published) {
            longest = max_i32(longest, shared);
        }
    }
    if (longest > 0) {
        longest -= longest % cache->reuse.index->hit_nodes;
    }
    return max_i32(longest * cache->reuse.block_size - num_cached, 0);
}
