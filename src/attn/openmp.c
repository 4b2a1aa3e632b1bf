/* SPDX-License-Identifier: MIT
 *
 * openmp.c: parallel regions, and when not to open one. Runtimes answer two conditions badly: in a
 * forked child a region waits for threads that only the parent has, and a thread that the system
 * refuses ends the process. A runtime keeps its threads for the thread that opens regions, so what
 * is known of them is thread-local too. */
#include "attn/openmp.h"

#include <pthread.h>
#include <unistd.h>

#include "base/build.h"

#if PKV_HAVE_OPENMP
#include <omp.h>

/* Of the calling thread: the process in which it first had a region, 0 before; the largest region
 * that was wanted, and how many threads there were for it. */
static PKV_THREAD_LOCAL struct {
    pid_t process;
    int num_wanted;
    int num_had;
} regions;

static void *pass_gate(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* Starts `count` threads that wait for each other, and ends them. Returns how many there were. */
static int count_startable(int count)
{
    pthread_t threads[MAX_THREADS];
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    int started = 0;
    pthread_mutex_lock(&gate);
    while (started < count && pthread_create(&threads[started], NULL, pass_gate, &gate) == 0) {
        started++;
    }
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    return started;
}

static void learn_num_had(const struct pkv_hooks *hooks, int num_threads)
{
    regions.num_wanted = num_threads;
    regions.num_had = 1 + count_startable(num_threads - 1);
    if (regions.num_had < num_threads) {
        hooks_log(hooks, PKV_LOG_WARNING,
                  "attention runs on one thread instead of %d: the system has %d for it",
                  num_threads, regions.num_had);
    }
}

bool openmp_has_threads(const struct pkv_hooks *hooks, int num_threads)
{
    const pid_t process = getpid();
    if (omp_in_parallel() != 0 || (regions.process != 0 && regions.process != process)) {
        return false;
    }
    if (num_threads > regions.num_wanted) {
        learn_num_had(hooks, num_threads);
    }
    regions.process = num_threads <= regions.num_had ? process : regions.process;
    return num_threads <= regions.num_had;
}

void openmp_region(int num_threads, openmp_function *function, void *context)
{
#pragma omp parallel num_threads(num_threads)
    function(context, omp_get_thread_num());
}

int openmp_max_threads(void)
{
    return omp_get_max_threads();
}

#else

bool openmp_has_threads(const struct pkv_hooks *hooks, int num_threads)
{
    (void)hooks;
    (void)num_threads;
    return false;
}

void openmp_region(int num_threads, openmp_function *function, void *context)
{
    (void)num_threads;
    function(context, 0);
}

int openmp_max_threads(void)
{
    return 0;
}

#endif
