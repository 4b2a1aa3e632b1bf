/* SPDX-License-Identifier: MIT
 *
 * team.h: the threads of a workspace, and the only module that knows OpenMP. Tasks 0 .. n - 1 of a
 * phase are dealt to workers as consecutive ranges; a worker that has done its own takes from the
 * others'. The number of workers is fixed; the number of threads that come may be smaller, down to
 * one inside a caller's parallel region or in a forked child: workers are loop iterations, so each
 * of them runs all the same. */
#ifndef PKV_ATTN_TEAM_H
#define PKV_ATTN_TEAM_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/hooks.h"

#define MAX_THREADS 1024

/* What is left of a worker's range, [next, end); any worker may take from it. */
struct team_worker {
    _Alignas(HOOKS_CACHE_LINE) atomic_int next;
    int32_t end;
};

struct team {
    int num_threads;
    pid_t owner;                 /* the process that created it, which alone has OpenMP's threads */
    struct team_worker *workers; /* [num_threads] */
};

/* OpenMP's team size here and now; 1 in a serial build. */
int team_default_threads(void);

/* num_threads in [1, MAX_THREADS]. false when there is no memory. */
bool team_create(const struct pkv_hooks *hooks, int num_threads, struct team *team);
void team_destroy(const struct pkv_hooks *hooks, struct team *team);

/* Gives worker w the tasks [begin, end) of the next phase. */
void team_deal(struct team *team, int w, int32_t begin, int32_t end);

/* Gives every worker about as many of num_tasks tasks. */
void team_deal_evenly(struct team *team, int32_t num_tasks);

/* Runs the tasks that were dealt, each once, and returns when all have ended. `worker` is below
 * num_threads and no two calls at one time have the same. */
typedef void team_function(const void *context, int32_t task, int worker);
void team_run(struct team *team, team_function *function, const void *context);

#endif
