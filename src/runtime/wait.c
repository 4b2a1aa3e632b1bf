/* SPDX-License-Identifier: MIT
 *
 * The system's clock bounds a wait and decides nothing. */
#include "runtime/wait.h"

#include <errno.h>

#include "base/deadline.h"

void wait_wake(const pkv_cache *cache, struct wait_record *first)
{
    for (struct wait_record *waiter = first; waiter != NULL; waiter = waiter->next) {
        if (!waiter->is_woken && waiter->answer(cache, waiter) != PKV_NO_BLOCKS) {
            waiter->is_woken = true;
            pthread_cond_signal(&waiter->changed);
        }
    }
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
    const struct deadline deadline = deadline_in(timeout_ns);
    int error = timeout_ns == 0 ? ETIMEDOUT : 0;
    waiter->next = *list;
    *list = waiter;
    enum pkv_status status = waiter->answer(cache, waiter);
    while (status == PKV_NO_BLOCKS && error == 0) {
        waiter->is_woken = false;
        error = deadline.has_end ? pthread_cond_timedwait(&waiter->changed, mutex, &deadline.end)
                                 : pthread_cond_wait(&waiter->changed, mutex);
        status = waiter->answer(cache, waiter);
    }
    leave(list, waiter);
    return status;
}
