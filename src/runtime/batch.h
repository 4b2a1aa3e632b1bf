/* SPDX-License-Identifier: MIT
 *
 * batch.h: a caller's batch, checked and resolved into rows of the step. Resolving writes the
 * arrays of a step that is not open (seqs, cu_seqlens, kv_lens, ranges, parents) and nothing else;
 * how many of the rows join is decided afterwards. O(rows + tokens). */
#ifndef PKV_RUNTIME_BATCH_H
#define PKV_RUNTIME_BATCH_H

#include "runtime/cache.h"

/* Reads a caller's batch into *batch and checks what it says by itself; *row becomes the row to
 * blame, if one is. shortage: where the caller wants to be told how many rows joined.
 * PKV_INVALID_ARGUMENT, PKV_UNSUPPORTED for a field of a later version. Needs no mutex. */
enum pkv_status batch_take(const struct pkv_cache_config *config, const struct pkv_batch *given,
                           const struct pkv_shortage *shortage, struct pkv_batch *batch,
                           int32_t *row);

/* The rows of a checked batch: what its handles name, lengths and positions. PKV_BUSY when the
 * cache is closed or a step is open, PKV_STALE_HANDLE, PKV_INVALID_ARGUMENT. The mutex is held. */
enum pkv_status batch_resolve(pkv_cache *cache, const struct pkv_batch *batch, int32_t *row);

/* `count` tokens of a batch from `first` on. */
static inline struct pkv_prompt batch_tokens(const struct pkv_batch *batch, int32_t first,
                                             int32_t count)
{
    return (struct pkv_prompt){
        .token_ids = batch->token_ids + first,
        .token_extra = batch->token_extra != NULL ? batch->token_extra + first : NULL,
        .num_tokens = count,
    };
}

#endif
