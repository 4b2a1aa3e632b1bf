/* SPDX-License-Identifier: MIT
 *
 * memory_tier.h: a tier of the tests' own: values in memory, and every way to fail on request. Not
 * the library's code: it is what a caller would write. */
#ifndef PKV_TEST_MEMORY_TIER_H
#define PKV_TEST_MEMORY_TIER_H

#include <pthread.h>

#include "support/test.h"

#define MEMORY_TIER_VALUES 4096

struct memory_value {
    char name[PKV_MAX_TIER_NAME + 1];
    unsigned char *bytes;
    size_t length;
};

struct memory_tier {
    pkv_tier *tier;
    pthread_mutex_t mutex;
    struct memory_value values[MEMORY_TIER_VALUES];
    int32_t num_values;
    int32_t capacity; /* values; the next one more takes the place of one that was there */
    struct memory_value counters[64]; /* 8 bytes each */
    int32_t num_counters;
    bool lists; /* its names are shown */

    /* ways to fail */
    bool is_down;         /* every item is PKV_IO */
    bool answers_nothing; /* statuses are left alone */
    int32_t fails_put_at; /* the n-th put from now on fails, 1 = the next; 0 = none */
    int32_t fails_get_at;
    /* ways to wait: the first get does, for 60 seconds at most, until another one has begun */
    bool gets_meet;
    bool waited_in_vain;
    int32_t num_begun;
    pthread_cond_t begins;
    /* what it was asked */
    int32_t num_puts, num_gets, num_finds, num_removes, num_counts;
};

void memory_tier_open(struct memory_tier *memory, const char *name);
void memory_tier_close(struct memory_tier *memory);

/* Its values are gone. */
void memory_tier_clear(struct memory_tier *memory);

/* The value of a name, or NULL. */
struct memory_value *memory_tier_find(struct memory_tier *memory, const char *name);

#endif
