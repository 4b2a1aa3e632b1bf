/* SPDX-License-Identifier: MIT
 *
 * helpers.c: starting, calling and ending threads. They take no signals, which belong to the
 * threads of the process, and have small stacks: what a task needs is stated in attn.h. */
#include "attn/helpers.h"

#include <signal.h>

#include "base/minmax.h"

/* Mapped, and touched as far as a task goes. Beside the task's 64 KiB it holds the thread-local
 * variables of all libraries in the process. */
#define STACK_BYTES ((size_t)512 << 10)

bool helpers_create(const struct pkv_hooks *hooks, int max_count, helper_function *function,
                    void *context, struct helpers *helpers)
{
    *helpers = (struct helpers){
        .at = hooks_alloc_array(hooks, (size_t)max_count, sizeof helpers->at[0]),
        .max_count = max_count,
        .function = function,
        .context = context,
    };
    return helpers->at != NULL;
}

void helpers_destroy(const struct pkv_hooks *hooks, struct helpers *helpers, bool is_owner)
{
    if (helpers->at != NULL && is_owner) {
        atomic_store(&helpers->quit, true);
        for (int i = 0; i < helpers->count; i++) {
            waiter_wake(&helpers->at[i].waiter);
        }
        for (int i = 0; i < helpers->count; i++) {
            pthread_join(helpers->at[i].thread, NULL);
            waiter_free(&helpers->at[i].waiter);
        }
    }
    hooks_free_array(hooks, helpers->at, (size_t)helpers->max_count, sizeof helpers->at[0]);
    helpers->at = NULL;
}

/* Worker w wakes 2w + 1 and 2w + 2, so that each is woken by one. */
static void wake_next(struct helpers *helpers, int worker)
{
    const int last = min_i32(2 * worker + 2, atomic_load(&helpers->num_called));
    for (int w = 2 * worker + 1; w <= last; w++) {
        waiter_wake(&helpers->at[w - 1].waiter);
    }
}

static bool is_called(const void *context)
{
    const struct helper *helper = context;
    return atomic_load(&helper->helpers->calls) != helper->calls_seen ||
           atomic_load(&helper->helpers->quit);
}

static void *help(void *argument)
{
    struct helper *helper = argument;
    struct helpers *helpers = helper->helpers;
    for (;;) {
        waiter_wait(&helper->waiter, is_called, helper);
        if (atomic_load(&helpers->quit)) {
            return NULL;
        }
        helper->calls_seen = atomic_load(&helpers->calls);
        wake_next(helpers, helper->worker);
        helpers->function(helpers->context, helper->worker);
    }
}

static bool create_thread(struct helper *helper)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    if (pthread_attr_init(&attributes) != 0) {
        return false;
    }
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool created = pthread_create(&helper->thread, &attributes, help, helper) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return created;
}

static bool start_one(struct helpers *helpers, int index)
{
    struct helper *helper = &helpers->at[index];
    helper->helpers = helpers;
    helper->worker = index + 1;
    helper->calls_seen = atomic_load(&helpers->calls);
    if (!waiter_init(&helper->waiter)) {
        return false;
    }
    if (!create_thread(helper)) {
        waiter_free(&helper->waiter);
        return false;
    }
    return true;
}

void helpers_start(const struct pkv_hooks *hooks, struct helpers *helpers, int count)
{
    while (helpers->count < count && !helpers->is_short) {
        if (start_one(helpers, helpers->count)) {
            helpers->count++;
        } else {
            helpers->is_short = true;
            hooks_log(hooks, PKV_LOG_WARNING,
                      "attention runs on %d threads instead of %d: the system has no more",
                      helpers->count + 1, helpers->max_count + 1);
        }
    }
}

void helpers_call(struct helpers *helpers, int count)
{
    atomic_store(&helpers->num_called, min_i32(count, helpers->count));
    atomic_fetch_add(&helpers->calls, 1);
    wake_next(helpers, 0);
}
