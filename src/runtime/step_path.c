/* SPDX-License-Identifier: MIT
 *
 * Cells are moved at commit and not, as copies on write are, by the next append: fork, save, swap,
 * publishing and tiers read what commit leaves, and a move put off would have to be known to all of
 * them. */
#include "runtime/step_path.h"

#include <string.h>

#include "attn/view.h"
#include "base/error.h"

static int32_t parent_of(const struct step *step, int32_t row, int32_t i)
{
    return step->has_parents ? step->parents[step->cu_seqlens[row] + i] : i - 1;
}

static enum pkv_status check_row(const struct step *step, int32_t row, const int32_t *path,
                                 int32_t first, int32_t num_keep)
{
    const int32_t q_len = step_q_len(step, row);
    for (int32_t k = 0; k < num_keep; k++) {
        const int32_t token = path[first + k];
        const int32_t before = k > 0 ? path[first + k - 1] : -1;
        if (token < 0 || token >= q_len) {
            return INVALID("path[%d] = %d, outside [0, %d) of row %d", first + k, token, q_len,
                           row);
        }
        if (parent_of(step, row, token) != before) {
            return INVALID("path[%d] = %d: the parent of that token of row %d is %d, not %d",
                           first + k, token, row, parent_of(step, row, token), before);
        }
    }
    return PKV_OK;
}

enum pkv_status step_path_check(const struct step *step, const int32_t *num_keep,
                                const int32_t *path)
{
    int32_t first = 0;
    for (int32_t i = 0; i < step->num_rows; i++) {
        if (path == NULL && num_keep[i] > 0) {
            return INVALID("path is NULL, but num_keep[%d] = %d", i, num_keep[i]);
        }
        const enum pkv_status status = check_row(step, i, path, first, num_keep[i]);
        if (status != PKV_OK) {
            return status;
        }
        first += num_keep[i];
    }
    return PKV_OK;
}

enum pkv_status step_path_check_chain(const struct step *step, int32_t row, int32_t num_keep)
{
    for (int32_t i = 0; step->has_parents && i < num_keep; i++) {
        if (parent_of(step, row, i) != i - 1) {
            return INVALID("row %d keeps %d tokens, but the parent of token %d is %d: what is kept "
                           "is no chain (pkv_step_commit_path keeps a path)",
                           row, num_keep, i, parent_of(step, row, i));
        }
    }
    return PKV_OK;
}

/* One token of one layer, in all its KV heads. */
struct cell {
    int32_t block;
    int32_t cell;
};

static struct cell cell_of(const struct step *step, const struct group *group, int32_t row,
                           int32_t position)
{
    const int32_t block_size = group->shape.block_size;
    const int32_t block =
        group_is_paged(group)
            ? seq_table_entries(&group->tables, step->seqs[row])[position / block_size]
            : group->step.slot_ids[row];
    return (struct cell){block, position % block_size};
}

static void move_cell(const struct pkv_kv_view *view, bool v_in_k, struct cell from, struct cell to)
{
    const size_t k_bytes = (size_t)view->k_width * pkv_dtype_bytes(view->k_dtype);
    const size_t v_bytes = (size_t)view->v_width * pkv_dtype_bytes(view->v_dtype);
    for (int32_t h = 0; h < view->kv_heads; h++) {
        memcpy(view_key(view, to.block, h, to.cell), view_key(view, from.block, h, from.cell),
               k_bytes);
        if (!v_in_k) {
            memcpy(view_value(view, to.block, h, to.cell),
                   view_value(view, from.block, h, from.cell), v_bytes);
        }
    }
}

/* One row in one layer. */
static void move_row(const pkv_cache *cache, int32_t layer, int32_t row, const int32_t *path,
                     int32_t num_keep)
{
    const struct step *step = &cache->step;
    const struct layer *of = &cache->layers[layer];
    const struct group *group = &cache->groups[of->group];
    const int32_t past = step_length_before(step, row);
    for (int32_t k = 0; k < num_keep; k++) {
        if (path[k] != k) {
            move_cell(&of->view, group->config->v_in_k, cell_of(step, group, row, past + path[k]),
                      cell_of(step, group, row, past + k));
        }
    }
}

/* What follows a row's tokens; NULL when nothing is kept of any row. */
static const int32_t *behind(const int32_t *path, int32_t num_keep)
{
    return num_keep > 0 ? path + num_keep : path;
}

void step_path_move_cells(const pkv_cache *cache, const int32_t *num_keep, const int32_t *path)
{
    const struct step *step = &cache->step;
    for (int32_t i = 0; step->has_parents && i < step->num_rows; i++) {
        for (int32_t l = 0; l < cache->config.num_layers; l++) {
            if (cache->layers[l].owner == l) {
                move_row(cache, l, i, path, num_keep[i]);
            }
        }
        path = behind(path, num_keep[i]);
    }
}

void step_path_move_tokens(pkv_cache *cache, const int32_t *num_keep, const int32_t *path)
{
    const struct step *step = &cache->step;
    for (int32_t i = 0; step->has_parents && i < step->num_rows; i++) {
        const int32_t seq = step->seqs[i];
        if (cache_has_reuse(cache)) {
            seq_tokens_move(&cache->reuse.tokens, seq, &cache->seqs.at[seq].tokens,
                            step_length_before(step, i), path, num_keep[i]);
        }
        for (int32_t s = 0; s < cache->num_states; s++) {
            state_step_move(step, &cache->states[s], i, path, num_keep[i]);
        }
        path = behind(path, num_keep[i]);
    }
}
