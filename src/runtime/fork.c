/* SPDX-License-Identifier: MIT
 *
 * A sequence is forked: children share what a query at the length given sees. */
#include "base/error.h"
#include "runtime/publish.h"
#include "runtime/quota.h"
#include "runtime/resident.h"
#include "runtime/seq_life.h"

static bool has_continuous_group(const pkv_cache *cache)
{
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        if (!group_is_paged(&cache->groups[g])) {
            return true;
        }
    }
    return false;
}

static enum pkv_status check_spare(int32_t g, int32_t need, int32_t spare)
{
    return need <= spare ? PKV_OK
                         : refuse(PKV_NO_BLOCKS,
                                  "group %d: a child would hold %d blocks that were promised to "
                                  "admitted sequences, %d free",
                                  g, need, spare);
}

/* What leaves a window, or was a state, may be promised; a child that holds on to it takes spare
 * blocks. */
static enum pkv_status check_promises(const pkv_cache *cache, int32_t parent, int32_t at)
{
    enum pkv_status status = PKV_OK;
    for (int32_t g = 0; status == PKV_OK && g < cache->config.num_groups; g++) {
        const struct seq_table_set *tables = &cache->groups[g].tables;
        status =
            check_spare(g, seq_table_fork_spare(tables, parent, at), seq_table_num_spare(tables));
    }
    for (int32_t s = 0; status == PKV_OK && s < cache->num_states; s++) {
        const struct state_group *states = &cache->states[s];
        status = check_spare(states->index, state_list_fork_spare(states, parent, at),
                             state_list_num_spare(states));
    }
    return status;
}

/* One child of the first `at` tokens. There must be room. */
static pkv_seq fork_once(pkv_cache *cache, int32_t parent, int32_t at)
{
    struct seq *of = &cache->seqs.at[parent];
    if (cache_has_reuse(cache)) {
        prefix_scope_share(cache->reuse.index, &of->reuse.scope);
    }
    const int32_t child = seq_life_claim(cache, of);
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        seq_table_fork(&cache->groups[g].tables, parent, child, at, of->length);
    }
    for (int32_t s = 0; s < cache->num_states; s++) {
        state_list_fork(&cache->states[s], parent, child, at);
    }
    cache->seqs.at[child].length = at;
    publish_fork(cache, parent, child, at);
    quota_settle(cache, child);
    return sequence_handle(&cache->seqs, child);
}

static enum pkv_status fork_seq(pkv_cache *cache, pkv_seq handle, int32_t at, int32_t n,
                                pkv_seq *children)
{
    struct seq *parent = NULL;
    enum pkv_status status = sequence_find_resident(&cache->seqs, handle, &parent);
    if (status != PKV_OK) {
        return status;
    }
    if (at < 0 || at > parent->length) {
        return INVALID("at = %d, outside [0, %d]", at, parent->length);
    }
    if (has_continuous_group(cache)) {
        return refuse(PKV_UNSUPPORTED,
                      "a sequence with slots of a continuous group cannot be forked");
    }
    const int32_t index = sequence_index(&cache->seqs, parent);
    status = at > 0 ? resident_check(cache, index, at) : PKV_OK;
    if (status == PKV_OK) {
        status = seq_life_check_room(cache, n);
    }
    if (status == PKV_OK && n > 0) {
        status = check_promises(cache, index, at);
    }
    for (int32_t i = 0; status == PKV_OK && i < n; i++) {
        children[i] = fork_once(cache, index, at);
    }
    return status;
}

enum pkv_status pkv_seq_fork(pkv_cache *cache, pkv_seq seq, int32_t at, int32_t n,
                             pkv_seq *children)
{
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    if (n < 0 || (n > 0 && children == NULL)) {
        return INVALID("n = %d, children %s", n, children == NULL ? "NULL" : "given");
    }
    cache_lock(cache);
    const enum pkv_status status = fork_seq(cache, seq, at, n, children);
    cache_unlock(cache);
    return status;
}
