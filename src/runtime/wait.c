/* SPDX-License-Identifier: MIT
 *
 * The system's clock bounds a wait and decides nothing. */
#include "runtime/wait.h"

#include <errno.h>
#include <time.h>

#define NS 1000000000u
#define ENDLESS_SECONDS ((uint64_t)1 << 31) /* longer waits have no end: a time_t may be 32 bits */

void wait_wake(const pkv_cache *cache, struct wait_record *first)
{
    for (struct wait_record *waiter = first; waiter != NULL; waiter = waiter->next) {
        if (!waiter->is_woken && waiter->answer(cache, waiter) != PKV_NO_BLOCKS) {
            waiter->is_woken = true;
            pthread_cond_signal(&waiter->changed);
        }
    }
}

static struct timespec time_in(uint64_t timeout_ns)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const uint64_t ns = (uint64_t)now.tv_nsec + timeout_ns % NS;
    now.tv_sec += (time_t)(timeout_ns / NS + ns / NS);
    now.tv_nsec = (long)(ns % NS);
    return now;
}

static void leave(struct wait_record **list, const struct wait_record *waiter)
{
    while (*list != waiter) {
        list = &(*list)->next;
    }
    *list = waiter->next;
}

enum pkv_status wait_until(const pkv_cache *cache, struct wait_record **list,
                           pthread_mutex_t *mutex, struct wait_record *waiter, uint64_t timeout_ns)
{
    const bool has_end = timeout_ns / NS < ENDLESS_SECONDS;
    const struct timespec end = has_end ? time_in(timeout_ns) : (struct timespec){0};
    int error = timeout_ns == 0 ? ETIMEDOUT : 0;
    waiter->next = *list;
    *list = waiter;
    enum pkv_status status = waiter->answer(cache, waiter);
    while (status == PKV_NO_BLOCKS && error == 0) {
        waiter->is_woken = false;
        error = has_end ? pthread_cond_timedwait(&waiter->changed, mutex, &end)
                        : pthread_cond_wait(&waiter->changed, mutex);
        status = waiter->answer(cache, waiter);
    }
    leave(list, waiter);
    return status;
}
