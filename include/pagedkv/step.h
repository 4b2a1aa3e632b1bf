/* SPDX-License-Identifier: MIT
 *
 * pagedkv/step.h: one forward pass over a batch of sequences, and its layers. */
#ifndef PAGEDKV_STEP_H
#define PAGEDKV_STEP_H

#include "pagedkv/attn.h"
#include "pagedkv/base.h"
#include "pagedkv/cache.h"
#include "pagedkv/pages.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A zeroed handle is stale in every cache. */
typedef struct pkv_step {
    uint64_t id;
} pkv_step;

/* One step's rows. Row i appends q_lens[i] >= 0 tokens to seqs[i]. */
struct pkv_batch {
    size_t size;
    const pkv_seq *seqs;
    const int32_t *q_lens; /* NULL = one token each */
    int32_t num_rows;
    int32_t num_required_rows;   /* all or none of these; later rows join in order while they fit */
    const int32_t *token_ids;    /* [sum of q_lens], the tokens whose K and V this step writes */
    const uint64_t *token_extra; /* likewise; NULL = none */
    const int64_t *position_ids; /* likewise, for rope; NULL = position in the sequence */
    uint64_t now_ns;             /* the caller's clock: pins end by it, when it is not 0 */
};

/* Reserves cells in every group and plans; writes no payload. On PKV_OK the step is open and
 * shortage->row says how many rows joined. A required row that finds no block: PKV_NO_BLOCKS (or
 * PKV_NEVER_FITS) with *shortage, nothing changed. A sequence twice in the batch, a row past
 * max_seq_len, more rows or tokens than the bounds: PKV_INVALID_ARGUMENT. PKV_STALE_HANDLE names
 * the row. PKV_BUSY with a step open or a closed cache. PKV_NO_MEMORY while scratch still grows,
 * before a block is taken. An empty batch is an empty step. shortage may be NULL when
 * num_required_rows = num_rows. */
PKV_API PKV_NODISCARD enum pkv_status pkv_step_begin(pkv_cache *cache,
                                                     const struct pkv_batch *batch, pkv_step *step,
                                                     struct pkv_shortage *shortage);

/* Dry run of begin: the status it would answer now, and *shortage as it would be filled; no effect,
 * but that pins whose time is up by batch->now_ns end. */
PKV_API PKV_NODISCARD enum pkv_status pkv_step_fits(pkv_cache *cache, const struct pkv_batch *batch,
                                                    struct pkv_shortage *shortage);

/* One layer's activations, tokens of all rows packed in batch order; strides in elements between
 * tokens, 0 = packed, so a fused QKV row needs no copy. A sharing layer has k and v NULL; v NULL
 * with v_in_k. */
struct pkv_layer_io {
    size_t size;
    const void *q; /* [tokens][num_heads * k_width] */
    const void *k; /* [tokens][kv_heads * k_width] */
    const void *v; /* [tokens][kv_heads * v_width] */
    void *out;     /* [tokens][num_heads * v_width] */
    float *lse;    /* [tokens][num_heads] or NULL */
    size_t q_stride, k_stride, v_stride, out_stride;
};

/* Appends the layer's k and v and attends. A second append of one layer, a layer out of range, a
 * missing pointer, out or lse over an input or the pages: PKV_INVALID_ARGUMENT. PKV_STALE_HANDLE.
 * Takes no memory. */
PKV_API PKV_NODISCARD enum pkv_status pkv_step_attend(pkv_cache *cache, pkv_step step,
                                                      int32_t layer, const struct pkv_layer_io *io);

/* pkv_step_attend for servers with threads of their own, in the phases of attn.h (pkv_phase):
 *
 *     pkv_step_layer_begin(cache, step, layer, &io)
 *     for each phase
 *         for each i in [0, pkv_step_num_tasks(cache, step, phase))       on any threads
 *             pkv_step_run_task(cache, step, phase, i, worker)
 *         all threads wait for each other
 *
 * The layer counts as attended, with the bits of pkv_step_attend, once every task has run, each
 * exactly once; until then another layer, commit and abort refuse (PKV_INVALID_ARGUMENT). `worker`
 * in [0, num_threads of the config) names the scratch: no two tasks may run with the same one at
 * once. Only these two calls on a step may come from several threads together. begin: the statuses
 * of pkv_step_attend. num_tasks: 0 with no layer under way, or a stale step. run_task:
 * PKV_INVALID_ARGUMENT for a number out of range, PKV_STALE_HANDLE. None takes memory. */
PKV_API PKV_NODISCARD enum pkv_status
pkv_step_layer_begin(pkv_cache *cache, pkv_step step, int32_t layer, const struct pkv_layer_io *io);
PKV_API int32_t pkv_step_num_tasks(pkv_cache *cache, pkv_step step, enum pkv_phase phase);
PKV_API PKV_NODISCARD enum pkv_status
pkv_step_run_task(pkv_cache *cache, pkv_step step, enum pkv_phase phase, int32_t task, int worker);

/* Ends the step: of row i the first num_keep[i] new cells stay (NULL = all, 0 = none). Fails only,
 * and leaves the step open, when num_keep is out of [0, q_len] or an owning layer was never
 * attended (PKV_INVALID_ARGUMENT); PKV_STALE_HANDLE. Takes no memory. With the prefix cache, blocks
 * that became full, and lie max_rewind tokens behind, are findable from now on; where an equal one
 * was already, the table names that one instead and its own is given back. */
PKV_API PKV_NODISCARD enum pkv_status pkv_step_commit(pkv_cache *cache, pkv_step step,
                                                      const int32_t *num_keep);

/* Ends the step as if it had never begun: lengths and tables are as before.
 * PKV_STALE_HANDLE; PKV_INVALID_ARGUMENT with tasks of a layer left. Takes no memory. */
PKV_API PKV_NODISCARD enum pkv_status pkv_step_abort(pkv_cache *cache, pkv_step step);

/* A group's side of the open step in plain integers: for another kernel, a worker process, a
 * debugger. Everything is constant until commit or abort and belongs to the cache. Row i of the
 * batch has the block table block_tables + (size_t)table_rows[i] * table_stride (paged;
 * continuous: cache row slot_ids[i]), tokens cu_seqlens_q[i] .. cu_seqlens_q[i + 1], and keys
 * kv_lens[i] after its append, which starts at kv_lens[i] - q_len. Before a layer's append,
 * copies[0..num_copies) are carried out on its pages. */
struct pkv_step_view {
    int32_t num_rows;
    int32_t num_tokens;
    const int32_t *block_tables;
    const int32_t *table_rows;
    size_t table_stride; /* in entries */
    int32_t max_blocks;
    const int32_t *slot_ids;
    const int32_t *cu_seqlens_q;
    const int32_t *kv_lens;
    const int64_t *position_ids; /* NULL when the batch had none */
    const int64_t *kept_prefix;  /* [num_rows] */
    int64_t sliding_window;
    const struct pkv_page_copy *copies;
    int32_t num_copies;
    struct pkv_kv_view first_layer; /* pages of the group's first owning layer ... */
    size_t layer_stride_bytes;      /* ... and the distance to the next one's */
};
PKV_API PKV_NODISCARD enum pkv_status pkv_step_view(pkv_cache *cache, pkv_step step, int32_t group,
                                                    struct pkv_step_view *view);

#ifdef __cplusplus
}
#endif

#endif
