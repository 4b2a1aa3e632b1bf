/* SPDX-License-Identifier: MIT
 *
 * The rules are those of struct pkv_gqa_args, for the rows that joined. */
#include "runtime/step_select.h"

#include "attn/tree.h"
#include "base/error.h"
#include "base/minmax.h"
#include "runtime/step_plan.h"

static enum pkv_status check_none(const struct pkv_layer_io *io)
{
    return io->selected == NULL && io->num_selected_lists == 0 && io->selection_size == 0 &&
                   io->selected_newest == 0
               ? PKV_OK
               : INVALID("io->cu_selected is NULL, but something is said of selected blocks");
}

static enum pkv_status check_no_tree(const struct step *step)
{
    for (int32_t i = 0; step->has_parents && i < step->num_rows; i++) {
        if (!tree_is_chain(step->parents + step->cu_seqlens[i], step_q_len(step, i))) {
            return refuse(PKV_UNSUPPORTED, "io->cu_selected: row %d is a tree of drafts", i);
        }
    }
    return PKV_OK;
}

static enum pkv_status check_counts(const pkv_cache *cache, const struct group *group,
                                    const struct pkv_layer_io *io)
{
    const int32_t num_rows = cache->step.num_rows;
    const int32_t num_lists = io->num_selected_lists;
    if (num_lists != num_rows && num_lists != (int64_t)num_rows * group->config->kv_heads) {
        return INVALID("io->num_selected_lists = %d, neither the %d rows nor rows * kv_heads",
                       num_lists, num_rows);
    }
    if (io->selection_size < 0 || (io->selection_size == 0 && !group_is_paged(group))) {
        return INVALID("io->selection_size = %d: at least 1, or 0 in a paged group",
                       io->selection_size);
    }
    return io->selected_newest < 0
               ? INVALID("io->selected_newest = %lld, negative", (long long)io->selected_newest)
               : PKV_OK;
}

enum pkv_status step_select_check(const pkv_cache *cache, int32_t layer,
                                  const struct pkv_layer_io *io)
{
    if (io->cu_selected == NULL) {
        return check_none(io);
    }
    const int32_t g = cache->layers[layer].group;
    const struct group *group = &cache->groups[g];
    if (group->config->sliding_window != 0) {
        return INVALID("io->cu_selected is set, and group %d has a sliding_window", g);
    }
    const enum pkv_status status = check_counts(cache, group, io);
    return status == PKV_OK ? check_no_tree(&cache->step) : status;
}

enum pkv_status step_select_plan(pkv_cache *cache, int32_t layer, const struct pkv_layer_io *io)
{
    struct group *group = &cache->groups[cache->layers[layer].group];
    const struct selection selection = {
        .selected = io->selected,
        .cu_selected = io->cu_selected,
        .num_lists = io->num_selected_lists,
        .num_rows = cache->step.num_rows,
    };
    struct gqa_shape shape = group->shape;
    shape.selection_size = io->selection_size != 0 ? io->selection_size : shape.block_size;
    shape.selected_newest = (int32_t)min_i64(io->selected_newest, INT32_MAX);
    shape.selects_by_head = selection.num_lists != selection.num_rows;
    return step_plan_selected(cache, group, &selection, &shape);
}
