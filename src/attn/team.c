/* SPDX-License-Identifier: MIT
 *
 * team.c: dealing tasks to workers, and running them by OpenMP. */
#include "attn/team.h"

#include <unistd.h>

int team_default_threads(void)
{
    int threads = 0;
#pragma omp parallel reduction(+ : threads)
    threads += 1;
    return threads < MAX_THREADS ? threads : MAX_THREADS;
}

bool team_create(const struct pkv_hooks *hooks, int num_threads, struct team *team)
{
    *team = (struct team){
        .num_threads = num_threads,
        .owner = getpid(),
        .workers = hooks_alloc_array(hooks, (size_t)num_threads, sizeof team->workers[0]),
    };
    return team->workers != NULL;
}

void team_destroy(const struct pkv_hooks *hooks, struct team *team)
{
    hooks_free_array(hooks, team->workers, (size_t)team->num_threads, sizeof team->workers[0]);
    team->workers = NULL;
}

void team_deal(struct team *team, int w, int32_t begin, int32_t end)
{
    atomic_store_explicit(&team->workers[w].next, begin, memory_order_relaxed);
    team->workers[w].end = end;
}

void team_deal_evenly(struct team *team, int32_t num_tasks)
{
    const int64_t threads = team->num_threads;
    for (int64_t w = 0; w < threads; w++) {
        const int64_t begin = ((int64_t)num_tasks * w + threads - 1) / threads;
        const int64_t end = ((int64_t)num_tasks * (w + 1) + threads - 1) / threads;
        team_deal(team, (int)w, (int32_t)begin, (int32_t)end);
    }
}

static bool has_tasks(const struct team_worker *worker)
{
    return atomic_load_explicit(&worker->next, memory_order_relaxed) < worker->end;
}

/* Own tasks first, then what others have left. */
static void work(struct team *team, int self, int num_workers, team_function *function,
                 const void *context)
{
    for (int i = 0; i < num_workers; i++) {
        struct team_worker *worker = &team->workers[(self + i) % num_workers];
        for (;;) {
            const int task = atomic_fetch_add_explicit(&worker->next, 1, memory_order_relaxed);
            if (task >= worker->end) {
                break;
            }
            function(context, task, self);
        }
    }
}

void team_run(struct team *team, team_function *function, const void *context)
{
    int active = team->num_threads; /* those at the end that have no tasks are not woken */
    while (active > 1 && !has_tasks(&team->workers[active - 1])) {
        active--;
    }
    if (active == 1 || getpid() != team->owner) {
        work(team, 0, active, function, context);
        return;
    }
#pragma omp parallel for num_threads(active) schedule(static, 1)
    for (int w = 0; w < active; w++) {
        work(team, w, active, function, context);
    }
}
