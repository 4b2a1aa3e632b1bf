/* SPDX-License-Identifier: MIT
 *
 * step_path.h: the paths of draft trees that a commit keeps. Row i keeps num_keep[i] of its tokens:
 * path names them, row after row, each the child of the one before and the first a root. Token
 * path[k] of a row then becomes the k-th behind what its sequence had:
 *
 *   cell past + path[k]  ->  cell past + k        path[k] >= k, ascending: in place, in order
 *
 * It has the depth k, so rope and windows have taken it for that position already. */
#ifndef PKV_RUNTIME_STEP_PATH_H
#define PKV_RUNTIME_STEP_PATH_H

#include "runtime/cache.h"

/* num_keep and path fit the open step. PKV_INVALID_ARGUMENT. O(tokens kept). */
enum pkv_status step_path_check(const struct step *step, const int32_t *num_keep,
                                const int32_t *path);

/* Without paths, the first num_keep tokens of a row must be one. PKV_INVALID_ARGUMENT. O(num_keep).
 */
enum pkv_status step_path_check_chain(const struct step *step, int32_t row, int32_t num_keep);

/* Moves keys and values, in all layers. Without the mutex, by the step's thread: the step stays
 * open, so its tables are constant, and nobody else reads the cells of its new tokens. */
void step_path_move_cells(const pkv_cache *cache, const int32_t *num_keep, const int32_t *path);

/* Moves the tokens that the sequences record. The mutex is held. */
void step_path_move_tokens(pkv_cache *cache, const int32_t *num_keep, const int32_t *path);

#endif
