/* SPDX-License-Identifier: MIT
 *
 * openmp.h: all that the library knows of OpenMP. It runs on OpenMP's threads only where the caller
 * passes pkv_openmp_parallel_for as a hook; beside that it asks the runtime that the process has,
 * if it has one. */
#ifndef PKV_ATTN_OPENMP_H
#define PKV_ATTN_OPENMP_H

#include <stdbool.h>

/* True inside a parallel region of more than one thread. */
bool openmp_in_parallel(void);

/* The threads of a parallel region by default; 0 when the process has no OpenMP. */
int openmp_max_threads(void);

#endif
