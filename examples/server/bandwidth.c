/* SPDX-License-Identifier: MIT */
#include "bandwidth.h"

#include "report.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PART_WORDS = 8 << 20, PASSES = 3, MAX_READERS = 256, SUMS = 8 };

struct reader {
    pthread_t thread;
    uint64_t *words; /* [PART_WORDS] */
    uint64_t sum;
};

static void *read_part(void *context)
{
    struct reader *reader = context;
    uint64_t sums[SUMS] = {0};
    for (size_t i = 0; i < PART_WORDS; i += SUMS) {
        for (size_t s = 0; s < SUMS; s++) {
            sums[s] += reader->words[i + s];
        }
    }
    for (size_t s = 0; s < SUMS; s++) {
        reader->sum += sums[s];
    }
    return NULL;
}

/* Seconds of one pass of all; 0 when a thread could not be had. */
static double time_pass(struct reader *readers, long count)
{
    const double start = now_seconds();
    long started = 0;
    while (started < count &&
           pthread_create(&readers[started].thread, NULL, read_part, &readers[started]) == 0) {
        started++;
    }
    for (long i = 0; i < started; i++) {
        pthread_join(readers[i].thread, NULL);
    }
    return started == count ? now_seconds() - start : 0;
}

double bandwidth_measure(void)
{
    static struct reader readers[MAX_READERS];
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    count = count < 1 ? 1 : count > MAX_READERS ? MAX_READERS : count;
    double best = 0;
    bool ok = true;
    for (long i = 0; i < count; i++) {
        readers[i].words = malloc(PART_WORDS * sizeof *readers[i].words);
        ok = ok && readers[i].words != NULL;
        if (readers[i].words != NULL) {
            memset(readers[i].words, 1, PART_WORDS * sizeof *readers[i].words);
        }
    }
    for (int pass = 0; ok && pass < PASSES; pass++) {
        const double seconds = time_pass(readers, count);
        const double rate = (double)count * PART_WORDS * sizeof(uint64_t) / (seconds + 1e-9);
        best = seconds > 0 && rate > best ? rate : best;
    }
    for (long i = 0; i < count; i++) {
        free(readers[i].words);
        readers[i].words = NULL;
    }
    return best;
}
