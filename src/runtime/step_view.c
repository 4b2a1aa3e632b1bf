/* SPDX-License-Identifier: MIT
 *
 * The open step as a caller with attention of its own reads it: the arrays of the step and of one
 * group. Nothing is copied, since they are constant until commit or abort; tables of unequal length
 * are read as one rectangle, so the short ones are set to -1 up to the end of the longest. */
#include <string.h>

#include "base/error.h"
#include "base/minmax.h"
#include "base/sized.h"
#include "runtime/cache.h"

/* The entries of the longest table, which all tables have from now on. */
static int32_t even_tables(const struct step *step, struct seq_table_set *tables)
{
    int32_t end = 0;
    for (int32_t i = 0; i < step->num_rows; i++) {
        end = max_i32(end, tables->at[step->seqs[i]].end);
    }
    for (int32_t i = 0; i < step->num_rows; i++) {
        seq_table_set(tables, step->seqs[i], end);
    }
    return end;
}

/* Field by field into zeros: what lies between fields goes to the caller too. */
static void view_group(const pkv_cache *cache, int32_t g, struct pkv_step_view *view)
{
    const struct step *step = &cache->step;
    struct group *group = &cache->groups[g];
    const bool is_paged = group_is_paged(group);
    memset(view, 0, sizeof *view);
    view->num_rows = step->num_rows;
    view->num_tokens = step->num_tokens;
    view->block_tables = group->tables.entries;
    view->table_rows = is_paged ? step->seqs : NULL;
    view->table_stride = group->tables.stride;
    view->max_blocks = is_paged ? even_tables(step, &group->tables) : 0;
    view->slot_ids = is_paged ? NULL : group->step.slot_ids;
    view->cu_seqlens_q = step->cu_seqlens;
    view->kv_lens = step->kv_lens;
    view->position_ids = step->has_position_ids ? step->position_ids : NULL;
    view->bidirectional = step->ranges;
    view->cu_bidirectional = step->cu_ranges;
    view->parents = step->has_parents ? step->parents : NULL;
    view->kept_prefix = group->step.kept_prefix;
    view->sliding_window = group->config->sliding_window;
    view->copies = group->step.copies;
    view->num_copies = group->step.num_copies;
    view->first_layer = group->first_view;
    view->layer_stride_bytes = group->layer_stride_bytes;
}

static void view_states(const struct step *step, struct state_group *states,
                        struct pkv_state_view *view)
{
    memset(view, 0, sizeof *view);
    view->num_rows = step->num_rows;
    view->num_tokens = step->num_tokens;
    view->cu_seqlens_q = step->cu_seqlens;
    view->reads = states->step.reads;
    view->writes = states->step.writes;
    view->parents = step->has_parents ? step->parents : NULL;
    view->first_layer = states->first_layer;
    view->state_bytes = states->config->state_bytes;
    view->state_stride_bytes = states->state_stride_bytes;
    view->layer_stride_bytes = states->layer_stride_bytes;
    states->step.is_shown = true;
}

enum pkv_status pkv_step_describe_states(pkv_cache *cache, pkv_step step, int32_t group,
                                         struct pkv_state_view *view)
{
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    enum pkv_status status = sized_check("view", view, struct pkv_state_view, layer_stride_bytes);
    if (status != PKV_OK) {
        return status;
    }
    if (group < cache->config.num_groups || group >= cache_num_groups(cache)) {
        return INVALID("group = %d: the state groups are those of [%d, %d)", group,
                       cache->config.num_groups, cache_num_groups(cache));
    }
    cache_lock(cache);
    status = step_check(&cache->step, step);
    if (status == PKV_OK) {
        struct pkv_state_view found;
        view_states(&cache->step, &cache->states[group - cache->config.num_groups], &found);
        sized_fill(view, &found);
    }
    cache_unlock(cache);
    return status;
}

enum pkv_status pkv_step_describe(pkv_cache *cache, pkv_step step, int32_t group,
                                  struct pkv_step_view *view)
{
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    enum pkv_status status = sized_check("view", view, struct pkv_step_view, layer_stride_bytes);
    if (status != PKV_OK) {
        return status;
    }
    if (group < 0 || group >= cache->config.num_groups) {
        return INVALID("group = %d, outside [0, %d)", group, cache->config.num_groups);
    }
    cache_lock(cache);
    status = step_check(&cache->step, step);
    if (status == PKV_OK) {
        struct pkv_step_view found;
        view_group(cache, group, &found);
        sized_fill(view, &found);
    }
    cache_unlock(cache);
    return status;
}
