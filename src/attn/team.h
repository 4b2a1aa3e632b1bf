/* SPDX-License-Identifier: MIT
 *
 * team.h: who runs the tasks of a workspace: the calling thread, and beside it those of an OpenMP
 * region or of the caller's hook. Tasks 0 .. n - 1 of a phase are dealt to workers as consecutive
 * ranges; a worker that has done its own takes from the others', so all of them are done however
 * many workers come, down to the caller alone. */
#ifndef PKV_ATTN_TEAM_H
#define PKV_ATTN_TEAM_H

#include <stdatomic.h>

#include "attn/backoff.h"
#include "attn/openmp.h"
#include "base/hooks.h"

/* `worker` is below num_threads and no two calls at one time have the same. */
typedef void team_function(const void *context, int32_t task, int worker);

/* What is left of a worker's range, [next, end); any worker may take from it. next passes end by
 * the number of workers at most. */
struct team_range {
    _Alignas(HOOKS_CACHE_LINE) _Atomic int64_t next;
    int32_t end;
};

struct team {
    const struct pkv_hooks *hooks;
    int num_threads;
    struct backoff backoff; /* from OpenMP's threads */

    struct team_range *ranges; /* [num_threads], the first num_ranges of the phase under way */
    int num_ranges;
    team_function *function; /* what a task does */
    const void *context;
    int64_t caller_work_ns; /* what worker 0 worked in the region */
};

/* num_threads in [1, MAX_THREADS]; hooks must outlive it, and it must not move. False when there is
 * no memory. */
bool team_create(const struct pkv_hooks *hooks, int num_threads, struct team *team);
void team_destroy(struct team *team);

/* Tasks [0, num_tasks) for workers [0, num_workers), num_workers in [1, num_threads]. Worker w
 * begins with [first[w], first[w + 1]); first NULL: each with about as many. */
struct team_deal {
    int32_t num_tasks;
    int32_t num_workers;
    const int32_t *first;
};

/* Runs the tasks, each once, and returns when all have ended. */
void team_run(struct team *team, const struct team_deal *deal, team_function *function,
              const void *context);

#endif
