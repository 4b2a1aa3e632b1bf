/* SPDX-License-Identifier: MIT
 *
 * parts.h: the parts of the bookkeeping benchmark, a file each. */
#ifndef BENCH_BOOKKEEPING_PARTS_H
#define BENCH_BOOKKEEPING_PARTS_H

void bench_index(void);    /* match cost and memory */
void bench_calls(void);    /* the median and the longest of each call, by one thread */
void bench_waits(void);    /* how long a call waits while another walks through the cache */
void bench_hit_rate(void); /* sessions in turn, in a window and a pool that does not hold all */
void bench_lengths(void);  /* a step of one token and a cut by one, by the length of the sequence */
void bench_evictions(void);  /* a request that evicts, by the number of cached blocks */
void bench_capacity(void);   /* what max_seq_len costs where it is not used, in time and in pages */
void bench_neighbours(void); /* runs of adjacent blocks after requests of mixed life */
void bench_partial(void);    /* what a hit inside a block costs */
void bench_cascade(void);    /* rows that share a prefix against rows that do not */

#endif
