/* SPDX-License-Identifier: MIT
 *
 * A sequence goes on from an earlier length: itself, truncated, or as children that share it. What
 * a query at that length sees must be resident in every group, because windows release blocks for
 * good. */
#include "base/error.h"
#include "runtime/publish.h"
#include "runtime/quota.h"
#include "runtime/seq_life.h"

/* Every key that a query at `length` sees is there, in every group. */
static enum pkv_status check_resident(const pkv_cache *cache, int32_t index, int32_t length)
{
    int32_t possible = length;
    int32_t before;
    /* A length that suits one group may fall into another's hole: go on until none objects. Each
     * group moves it at most once. */
    do {
        before = possible;
        for (int32_t g = 0; g < cache->config.num_groups; g++) {
            const struct group *group = &cache->groups[g];
            if (group_is_paged(group)) {
                possible = seq_table_next_resident(&group->tables, index, possible);
            }
        }
    } while (possible != before);
    if (possible != length) {
        return refuse(PKV_NOT_RESIDENT,
                      "keys that a query at %d sees were released; the shortest possible length "
                      "is %d, or 0",
                      length, possible);
    }
    return PKV_OK;
}

static bool has_continuous_group(const pkv_cache *cache)
{
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        if (!group_is_paged(&cache->groups[g])) {
            return true;
        }
    }
    return false;
}

/* What leaves a window may be promised; a child that holds on to it takes spare blocks. */
static enum pkv_status check_promises(const pkv_cache *cache, int32_t parent, int32_t at)
{
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        const struct seq_table_set *tables = &cache->groups[g].tables;
        const int32_t need = seq_table_fork_spare(tables, parent, at);
        const int32_t spare = seq_table_num_spare(tables);
        if (need > spare) {
            return refuse(PKV_NO_BLOCKS,
                          "group %d: a child would hold %d blocks of an admitted window, %d free",
                          g, need, spare);
        }
    }
    return PKV_OK;
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
    cache->seqs.at[child].length = at;
    publish_fork(cache, parent, child, at);
    quota_settle(cache, child);
    return sequence_handle(&cache->seqs, child);
}

static enum pkv_status fork_seq(pkv_cache *cache, pkv_seq handle, int32_t at, int32_t n,
                                pkv_seq *children)
{
    struct seq *parent = NULL;
    enum pkv_status status = sequence_find_idle(&cache->seqs, handle, &parent);
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
    status = at > 0 ? check_resident(cache, index, at) : PKV_OK;
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

/* Whether the blocks that a cut to `length` gives up can be promised again. */
static bool keeps_promise(const pkv_cache *cache, int32_t index, int32_t length)
{
    bool keeps = length > 0;
    for (int32_t g = 0; keeps && g < cache->config.num_groups; g++) {
        const struct group *group = &cache->groups[g];
        keeps = !group_is_paged(group) || seq_table_cut_spare(&group->tables, index, length) <=
                                              seq_table_num_spare(&group->tables);
    }
    return keeps;
}

static enum pkv_status truncate_seq(pkv_cache *cache, pkv_seq handle, int32_t length)
{
    struct seq *seq = NULL;
    enum pkv_status status = sequence_find_idle(&cache->seqs, handle, &seq);
    if (status != PKV_OK) {
        return status;
    }
    if (length < 0 || length > seq->length) {
        return INVALID("length = %d, outside [0, %d]", length, seq->length);
    }
    const int32_t index = sequence_index(&cache->seqs, seq);
    status = length > 0 ? check_resident(cache, index, length) : PKV_OK;
    if (status != PKV_OK) {
        return status;
    }
    if (length == 0) {
        publish_finish(cache, index);
    }
    const bool keeps = keeps_promise(cache, index, length);
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        if (group_is_paged(group)) {
            seq_table_cut(&group->tables, index, length);
            if (!keeps) {
                seq_table_withdraw(&group->tables, index);
            }
        }
    }
    seq->length = length;
    seq->reuse.was_preempted = length == 0 && seq->reuse.was_admitted;
    publish_cut(cache, index, length);
    quota_settle(cache, index);
    return PKV_OK;
}

enum pkv_status pkv_seq_truncate(pkv_cache *cache, pkv_seq seq, int32_t length)
{
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    cache_lock(cache);
    const enum pkv_status status = truncate_seq(cache, seq, length);
    cache_unlock(cache);
    return status;
}
