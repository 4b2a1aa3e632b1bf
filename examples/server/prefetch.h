/* SPDX-License-Identifier: MIT
 *
 * prefetch.h: what tiers have of a prompt comes into the cache before its run is admitted, and a
 * bound on how long the run waits for it. Nothing here waits. */
#ifndef SERVER_PREFETCH_H
#define SERVER_PREFETCH_H

#include "pagedkv/offload.h"

/* Of one run, zeroed at first. */
struct prefetch {
    bool begun;
    pkv_ticket ticket; /* id 0: there is nothing, or no longer */
    uint64_t begun_ns;
};

/* Begins it, unless it was begun before or the cache has the prompt already. max_cached as in
 * pkv_cache_probe. False when no more may be open now: try again after a step. */
bool prefetch_begin(struct prefetch *prefetch, pkv_cache *cache,
                    const struct pkv_seq_options *options, const struct pkv_prompt *prompt,
                    int32_t max_cached, uint64_t now_ns);

/* All of it has come, or it took longer than max_ns: the run may be admitted. */
bool prefetch_is_over(const struct prefetch *prefetch, pkv_cache *cache, uint64_t now_ns,
                      uint64_t max_ns);

/* After the admission, or when the run is gone: what has come stays cached, but is not held any
 * more. True when there was something to end. */
bool prefetch_end(struct prefetch *prefetch, pkv_cache *cache);

#endif
