/* SPDX-License-Identifier: MIT
 *
 * helpers.h: threads of the library's own that sleep until they are called. They are told nothing
 * but their number; what there is to do, they look up themselves, and one that comes late finds
 * that it was done without it. Nobody waits for a helper that has taken no work. */
#ifndef PKV_ATTN_HELPERS_H
#define PKV_ATTN_HELPERS_H

#include <pthread.h>

#include "attn/waiter.h"
#include "base/hooks.h"

/* Helper i calls itself worker i + 1: worker 0 is who calls them. */
typedef void helper_function(void *context, int worker);

struct helpers;

struct helper {
    _Alignas(HOOKS_CACHE_LINE) struct waiter waiter;
    struct helpers *helpers;
    pthread_t thread;
    int worker;
    unsigned calls_seen;
};

struct helpers {
    struct helper *at; /* [max_count] */
    int max_count;     /* that were requested */
    int count;         /* that run */
    bool is_short;     /* the system had no more threads */
    helper_function *function;
    void *context;
    atomic_uint calls;
    atomic_int num_called; /* by the last call */
    atomic_bool quit;
};

/* Room for them; no thread yet. False when there is no memory. */
bool helpers_create(const struct pkv_hooks *hooks, int max_count, helper_function *function,
                    void *context, struct helpers *helpers);

/* Ends them and waits until they have. is_owner: this is the process that started them; a forked
 * child has only their memory. */
void helpers_destroy(const struct pkv_hooks *hooks, struct helpers *helpers, bool is_owner);

/* Starts threads until `count`, at most max_count, run. When the system has no more, the hooks are
 * told once, and those that run do all the work. */
void helpers_start(const struct pkv_hooks *hooks, struct helpers *helpers, int count);

/* Has the first `count` of those that run look for work. The caller wakes two, and these others: to
 * wake a thread takes microseconds. */
void helpers_call(struct helpers *helpers, int count);

#endif
