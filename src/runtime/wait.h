/* SPDX-License-Identifier: MIT
 *
 * wait.h: threads that wait for room. Each has a record on its own stack, in a list of the cache,
 * with what it waits for; a thread that gives the mutex back wakes those that have it. So no call
 * that frees something has to know of waiters, and none is woken for nothing. A leaf: what is
 * waited for is the waiter's to say (wait_free.c). The mutex is held. */
#ifndef PKV_RUNTIME_WAIT_H
#define PKV_RUNTIME_WAIT_H

#include <pthread.h>

#include "pagedkv/cache.h"

struct wait_record {
    struct wait_record *next;
    enum pkv_status (*answer)(const pkv_cache *cache, const struct wait_record *waiter);
    pkv_seq seq; /* to be admitted */
    const struct pkv_shortage *shortage;
    bool is_woken;
    pthread_cond_t changed;
};

/* Wakes every waiter of a list whose answer is not PKV_NO_BLOCKS. O(waiters). */
void wait_wake(const pkv_cache *cache, struct wait_record *first);

/* Lets the mutex go until the answer is not PKV_NO_BLOCKS, which it returns, or the time is over;
 * UINT64_MAX nanoseconds never are. The waiter is in *list meanwhile. */
enum pkv_status wait_until(const pkv_cache *cache, struct wait_record **list,
                           pthread_mutex_t *mutex, struct wait_record *waiter, uint64_t timeout_ns);

#endif
