/* SPDX-License-Identifier: MIT
 *
 * The public call that changes the priority of cached blocks. The nodes are those that a prompt
 * matches, resident or not: raised from the first on, lowered from the last on, each after what
 * follows it. */
#include "base/checked.h"
#include "base/error.h"
#include "base/minmax.h"
#include "prefix/prefix_claim.h"
#include "runtime/match.h"
#include "runtime/namespace.h"
#include "runtime/prompt.h"
#include "runtime/seq_options.h"

_Static_assert(PREFIX_EVICT_FIRST == PKV_PRIORITY_EVICT_FIRST,
               "the index has the callers' priorities");

static enum pkv_status check_range(const struct pkv_prompt *prompt, int32_t from_token,
                                   int32_t to_token, int32_t priority)
{
    if (from_token < 0 || from_token > to_token || to_token > prompt->num_tokens) {
        return INVALID("from_token = %d, to_token = %d, not in order within %d tokens", from_token,
                       to_token, prompt->num_tokens);
    }
    if (priority < PKV_PRIORITY_EVICT_FIRST || priority >= PKV_NUM_PRIORITIES) {
        return INVALID("priority = %d, outside [%d, %d)", priority, PKV_PRIORITY_EVICT_FIRST,
                       PKV_NUM_PRIORITIES);
    }
    return PKV_OK;
}

/* The highest priority that a running sequence claims for what ends with the node. */
static int32_t highest_claim(const pkv_cache *cache, struct prefix_ref node)
{
    int32_t highest = PKV_PRIORITY_EVICT_FIRST;
    for (int32_t i = 0; i < cache->seqs.capacity; i++) {
        const struct seq *seq = &cache->seqs.at[i];
        const struct seq_reuse *reuse = &seq->reuse;
        if (seq->state != SEQ_FREE && !reuse->no_publish && reuse->newest.index == node.index) {
            highest = max_i32(highest, reuse->priority);
        }
    }
    return highest;
}

/* Gives a node the priority if that is higher than its own, or if it is lower: as is wanted. */
static bool change(pkv_cache *cache, struct prefix_ref node, int32_t priority, bool is_raise)
{
    struct prefix_index *index = cache->reuse.index;
    const struct prefix_node *of = prefix_index_node(index, node);
    if (is_raise ? priority <= of->priority : priority >= of->priority) {
        return false;
    }
    const int32_t claimed = of->num_holders > 0 ? highest_claim(cache, node) : priority;
    return prefix_index_set_priority(index, node, max_i32(priority, claimed));
}

/* Blocks [from, to) of the prompt. Returns how many have changed. */
static int32_t change_range(pkv_cache *cache, const struct seq *prototype,
                            const struct pkv_prompt *prompt, int32_t from, int32_t to,
                            int32_t priority)
{
    const struct prefix_ref *nodes = cache->reuse.matched;
    const int32_t end = match_chain(cache, prototype, prompt, to);
    int32_t num_changed = 0;
    for (int32_t i = from; i < end; i++) {
        num_changed += change(cache, nodes[i], priority, true);
    }
    bool is_kept = num_changed > 0;
    for (int32_t i = end - 1; i >= from; i--) {
        const bool is_lower = change(cache, nodes[i], priority, false);
        num_changed += is_lower;
        is_kept |= is_lower && prefix_index_node(cache->reuse.index, nodes[i])->priority > 0;
    }
    if (is_kept) {
        prefix_index_touch(cache->reuse.index, nodes, end);
    }
    return num_changed;
}

enum pkv_status pkv_prefix_set_priority(pkv_cache *cache, const struct pkv_seq_options *options,
                                        const struct pkv_prompt *given, int32_t from_token,
                                        int32_t to_token, int32_t priority, int32_t *num_changed)
{
    struct pkv_prompt prompt;
    struct seq prototype;
    struct namespace_fields fields;
    enum pkv_status status = cache_check_reuse(cache);
    status = status == PKV_OK ? prompt_take(given, true, &prompt) : status;
    status = status == PKV_OK ? check_range(&prompt, from_token, to_token, priority) : status;
    status =
        status == PKV_OK ? seq_options_check(&cache->config, options, &prototype, &fields) : status;
    if (status != PKV_OK) {
        return status;
    }
    const int32_t block_size = cache->reuse.block_size;
    const int32_t from = (int32_t)divide_up(from_token, block_size);
    const int32_t to = min_i32(to_token, cache->config.max_seq_len) / block_size;
    int32_t changed = 0;
    cache_lock(cache);
    status = namespace_look_up(cache, &fields, &prototype);
    if (status == PKV_OK && from < to) {
        changed = change_range(cache, &prototype, &prompt, from, to, priority);
    }
    cache_unlock(cache);
    if (status == PKV_OK && num_changed != NULL) {
        *num_changed = changed * block_size;
    }
    return status;
}
