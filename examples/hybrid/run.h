/* SPDX-License-Identifier: MIT
 *
 * run.h: one answer of a request on its way: a sequence of the cache, and what of it is computed.
 *
 *   ABSENT --arrives--> WAITING <--preempted-- RUNNING --all tokens, or cancelled--> ENDED
 *                          `-----admitted-------^  ^
 *   UNFORKED, a second answer -----forked----------'   or WAITING, when it cannot be forked
 *
 *   0 <= length <= greatest,   length < num_tokens <= request->num_tokens while it runs */
#ifndef HYBRID_RUN_H
#define HYBRID_RUN_H

#include "workload.h"

#include "pagedkv/cache.h"

enum run_state { RUN_ABSENT, RUN_UNFORKED, RUN_WAITING, RUN_RUNNING, RUN_ENDED };

struct run {
    const struct request *request;
    const struct choice *choice;
    enum run_state state;
    bool was_cancelled;
    bool has_seq; /* also when it was preempted */
    pkv_seq seq;
    int32_t num_tokens; /* the prompt, and what was generated, which equals the right answer */
    int32_t length;     /* of these, committed */
    int32_t greatest;   /* length since it was last empty */
    int32_t adopted;    /* of these, from the prefix cache: no states are kept inside them */
    int32_t started;    /* when it was last admitted or forked; the youngest has the largest */
};

/* All but tokens and states are what the library says. */
struct run_counts {
    int64_t num_hits, hit_tokens, num_prompt_tokens;
    int64_t num_waits, num_preempted, num_lost, num_cancelled;
    int64_t num_forks, num_late_forks, num_refused_forks;
    int64_t num_rewinds;
};

/* Adopts what is cached and is promised the rest; false in *joined = not now. */
bool run_admit(pkv_cache *cache, struct run *run, struct run_counts *counts, bool *joined);

/* Releases all; it waits again. keeps_seq: its handle stays, another may be taken else. */
bool run_preempt(pkv_cache *cache, struct run *run, bool keeps_seq);

/* Ends it in any state, in the open step too. */
bool run_end(pkv_cache *cache, struct run *run);

/* Takes back its last tokens from `length` on; what it knows of them stays. */
bool run_rewind(pkv_cache *cache, struct run *run, int32_t length, struct run_counts *counts);

/* child begins with the first `at` tokens of the parent; it waits when that cannot be. */
bool run_fork(pkv_cache *cache, struct run *parent, int32_t at, struct run *child,
              struct run_counts *counts);

/* The shortest length that it can be rewound to, from 1 on. */
int32_t run_floor(const struct run *run);

#endif
