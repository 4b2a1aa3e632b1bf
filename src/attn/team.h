/* SPDX-License-Identifier: MIT
 *
 * team.h: who runs the tasks of a workspace: the calling thread, and beside it helpers, or the
 * threads of the caller's hook. Tasks 0 .. n - 1 of a phase are dealt to workers as consecutive
 * ranges; a worker that has done its own takes from the others', so all of them are done however
 * many workers come, down to the caller alone. The call waits for tasks that were taken, never
 * for a worker. */
#ifndef PKV_ATTN_TEAM_H
#define PKV_ATTN_TEAM_H

#include <sys/types.h>

#include "attn/helpers.h"

#define MAX_THREADS 1024

/* `worker` is below num_threads and no two calls at one time have the same. */
typedef void team_function(const void *context, int32_t task, int worker);

/* What is left of a worker's range, [next, end); any worker may take from it. The upper half of
 * `next` is the number of the phase, so that a worker which still looks for tasks of an earlier
 * phase takes none. */
struct team_range {
    _Alignas(HOOKS_CACHE_LINE) _Atomic uint64_t next;
    _Atomic int32_t end;
};

struct team {
    const struct pkv_hooks *hooks;
    int num_threads;
    pid_t owner; /* the process that created it, which alone has its helpers */
    struct helpers helpers;
    struct waiter caller;
    bool has_waiter;

    struct team_range *ranges; /* [num_threads] */
    _Atomic uint32_t phase;    /* the phase under way, */
    atomic_int num_ranges;     /* how many ranges it has, */
    _Atomic int32_t left;      /* and tasks that have not ended; */
    team_function *function;   /* what a task does, read by who has taken one */
    const void *context;
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
