/* SPDX-License-Identifier: MIT
 *
 * sequence.h: sequence records as the step sees them, and handles. A handle is
 *
 *   63        62 .. 24          23 .. 0
 *   kind      generation        index           kind: 0 sequence, 1 step
 *
 * Generations start at a number drawn per cache and only grow, so that a handle of another cache,
 * or of one that was destroyed at the same address, names nothing here. No decision depends on
 * them. Generation 0 is never used: a zeroed handle is stale. */
#ifndef PKV_RUNTIME_SEQUENCE_H
#define PKV_RUNTIME_SEQUENCE_H

#include "runtime/cache.h"
#include "runtime/prefix.h"

#define HANDLE_INDEX_BITS 24
#define HANDLE_GENERATION_BITS 39
#define HANDLE_STEP ((uint64_t)1 << 63)

/* The first generation of a new cache, and the one after. */
uint64_t sequence_first_generation(const pkv_cache *cache);
uint64_t sequence_next_generation(uint64_t generation);

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
