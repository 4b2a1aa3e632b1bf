/* SPDX-License-Identifier: MIT
 *
 * openmp.h: the one door to OpenMP. */
#ifndef PKV_ATTN_OPENMP_H
#define PKV_ATTN_OPENMP_H

#include <stdbool.h>

#include "base/hooks.h"

/* Of a region. */
#define MAX_THREADS 1024

/* Whether the calling thread can open a parallel region of num_threads, at most MAX_THREADS. It
 * cannot inside a region; when it had a region before its process forked, since the others of that
 * region are the parent's; when the system refuses so many threads, of which the log is told once
 * a calling thread; and in a build without OpenMP.
 *
 * The system is asked the first time that a thread wants that many: O(num_threads) then, else a
 * system call. */
bool openmp_has_threads(const struct pkv_hooks *hooks, int num_threads);

/* function(context, worker) for the workers of a parallel region of num_threads, fewer where the
 * runtime has fewer. openmp_has_threads has said yes. */
typedef void openmp_function(void *context, int worker);
void openmp_region(int num_threads, openmp_function *function, void *context);

/* The threads of a region by default; 0 in a build without OpenMP. */
int openmp_max_threads(void);

#endif
