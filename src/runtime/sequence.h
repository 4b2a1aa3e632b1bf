/* SPDX-License-Identifier: MIT
 *
 * sequence.h: sequence records as the step sees them: found by a handle (handle.h), checked, and
 * released. */
#ifndef PKV_RUNTIME_SEQUENCE_H
#define PKV_RUNTIME_SEQUENCE_H

#include "runtime/cache.h"
#include "runtime/prefix.h"

/* The live sequence that a handle names, or NULL. The mutex is held, as for all that follow. */
struct seq *sequence_find(pkv_cache *cache, pkv_seq handle);

/* A live sequence that no step has in work: PKV_STALE_HANDLE, PKV_BUSY. */
enum pkv_status sequence_find_idle(pkv_cache *cache, pkv_seq handle, struct seq **seq);

/* A caller's options (NULL = none) as those of *model, and the name of its namespace. Needs no
 * mutex. PKV_INVALID_ARGUMENT. */
enum pkv_status sequence_check_options(const pkv_cache *cache,
                                       const struct pkv_seq_options *options, struct seq *model,
                                       struct prefix_name *name);

/* Gives back everything that a destroyed sequence holds, and its index. */
void sequence_release(pkv_cache *cache, int32_t index);

static inline int32_t sequence_index(const pkv_cache *cache, const struct seq *seq)
{
    return (int32_t)(seq - cache->seqs);
}

#endif
