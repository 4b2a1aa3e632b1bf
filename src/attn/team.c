/* SPDX-License-Identifier: MIT
 *
 * team.c: dealing tasks, taking them, and having workers come. */
#include "attn/team.h"

#include <time.h>

bool team_create(const struct pkv_hooks *hooks, int num_threads, struct team *team)
{
    *team = (struct team){
        .hooks = hooks,
        .num_threads = num_threads,
        .ranges = hooks_alloc_array(hooks, (size_t)num_threads, sizeof team->ranges[0]),
    };
    return team->ranges != NULL;
}

void team_destroy(struct team *team)
{
    if (team->hooks != NULL) {
        hooks_free_array(team->hooks, team->ranges, (size_t)team->num_threads,
                         sizeof team->ranges[0]);
        team->ranges = NULL;
    }
}

/* A task of the range; -1 when it has none left. */
static int32_t take(struct team_range *range)
{
    const int64_t task = atomic_fetch_add_explicit(&range->next, 1, memory_order_relaxed);
    return task < range->end ? (int32_t)task : -1;
}

/* Own tasks first, then what others have left. */
static void work(struct team *team, int self)
{
    for (int i = 0; i < team->num_ranges; i++) {
        struct team_range *range = &team->ranges[(self + i) % team->num_ranges];
        for (int32_t task = take(range); task >= 0; task = take(range)) {
            team->function(team->context, task, self);
        }
    }
}

static void work_for_hook(void *context, int32_t worker)
{
    work(context, worker);
}

static int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void work_in_region(void *context, int worker)
{
    struct team *team = context;
    const int64_t begin_ns = worker == 0 ? clock_ns() : 0;
    work(team, worker);
    if (worker == 0) {
        team->caller_work_ns = clock_ns() - begin_ns;
    }
}

/* A region that opens waits for threads that are late for it, one that closes for those at work.
 * Regions are of all the team's threads, also where fewer have tasks: a runtime ends the threads
 * that a smaller region leaves over, and starts them anew for a larger one. */
static void run_region(struct team *team)
{
    const int64_t begin_ns = clock_ns();
    openmp_region(team->num_threads, work_in_region, team);
    backoff_ran_region(&team->backoff, clock_ns() - begin_ns, team->caller_work_ns);
}

static void run_backing_off(struct team *team)
{
    const int64_t begin_ns = clock_ns();
    work(team, 0);
    backoff_ran_alone(&team->backoff, clock_ns() - begin_ns);
}

/* The first task of worker w. */
static int32_t first_of(const struct team_deal *deal, int32_t w)
{
    const int64_t workers = deal->num_workers;
    return deal->first != NULL ? deal->first[w]
                               : (int32_t)(((int64_t)deal->num_tasks * w + workers - 1) / workers);
}

/* Opens a phase: no worker is at work. Returns how many have tasks to begin with, those in between
 * counted. */
static int open_phase(struct team *team, const struct team_deal *deal)
{
    int active = 1;
    for (int32_t w = 0; w < deal->num_workers; w++) {
        struct team_range *range = &team->ranges[w];
        const int32_t begin = first_of(deal, w);
        range->end = first_of(deal, w + 1);
        atomic_store_explicit(&range->next, begin, memory_order_relaxed);
        active = begin < range->end ? w + 1 : active;
    }
    team->num_ranges = active;
    return active;
}

void team_run(struct team *team, const struct team_deal *deal, team_function *function,
              const void *context)
{
    team->function = function;
    team->context = context;
    const int active = open_phase(team, deal);
    if (active == 1) {
        work(team, 0);
    } else if (team->hooks->parallel_for != NULL) {
        team->hooks->parallel_for(team->hooks->context, active, work_for_hook, team);
    } else if (backoff_is_alone(&team->backoff)) {
        run_backing_off(team);
    } else if (openmp_has_threads(team->hooks, team->num_threads)) {
        run_region(team);
    } else {
        work(team, 0);
    }
}
