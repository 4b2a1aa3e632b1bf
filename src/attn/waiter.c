/* SPDX-License-Identifier: MIT
 *
 * waiter.c: the sleeper says so and looks once more; the other side changes what is looked at and
 * then asks whether anybody sleeps. Whichever order these take, one of the two notices:
 *
 *   waiter   asleep = true,  look          waker   change,  asleep?
 *
 * The flag that a waker has taken down comes with exactly one post, which the waiter consumes. */
#include "attn/waiter.h"

#include <errno.h>

#include "attn/cpu.h"

/* Looks before sleep, about 20 us: as long as it takes to be woken. */
#define NUM_LOOKS 512

bool waiter_init(struct waiter *waiter)
{
    atomic_init(&waiter->asleep, false);
    return sem_init(&waiter->wakes, 0, 0) == 0;
}

void waiter_free(struct waiter *waiter)
{
    sem_destroy(&waiter->wakes);
}

static bool is_over_soon(waiter_condition *is_over, const void *context)
{
    for (int i = 0; i < NUM_LOOKS; i++) {
        if (is_over(context)) {
            return true;
        }
        cpu_relax();
    }
    return false;
}

static void consume_post(struct waiter *waiter)
{
    while (sem_wait(&waiter->wakes) != 0 && errno == EINTR) {
    }
}

void waiter_wait(struct waiter *waiter, waiter_condition *is_over, const void *context)
{
    while (!is_over_soon(is_over, context)) {
        atomic_store(&waiter->asleep, true);
        if (!is_over(context) || !atomic_exchange(&waiter->asleep, false)) {
            consume_post(waiter);
        }
    }
}

void waiter_wake(struct waiter *waiter)
{
    if (atomic_load(&waiter->asleep) && atomic_exchange(&waiter->asleep, false)) {
        sem_post(&waiter->wakes);
    }
}
