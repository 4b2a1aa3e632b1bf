/* SPDX-License-Identifier: MIT
 *
 * measure.h: the clock, medians, and the way out when something cannot be measured. Machines are
 * shared and noisy, so everything that is compared runs in turns, and what is reported is a median:
 * of times, or of the ratios of two times of the same turn. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "pagedkv/base.h"

enum { MAX_SAMPLES = 1024 };

struct samples {
    int count;
    double values[MAX_SAMPLES];
};

/* Seconds of a clock that never goes back. */
double measure_now(void);

/* Sleeps for that many milliseconds: long enough for the spinning threads of the library that ran
 * last to give the cores back. */
void measure_pause(int milliseconds);

/* Adds one; what does not fit is dropped. */
void samples_add(struct samples *samples, double value);

/* 0 of nothing. */
double samples_median(const struct samples *samples);
/* The value below which a share of them lies, in [0, 1]. */
double samples_quantile(const struct samples *samples, double share);
double samples_min(const struct samples *samples);
double samples_max(const struct samples *samples);

/* Prints the text, and ends the program with status 1. */
_Noreturn void measure_fail(const char *format, ...) PKV_PRINTF(1, 2);

/* Ends the program when a call of the library did not succeed. */
void measure_must(enum pkv_status status, const char *what);

/* The next of a sequence of random numbers; *state is its seed, any number. */
uint32_t measure_random(uint64_t *state);

/* calloc that ends the program instead of failing. */
void *measure_calloc(size_t count, size_t bytes);

#endif
