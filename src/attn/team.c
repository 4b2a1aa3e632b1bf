/* SPDX-License-Identifier: MIT
 *
 * team.c: dealing tasks, taking them, and having workers come. */
#include "attn/team.h"

#include <unistd.h>

#include "attn/openmp.h"

static void help(void *context, int worker);

bool team_create(const struct pkv_hooks *hooks, int num_threads, struct team *team)
{
    *team = (struct team){
        .hooks = hooks,
        .num_threads = num_threads,
        .owner = getpid(),
        .ranges = hooks_alloc_array(hooks, (size_t)num_threads, sizeof team->ranges[0]),
    };
    return team->ranges != NULL &&
           helpers_create(hooks, num_threads - 1, help, team, &team->helpers) &&
           (team->has_waiter = waiter_init(&team->caller));
}

void team_destroy(struct team *team)
{
    if (team->hooks == NULL) {
        return;
    }
    helpers_destroy(team->hooks, &team->helpers, getpid() == team->owner);
    if (team->has_waiter) {
        waiter_free(&team->caller);
    }
    hooks_free_array(team->hooks, team->ranges, (size_t)team->num_threads, sizeof team->ranges[0]);
    team->ranges = NULL;
}

static uint64_t next_of(uint32_t phase, int32_t task)
{
    return (uint64_t)phase << 32 | (uint32_t)task;
}

/* A range is closed before it changes, so a worker that read the old `next` beside the new `end`
 * has taken nothing. */
static void open_range(struct team_range *range, uint32_t phase, int32_t begin, int32_t end)
{
    atomic_store_explicit(&range->next, next_of(phase, INT32_MAX), memory_order_relaxed);
    atomic_store_explicit(&range->end, end, memory_order_release);
    atomic_store_explicit(&range->next, next_of(phase, begin), memory_order_release);
}

/* A task of the range; -1 when it has none left, or not of this phase. */
static int32_t take(struct team_range *range, uint32_t phase)
{
    uint64_t next = atomic_load_explicit(&range->next, memory_order_acquire);
    while (next >> 32 == phase &&
           (int32_t)next < atomic_load_explicit(&range->end, memory_order_acquire)) {
        if (atomic_compare_exchange_weak_explicit(&range->next, &next, next + 1,
                                                  memory_order_acq_rel, memory_order_acquire)) {
            return (int32_t)next;
        }
    }
    return -1;
}

/* Own tasks first, then what others have left. */
static void work(struct team *team, int self)
{
    const uint32_t phase = atomic_load_explicit(&team->phase, memory_order_acquire);
    const int num_ranges = atomic_load_explicit(&team->num_ranges, memory_order_relaxed);
    int32_t done = 0;
    for (int i = 0; i < num_ranges; i++) {
        struct team_range *range = &team->ranges[(self + i) % num_ranges];
        for (int32_t task = take(range, phase); task >= 0; task = take(range, phase)) {
            team->function(team->context, task, self);
            done++;
        }
    }
    if (done > 0 && atomic_fetch_sub(&team->left, done) == done) {
        waiter_wake(&team->caller);
    }
}

static void help(void *context, int worker)
{
    work(context, worker);
}

static void work_for_hook(void *context, int32_t worker)
{
    work(context, worker);
}

static bool all_ended(const void *context)
{
    const struct team *team = context;
    return atomic_load(&team->left) == 0;
}

/* The first task of worker w. */
static int32_t first_of(const struct team_deal *deal, int32_t w)
{
    const int64_t workers = deal->num_workers;
    return deal->first != NULL ? deal->first[w]
                               : (int32_t)(((int64_t)deal->num_tasks * w + workers - 1) / workers);
}

/* Opens a phase. Returns how many workers have tasks to begin with, those in between counted. */
static int open_phase(struct team *team, const struct team_deal *deal)
{
    const uint32_t phase = atomic_load_explicit(&team->phase, memory_order_relaxed) + 1;
    int active = 1;
    for (int32_t w = 0; w < deal->num_workers; w++) {
        const int32_t begin = first_of(deal, w);
        const int32_t end = first_of(deal, w + 1);
        open_range(&team->ranges[w], phase, begin, end);
        active = begin < end ? w + 1 : active;
    }
    atomic_store_explicit(&team->num_ranges, active, memory_order_relaxed);
    atomic_store_explicit(&team->phase, phase, memory_order_release);
    return active;
}

void team_run(struct team *team, const struct team_deal *deal, team_function *function,
              const void *context)
{
    team->function = function;
    team->context = context;
    atomic_store(&team->left, deal->num_tasks);
    const int active = open_phase(team, deal);
    const bool is_alone = active == 1 || getpid() != team->owner;
    if (!is_alone && team->hooks->parallel_for != NULL) {
        team->hooks->parallel_for(team->hooks->context, active, work_for_hook, team);
    } else if (!is_alone && !openmp_in_parallel()) {
        helpers_start(team->hooks, &team->helpers, active - 1);
        helpers_call(&team->helpers, active - 1);
    }
    work(team, 0);
    waiter_wait(&team->caller, all_ended, team);
}
