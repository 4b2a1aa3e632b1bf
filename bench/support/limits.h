/* SPDX-License-Identifier: MIT
 *
 * limits.h: the two ceilings of attention on this machine, as the same threads reach them: how fast
 * memory can be read, and how fast f32 fused multiply-adds run. One call of the operator takes at
 * least max(bytes / read rate, flops / FMA rate). */
#ifndef BENCH_LIMITS_H
#define BENCH_LIMITS_H

#include <stddef.h>

/* Seconds in which the threads read the memory once, each its part. bytes a multiple of 1024. */
double limits_read(int threads, const void *memory, size_t bytes);

/* The same of runs of memory here and there, in their order, each prefetched while the one before
 * it is read. run_bytes a multiple of 256. */
double limits_read_runs(int threads, const char *const *runs, size_t num_runs, size_t run_bytes);

/* Floating-point operations a second, two for each multiply-add; takes about a millisecond. */
double limits_fma(int threads);

/* The vectors that both use: "avx512", "avx2" or "portable". */
const char *limits_vectors(void);

#endif
