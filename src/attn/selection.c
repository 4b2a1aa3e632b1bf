/* SPDX-License-Identifier: MIT
 *
 * Lists of selected blocks. What a plan keeps of them is one array: the offsets, then the blocks.
 */
#include "attn/selection.h"

#include <string.h>

#include "attn/check_cumulative.h"
#include "attn/plan.h"
#include "base/error.h"

/* One list of a row, selected[begin] .. selected[end - 1]. */
static enum pkv_status check_list(const int32_t *selected, int32_t size, const struct gqa_row *row,
                                  int32_t begin, int32_t end)
{
    const int32_t num_blocks = row->kv_len / size + (row->kv_len % size != 0);
    for (int32_t i = begin; i < end; i++) {
        if (selected[i] < 0 || selected[i] >= num_blocks) {
            return INVALID("selected[%d] = %d, outside [0, %d), the blocks of its row's %d keys", i,
                           selected[i], num_blocks, row->kv_len);
        }
        if (i > begin && selected[i] <= selected[i - 1]) {
            return INVALID("selected[%d] = %d, not above the entry before it, %d", i, selected[i],
                           selected[i - 1]);
        }
    }
    return PKV_OK;
}

enum pkv_status selection_check(const struct selection *selection, const struct gqa_shape *shape,
                                struct gqa_row *rows)
{
    const int32_t num_lists = selection->num_lists;
    const int32_t *cu = selection->cu_selected;
    const int32_t per_row = num_lists / selection->num_rows;
    enum pkv_status status = check_cumulative(cu, num_lists, -1, "cu_selected");
    if (status == PKV_OK && selection->selected == NULL && cu[num_lists] > 0) {
        status = INVALID("selected is NULL and cu_selected[%d] = %d", num_lists, cu[num_lists]);
    }
    for (int32_t i = 0; status == PKV_OK && i < num_lists; i++) {
        struct gqa_row *row = &rows[i / per_row];
        row->selected = selection->selected;
        row->cu_selected = cu + i / per_row * per_row;
        status = check_list(selection->selected, shape->selection_size, row, cu[i], cu[i + 1]);
    }
    return status;
}

enum pkv_status selection_copy(const struct selection *selection, pkv_plan *plan)
{
    struct gqa_row *rows = plan->rows.memory;
    const size_t lists = (size_t)selection->num_lists;
    const size_t blocks = (size_t)selection->cu_selected[lists];
    const size_t num_rows = (size_t)selection->num_rows;
    if (!buffer_grow(plan->hooks, &plan->selected, (lists + 1 + blocks) * sizeof(int32_t))) {
        return refuse(PKV_NO_MEMORY, "no memory for selected blocks");
    }
    int32_t *cu = plan->selected.memory;
    memcpy(cu, selection->cu_selected, (lists + 1) * sizeof *cu);
    if (blocks > 0) {
        memcpy(cu + lists + 1, selection->selected, blocks * sizeof *cu);
    }
    for (size_t b = 0; b < num_rows; b++) {
        rows[b].selected = cu + lists + 1;
        rows[b].cu_selected = cu + b * (lists / num_rows);
    }
    return PKV_OK;
}
