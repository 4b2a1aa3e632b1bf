/* SPDX-License-Identifier: MIT
 *
 * waiter.h: one thread waits for what another one does: awake for some microseconds, since most
 * waits are short, then asleep, so that other threads can have its processor. */
#ifndef PKV_ATTN_WAITER_H
#define PKV_ATTN_WAITER_H

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>

struct waiter {
    atomic_bool asleep; /* or about to be: the next wake posts */
    sem_t wakes;
};

/* False when there is no semaphore to be had. */
bool waiter_init(struct waiter *waiter);
void waiter_free(struct waiter *waiter);

/* Returns once is_over(context), which reads atomics in sequentially consistent order. One thread
 * waits by a waiter at a time. */
typedef bool waiter_condition(const void *context);
void waiter_wait(struct waiter *waiter, waiter_condition *is_over, const void *context);

/* Called after the atomics that is_over reads were changed, in the same order. A load where nobody
 * sleeps. */
void waiter_wake(struct waiter *waiter);

#endif
