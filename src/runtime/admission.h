/* SPDX-License-Identifier: MIT
 *
 * admission.h: what admission and the probe both decide: which cached prefix a request adopts, what
 * it then takes of each group, and whether that fits. Deciding changes nothing but scratch of the
 * cache, so the probe ends here and admission goes on to take what was decided.
 *
 *   blocks to take off the free ones = num_new + num_revived
 *   blocks to charge to its quotas   = num_new + num_adopted
 *
 * A hit that ends inside a block takes the cached block beside the copy of it that the sequence
 * will have, until the first step ends. Where there is no room for both, the hit ends with the last
 * whole block: no request is refused for the sake of a longer hit.
 *
 * The mutex is held. O(prompt tokens) for the match, O(groups + blocks adopted) for the rest. */
#ifndef PKV_RUNTIME_ADMISSION_H
#define PKV_RUNTIME_ADMISSION_H

#include "runtime/cache.h"
#include "runtime/quota.h"

/* What is to be admitted. */
struct admission_request {
    const struct seq *prototype; /* its options */
    int32_t index;               /* NO_SEQ: a probe */
    const struct pkv_prompt *prompt;
    int64_t num_cells; /* tokens of the prompt and those reserved beyond it */
    int32_t max_cached;
    struct quota quota;
};

struct admission_decision {
    int32_t num_adopted; /* leading blocks of the cached prefix, mapped or behind a window */
    int32_t num_copied;  /* first tokens of the next block, which is reuse.source */
    int64_t num_blocks;  /* promised in all groups together */
};

static inline int32_t admission_num_cached(const pkv_cache *cache,
                                           const struct admission_decision *decision)
{
    return decision->num_adopted * cache->reuse.block_size + decision->num_copied;
}

/* Decides a request. PKV_OK: the demand of each paged group and reuse.matched hold what
 * taking needs.
 * PKV_NO_BLOCKS, PKV_NEVER_FITS: *shortage says why. */
enum pkv_status admission_decide(pkv_cache *cache, const struct admission_request *request,
                                 struct admission_decision *decision,
                                 struct pkv_shortage *shortage);

/* Blocks of group g, paged or of states, that admissions can ever have, and those that they can
 * have now. */
int32_t admission_limit(const pkv_cache *cache, int32_t g);
int32_t admission_available(const pkv_cache *cache, int32_t g);

/* Reads the prompt of a request into *prompt and checks what the arguments say by themselves.
 * PKV_INVALID_ARGUMENT, PKV_UNSUPPORTED. Needs no mutex. */
enum pkv_status admission_take(const pkv_cache *cache, const struct pkv_prompt *given,
                               int32_t reserve_tokens, int32_t max_cached,
                               struct pkv_prompt *prompt);

#endif
