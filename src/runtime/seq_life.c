/* SPDX-License-Identifier: MIT
 *
 * A sequence of the open step cannot be released, because attention still reads its blocks, nor can
 * one whose blocks are being copied: it is stale from destroy on, and its record is SEQ_DYING until
 * the step or the move ends. */
#include "runtime/seq_life.h"

#include "base/error.h"
#include "runtime/handle.h"
#include "runtime/namespace.h"
#include "runtime/publish.h"
#include "runtime/quota.h"
#include "runtime/swap.h"

enum pkv_status seq_life_check_room(const pkv_cache *cache, int32_t count)
{
    if (cache->is_closed) {
        return refuse(PKV_BUSY, "the cache is closed");
    }
    if (cache->seqs.num_free < count) {
        return refuse(PKV_NO_BLOCKS, "%d sequences wanted, %d of max_seqs = %d are left", count,
                      cache->seqs.num_free, cache->config.max_seqs);
    }
    return PKV_OK;
}

int32_t seq_life_claim(pkv_cache *cache, const struct seq *prototype)
{
    const int32_t index = sequence_claim(&cache->seqs, prototype);
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        if (group_is_paged(group)) {
            seq_table_reset(&group->tables, index,
                            group_kept_prefix(group, &cache->seqs.at[index]));
        } else {
            group_claim_slot(group, index);
        }
    }
    for (int32_t s = 0; s < cache->num_states; s++) {
        state_list_reset(&cache->states[s], index);
    }
    return index;
}

void seq_life_release(pkv_cache *cache, int32_t index)
{
    publish_finish(cache, index);
    swap_release(cache, index);
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        if (group_is_paged(group)) {
            seq_table_shrink(&group->tables, index, 0);
            seq_table_withdraw(&group->tables, index);
        } else {
            group_release_slot(group, index);
        }
    }
    for (int32_t s = 0; s < cache->num_states; s++) {
        state_list_cut(&cache->states[s], index, 0);
    }
    quota_settle(cache, index);
    namespace_leave(cache, &cache->seqs.at[index]);
    sequence_release(&cache->seqs, index);
}

void seq_life_destroy(pkv_cache *cache, int32_t index)
{
    struct seq *seq = &cache->seqs.at[index];
    seq->generation = handle_next_generation(seq->generation);
    if (seq->in_step || seq->is_moving) {
        seq->state = SEQ_DYING;
    } else {
        seq_life_release(cache, index);
    }
}

void seq_life_begin_move(pkv_cache *cache, int32_t index)
{
    cache->seqs.at[index].is_moving = true;
}

bool seq_life_end_move(pkv_cache *cache, int32_t index)
{
    struct seq *seq = &cache->seqs.at[index];
    const bool is_live = seq->state == SEQ_LIVE;
    seq->is_moving = false;
    if (!is_live) {
        seq_life_release(cache, index);
    }
    return is_live;
}

int32_t seq_life_claim_hidden(pkv_cache *cache, const struct seq *prototype)
{
    const int32_t index = seq_life_claim(cache, prototype);
    cache->seqs.at[index].state = SEQ_HIDDEN;
    cache->seqs.at[index].is_moving = true;
    return index;
}

void seq_life_show(pkv_cache *cache, int32_t index)
{
    cache->seqs.at[index].state = SEQ_LIVE;
    cache->seqs.at[index].is_moving = false;
}

void seq_life_undo_hidden(pkv_cache *cache, int32_t index)
{
    cache->seqs.at[index].reuse.no_publish = true;
    seq_life_release(cache, index);
}
