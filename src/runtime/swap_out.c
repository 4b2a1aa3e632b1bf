/* SPDX-License-Identifier: MIT
 *
 * The public call that moves a sequence out. Its blocks are released only when all that they hold
 * has been copied; then its promise ends too. */
#include "pagedkv/swap.h"

#include "base/error.h"
#include "base/sized.h"
#include "runtime/quota.h"
#include "runtime/seq_life.h"
#include "runtime/shortage.h"
#include "runtime/swap.h"

/* Units that the sequence's cells and states take, in all groups. */
static int64_t count_units(pkv_cache *cache, int32_t index)
{
    int64_t count = 0;
    for (int32_t g = 0; g < cache_num_groups(cache); g++) {
        for (int32_t i = 0; i < swap_num_entries(cache, g, index); i++) {
            if (swap_maps(cache, g, index, i)) {
                count += swap_num_units(cache, g, index, i);
            }
        }
    }
    return count;
}

static enum pkv_status judge(const pkv_cache *cache, int64_t num_units,
                             struct pkv_shortage *shortage)
{
    const struct swap_area *area = &cache->swap;
    const struct shortage_demand demand = {
        .row = SHORTAGE_NO_ROW,
        .group = SHORTAGE_NO_GROUP,
        .total = num_units,
        .more = num_units,
        .limit = area->num_units,
        .available = area->num_free,
    };
    const enum pkv_status status = shortage_judge(PKV_OK, &demand, shortage);
    if (status == PKV_OK) {
        return PKV_OK;
    }
    shortage->quota = 0; /* it is the area that refuses */
    return refuse(status, "swap area: %lld units of %zu bytes needed, %d of %d free",
                  (long long)num_units, area->unit_bytes, area->num_free, area->num_units);
}

/* The first unit of each block's cells says where they belong. */
static void label_units(pkv_cache *cache, int32_t index)
{
    struct swap_area *area = &cache->swap;
    int32_t at = area->chains[index].first;
    for (int32_t g = 0; g < cache_num_groups(cache); g++) {
        for (int32_t i = 0; i < swap_num_entries(cache, g, index); i++) {
            if (!swap_maps(cache, g, index, i)) {
                continue;
            }
            struct swap_area_unit *unit = &area->units[at];
            unit->group = g;
            unit->entry = i;
            unit->is_done = false;
            for (int64_t count = swap_num_units(cache, g, index, i); count > 0; count--) {
                at = area->units[at].next;
            }
        }
    }
}

static enum pkv_status unlink_seq(pkv_cache *cache, pkv_seq handle, int32_t *index,
                                  struct pkv_shortage *shortage)
{
    struct seq *seq = NULL;
    enum pkv_status status = sequence_find_idle(&cache->seqs, handle, &seq);
    if (status != PKV_OK) {
        return status;
    }
    if (seq->is_swapped) {
        return INVALID("sequence %016llx is swapped out already", (unsigned long long)handle.id);
    }
    *index = sequence_index(&cache->seqs, seq);
    const int64_t num_units = count_units(cache, *index);
    status = judge(cache, num_units, shortage);
    if (status == PKV_OK) {
        swap_area_take(&cache->swap, *index, (int32_t)num_units);
        label_units(cache, *index);
        seq_life_begin_move(cache, *index);
    }
    return status;
}

/* The sequence has its cells in the area now. */
static void relink(pkv_cache *cache, int32_t index)
{
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        if (group_is_paged(group)) {
            *swap_table(cache, g, index) = group->tables.at[index];
            seq_table_cut(&group->tables, index, 0);
            seq_table_withdraw(&group->tables, index);
        }
    }
    for (int32_t s = 0; s < cache->num_states; s++) {
        state_list_leave(&cache->states[s], index);
    }
    cache->seqs.at[index].is_swapped = true;
    quota_settle(cache, index);
}

enum pkv_status pkv_seq_swap_out(pkv_cache *cache, pkv_seq seq, struct pkv_shortage *shortage)
{
    struct pkv_shortage found = {0};
    int32_t index = 0;
    enum pkv_status status = swap_check_call(cache, shortage);
    if (status != PKV_OK) {
        return status;
    }
    cache_lock(cache);
    status = unlink_seq(cache, seq, &index, &found);
    cache_unlock(cache);
    if (shortage != NULL && shortage_is_why(status)) {
        sized_fill(shortage, &found);
    }
    if (status != PKV_OK) {
        return status;
    }
    const size_t bytes = swap_copy(cache, index, true);
    cache_lock(cache);
    const bool is_live = seq_life_end_move(cache, index);
    if (is_live) {
        relink(cache, index);
        cache->counters.swap_outs++;
        cache->counters.swap_out_bytes += bytes;
    }
    cache_unlock(cache);
    return is_live ? PKV_OK : sequence_refuse_stale(seq);
}
