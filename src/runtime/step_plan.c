/* SPDX-License-Identifier: MIT
 *
 * Rows as attention takes them. Tables are referred to, not copied: they are constant from begin to
 * commit. The kept prefixes and slots are arrays of their own, because pkv_step_describe shows
 * them. */
#include "runtime/step_plan.h"

#include "attn/gqa_plan.h"
#include "attn/selection.h"
#include "attn/tree.h"
#include "base/error.h"
#include "base/minmax.h"
#include "runtime/reservation.h"

static void fill_arrays(const pkv_cache *cache, struct group *group)
{
    const struct step *step = &cache->step;
    for (int32_t i = 0; i < step->num_rows; i++) {
        const int32_t seq = step->seqs[i];
        group->step.kept_prefix[i] = group_kept_prefix(group, &cache->seqs.at[seq]);
        if (!group_is_paged(group)) {
            group->step.slot_ids[i] = group->tables.at[seq].slot;
        }
    }
}

static struct gqa_row row_of(const struct step *step, const struct group *group, int32_t i)
{
    struct gqa_row row = {
        .q_begin = step->cu_seqlens[i],
        .q_len = step_q_len(step, i),
        .kv_len = step->kv_lens[i],
        .kept_prefix = (int32_t)min_i64(group->step.kept_prefix[i], step->kv_lens[i]),
        .copy_src = NO_BLOCK,
        .ranges = step->ranges + step->cu_ranges[i],
        .num_ranges = step->cu_ranges[i + 1] - step->cu_ranges[i],
    };
    if (!group_is_paged(group)) {
        row.block = group->step.slot_ids[i];
        return row;
    }
    row.table = seq_table_entries(&group->tables, step->seqs[i]);
    const int32_t copied_from = group->step.reservations[i].copied_from;
    if (copied_from != NO_BLOCK) {
        row.copy_src = copied_from;
        row.copy_cells = step_length_before(step, i) % group->config->block_size;
    }
    return row;
}

static enum pkv_status fill_rows(pkv_cache *cache, const struct group *group, pkv_plan *plan,
                                 struct gqa_row **filled)
{
    const int32_t num_rows = cache->step.num_rows;
    struct gqa_row *rows = gqa_plan_rows(cache->workspace, plan, num_rows);
    if (rows == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for a plan of %d rows", num_rows);
    }
    for (int32_t i = 0; i < num_rows; i++) {
        rows[i] = row_of(&cache->step, group, i);
    }
    *filled = rows;
    return PKV_OK;
}

static enum pkv_status plan_group(pkv_cache *cache, struct group *group)
{
    struct gqa_row *rows;
    const enum pkv_status status = fill_rows(cache, group, group->step.plan, &rows);
    if (status != PKV_OK) {
        return status;
    }
    if (cache->step.has_parents &&
        !tree_fill_rows(group->step.plan, &group->shape, cache->step.parents)) {
        return refuse(PKV_NO_MEMORY, "no memory for trees of drafts");
    }
    return gqa_plan_split(cache->workspace, group->step.plan, &group->shape);
}

enum pkv_status step_plan(pkv_cache *cache)
{
    enum pkv_status status = PKV_OK;
    for (int32_t g = 0; status == PKV_OK && g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        fill_arrays(cache, group);
        status = cache->step.num_tokens > 0 ? plan_group(cache, group) : PKV_OK;
    }
    return status;
}

enum pkv_status step_plan_selected(pkv_cache *cache, const struct group *group,
                                   const struct selection *selection, const struct gqa_shape *shape)
{
    struct gqa_row *rows;
    enum pkv_status status = fill_rows(cache, group, cache->selected_plan, &rows);
    if (status == PKV_OK) {
        status = selection_check(selection, shape, rows);
    }
    if (status == PKV_OK) {
        status = selection_copy(selection, cache->selected_plan);
    }
    return status == PKV_OK ? gqa_plan_split(cache->workspace, cache->selected_plan, shape)
                            : status;
}
