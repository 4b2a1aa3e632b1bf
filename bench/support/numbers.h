/* SPDX-License-Identifier: MIT
 *
 * numbers.h: random content that every type of cache holds exactly, so that implementations which
 * store differently still compute the same answer. A number is n / 2^shift with n in [-127, 127]:
 * seven bits, which f32, f16 and bf16 represent, and which int8 holds as n beside the scale
 * 2^-shift. e4m3 has four bits and holds the number cut off, with scale 1. */
#ifndef BENCH_NUMBERS_H
#define BENCH_NUMBERS_H

#include "pagedkv/base.h"

enum { NUMBERS_CACHE_SHIFT = 7, NUMBERS_QUERY_SHIFT = 5 };

/* Fills bytes of memory with numbers of the type. Long fills repeat after 65521 numbers, a prime,
 * so that no two cells begin alike. */
void numbers_fill(void *memory, size_t bytes, enum pkv_dtype dtype, int shift, uint64_t seed);

/* Number `index` of an array of f32, f16 or bf16. */
float numbers_read(const void *memory, size_t index, enum pkv_dtype dtype);

/* 2^-shift for int8, 1 for e4m3: what a cache of them is scaled by. */
float numbers_scale(enum pkv_dtype dtype, int shift);

const char *numbers_type_name(enum pkv_dtype dtype);

#endif
