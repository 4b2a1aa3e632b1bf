/* SPDX-License-Identifier: MIT
 *
 * pagedkv/select.h: which blocks sparse attention should read. Beside the cache the caller keeps
 * bounds of each full block's keys; before a layer attends, the queries rank the blocks by them,
 * and the best become the lists of selected blocks of attn.h. What is read is then the bounds, two
 * vectors a block, and the keys and values of the blocks that were chosen (Quest, Tang et al.,
 * arXiv:2406.10774).
 *
 *     a block became full:    pkv_block_bounds(workspace, &view, NULL, 0, &block, 1, block_size,
 *                                              bounds)
 *     before a layer attends: args.num_selected_lists = batch; args.selected_newest = 128;
 *                             rank = {.size = sizeof rank, .bounds = bounds, .max_selected = 64,
 *                                     .selected = selected, .cu_selected = cu_selected}
 *                             pkv_block_rank(workspace, &args, &rank)
 *                             args.selected = selected; args.cu_selected = cu_selected
 *                             pkv_gqa(workspace, &args)
 *
 * The bounds of a block and KV head are the least and the greatest value of each channel over its
 * keys. So no key of the block has a larger dot product with q than
 *
 *     bound(q) = sum over channels c of  q[c] < 0 ? q[c] * min[c] : q[c] * max[c]
 *
 * A block's score is the largest bound over the queries and heads that share a list. The score is
 * above the bound by what rounding may cost, so that it holds of exact arithmetic too: a block that
 * is left out has no key that scores above the least score of a block that is chosen. Which blocks
 * matter most is a guess all the same, for bounds are loose and the softmax sums. An indexer of the
 * model's own writes its lists into the arguments itself and needs nothing of this.
 *
 * Bits. Bounds and scores are the same on all instruction sets. A row's list depends on that row's
 * own queries and bounds alone; equal scores go to the lower block. */
#ifndef PAGEDKV_SELECT_H
#define PAGEDKV_SELECT_H

#include "pagedkv/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the bounds of blocks: of each KV head and channel the least and the greatest value that
 * the first num_keys cells of the block hold.
 *
 * keys describes the pages of one layer; its v fields are not read. A slot of a continuous cache,
 * or a row of a dense one, is a view of its own: k is where the slot begins, block_size the number
 * of keys that count as a block, k_block_stride = block_size * k_cell_stride, and num_blocks the
 * whole blocks that the slot has room for. k_scale [k_scale_count] is that of struct
 * pkv_attn_constants: NULL and 0 for float caches. An int8 or e4m3 value is its code times the
 * scale, rounded to f32.
 *
 * blocks [num_blocks] are in [0, keys->num_blocks); one may be listed twice. num_keys is in [1,
 * block_size]. Keep the bounds once a block is full: the keys of a full block do not change. bounds
 * is the array of all blocks, [keys->num_blocks][kv_heads][2][k_width], minima before maxima; what
 * it has of other blocks is left as it is. In a channel where a key is NaN both are NaN, which
 * pkv_block_rank ranks first. It does not overlap the keys.
 *
 * Returns PKV_OK; PKV_INVALID_ARGUMENT. Cells from num_keys on are not read. The workspace's
 * thread, and no one may write these blocks meanwhile. It takes no memory. O(num_blocks * num_keys
 * * kv_heads * k_width). */
PKV_API PKV_NODISCARD enum pkv_status pkv_block_bounds(pkv_workspace *workspace,
                                                       const struct pkv_kv_view *keys,
                                                       const float *k_scale, int32_t k_scale_count,
                                                       const int32_t *blocks, int32_t num_blocks,
                                                       int32_t num_keys, float *bounds);

/* What pkv_block_rank takes beside the arguments of the attention call, and where it writes. */
struct pkv_rank_args {
    size_t size;

    /* Bounds of this layer's keys, by pkv_block_bounds or by the same rule. In the form PAGED
     * [past.num_blocks][kv_heads][2][k_width], by block id. In the forms CONTINUOUS and DENSE a
     * slot or row has block_size / selection_size blocks, rounded up, and its block s is number
     * slot * (blocks of a slot) + s of the array. */
    const float *bounds;
    /* [batch]: the row's first so many blocks can be chosen, in [0, ceil(kv_len /
     * selection_size)]; of all of them but those whose table entry is -1, bounds are read. NULL =
     * the blocks that are full before the call and have a key that selected_newest does not show:
     *
     *     min((kv_len - q_len) / selection_size, ceil((kv_len - selected_newest) / selection_size))
     *
     * Keys between these blocks and the newest are seen by nobody; a selected_newest of at least
     * selection_size + q_len - 1 leaves none. */
    const int32_t *num_candidates;
    /* k >= 1: a list has the k best candidates, or all when there are fewer. */
    int32_t max_selected;

    /* The lists as pkv_gqa takes them: selected has room for num_selected_lists * max_selected
     * blocks, of which cu_selected [num_selected_lists + 1] says how many are written. They overlap
     * nothing that is read. */
    int32_t *selected;
    int32_t *cu_selected;
    /* [num_selected_lists][scores_stride]: the score of each candidate, -inf for one whose table
     * entry is -1. scores_stride is at least the most candidates of a row; 0 = max_blocks, or the
     * blocks of a slot. NULL = not wanted. */
    float *scores;
    size_t scores_stride;
};

/* Ranks the blocks of each row by the bounds of their keys, and writes lists of the best.
 *
 * args are the arguments that the attention call will have, and checked alike as far as they are
 * read: form, which is not NONE or DENSE_COPY, geometry, q, rows, lengths, slots and block tables,
 * where a block may be listed twice. num_selected_lists says whether there is a list for each row,
 * or one for each row and KV head; selection_size in the form PAGED is 0 or past.block_size. q is
 * what pkv_gqa gets: the queries are rotated and normed here as they will be there, by constants
 * and position_ids, so queries that the caller has rotated come without them. A negative q_scale
 * ranks by the negative of q. selected, cu_selected, out, lse and the keys and values are not read,
 * and may be NULL where the call allows it.
 *
 * A score that is not finite, as of a key that is NaN, ranks first. The scores do not know a mask,
 * nor a bidirectional range.
 *
 * Returns PKV_OK and writes selected, cu_selected and scores; PKV_INVALID_ARGUMENT;
 * PKV_UNSUPPORTED for a k_width above 65536 and for a row that is a tree of drafts; PKV_NO_MEMORY
 * while scratch still grows. The workspace's thread, and its other threads as in pkv_gqa: ranges of
 * blocks are dealt to them, then lists. One more takes part with every 80000 floats of bounds that
 * are read, about 10 us of work; the result does not depend on it.
 *
 * O(queries * candidates * num_heads * k_width), plus O(candidates * log max_selected) a list. A
 * query reads 2 * kv_heads * k_width floats a candidate, which with a few query heads a KV head
 * takes the most of its time. */
PKV_API PKV_NODISCARD enum pkv_status pkv_block_rank(pkv_workspace *workspace,
                                                     const struct pkv_gqa_args *args,
                                                     const struct pkv_rank_args *rank);

#ifdef __cplusplus
}
#endif

#endif
