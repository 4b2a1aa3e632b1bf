/* SPDX-License-Identifier: MIT
 *
 * values.h: pools of test values. A pool holds numbers of one dtype and one kind with the doubles
 * that they stand for; an array is a stretch of a pool at a random offset, so that filling and
 * widening cost a copy. Pools are made once a program from its seed and are constant after. */
#ifndef PKV_TEST_KERNELS_VALUES_H
#define PKV_TEST_KERNELS_VALUES_H

#include "support/test.h"

enum values {
    VALUES_UNIFORM,   /* [-1, 1) */
    VALUES_EQUAL,     /* all the same */
    VALUES_HUGE,      /* uniform, one of 97 very large */
    VALUES_HUNDRED,   /* [90, 100]: exp of it overflows */
    VALUES_SUBNORMAL, /* of the dtype; small integers for int8 */
    VALUES_ZERO,      /* +0 and -0 */
    VALUES_LIMIT,     /* the dtype's largest and smallest numbers of all sorts */
    VALUES_SPECIAL,   /* uniform, some NaN and infinite where the dtype has them */
    VALUES_SMALL,     /* up to 2^-10: sums of their products with LIMIT do not overflow */
    VALUES_WEIGHT,    /* [0, 1), some 0 */
    NUM_VALUES
};

const char *values_name(enum values values);
void values_create(uint64_t seed);

/* Copies `count` values from a random place of the pool to array, which may be NULL, and returns
 * where their doubles begin. */
const double *values_take(enum pkv_dtype dtype, enum values values, struct test_random *random,
                          size_t count, void *array);

/* bits as a float and back */
float float_of(uint32_t bits);
uint32_t bits_of(float x);

#endif
