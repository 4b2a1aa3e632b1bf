/* SPDX-License-Identifier: MIT
 *
 * measure.c: medians sort a copy; a benchmark takes at most MAX_SAMPLES of anything. */
#include "measure.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double measure_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void measure_pause(int milliseconds)
{
    const struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

void samples_add(struct samples *samples, double value)
{
    if (samples->count < MAX_SAMPLES) {
        samples->values[samples->count++] = value;
    }
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

double samples_median(const struct samples *samples)
{
    double sorted[MAX_SAMPLES];
    const int n = samples->count;
    if (n == 0) {
        return 0;
    }
    memcpy(sorted, samples->values, (size_t)n * sizeof sorted[0]);
    qsort(sorted, (size_t)n, sizeof sorted[0], compare);
    return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

double samples_quantile(const struct samples *samples, double share)
{
    double sorted[MAX_SAMPLES];
    const int n = samples->count;
    if (n == 0) {
        return 0;
    }
    memcpy(sorted, samples->values, (size_t)n * sizeof sorted[0]);
    qsort(sorted, (size_t)n, sizeof sorted[0], compare);
    return sorted[(int)(share * (n - 1))];
}

double samples_min(const struct samples *samples)
{
    double least = samples->count > 0 ? samples->values[0] : 0;
    for (int i = 1; i < samples->count; i++) {
        least = samples->values[i] < least ? samples->values[i] : least;
    }
    return least;
}

double samples_max(const struct samples *samples)
{
    double largest = samples->count > 0 ? samples->values[0] : 0;
    for (int i = 1; i < samples->count; i++) {
        largest = samples->values[i] > largest ? samples->values[i] : largest;
    }
    return largest;
}

void measure_fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fflush(stdout);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    exit(EXIT_FAILURE);
}

void measure_must(enum pkv_status status, const char *what)
{
    if (status != PKV_OK) {
        measure_fail("%s: %s: %s", what, pkv_status_name(status), pkv_last_error());
    }
}

/* splitmix64 */
uint32_t measure_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return (uint32_t)(x >> 32);
}

void *measure_calloc(size_t count, size_t bytes)
{
    void *memory = calloc(count > 0 ? count : 1, bytes);
    if (memory == NULL) {
        measure_fail("no memory for %zu * %zu bytes", count, bytes);
    }
    return memory;
}
