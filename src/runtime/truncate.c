/* SPDX-License-Identifier: MIT
 *
 * A sequence is cut to an earlier length; cut to none, it releases all blocks and is admitted
 * again later, which is how a server preempts it. */
#include "base/error.h"
#include "runtime/publish.h"
#include "runtime/quota.h"
#include "runtime/resident.h"
#include "runtime/swap.h"

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
    if (seq->is_swapped && length > 0) {
        return sequence_refuse_swapped(handle);
    }
    const int32_t index = sequence_index(&cache->seqs, seq);
    status = length > 0 ? resident_check(cache, index, length) : PKV_OK;
    if (status != PKV_OK) {
        return status;
    }
    if (length == 0) {
        publish_finish(cache, index);
        swap_release(cache, index);
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
    for (int32_t s = 0; s < cache->num_states; s++) {
        state_list_cut(&cache->states[s], index, length);
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
