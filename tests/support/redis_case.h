/* SPDX-License-Identifier: MIT
 *
 * redis_case.h: what the suites of the Redis tier share: a tier of a server, and calls with one
 * value. */
#ifndef PKV_TEST_REDIS_CASE_H
#define PKV_TEST_REDIS_CASE_H

#include "support/test.h"

/* A config for a server at a port of 127.0.0.1; and a tier of one, without which the test
 * ends. */
struct pkv_redis_config redis_case_config(int32_t port);
pkv_tier *redis_case_tier(const struct pkv_redis_config *config);

/* One value, in one piece. */
enum pkv_status redis_case_put(const pkv_tier *tier, const char *name, const void *bytes,
                               size_t length);
enum pkv_status redis_case_get(const pkv_tier *tier, const char *name, void *bytes, size_t length);
enum pkv_status redis_case_find(const pkv_tier *tier, const char *name);
enum pkv_status redis_case_remove(const pkv_tier *tier, const char *name);

/* Adds to a counter and returns what it is, or -1. */
int64_t redis_case_count(const pkv_tier *tier, const char *name, uint64_t add);

/* Seconds of CLOCK_MONOTONIC, for bounds that only a hang breaks. */
double redis_case_now(void);

/* Waits until a value can be written: the back-off is over. False after 60 seconds. */
bool redis_case_recovers(const pkv_tier *tier);

#endif
