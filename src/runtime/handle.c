/* SPDX-License-Identifier: MIT
 *
 * The first generation is drawn from the time and the address: two caches of one process, and the
 * caches of two runs, begin far apart in 2^39 numbers. The draw only has to differ, not to be
 * secret. O(1). */
#include "runtime/handle.h"

#include <time.h>

#define GENERATION_MASK (((uint64_t)1 << HANDLE_GENERATION_BITS) - 1)

/* splitmix64's finaliser: every bit of x moves every bit of the result. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t handle_next_generation(uint64_t generation)
{
    const uint64_t next = (generation + 1) & GENERATION_MASK;
    return next != 0 ? next : 1;
}

uint64_t handle_first_generation(const void *object)
{
    struct timespec now = {0};
    timespec_get(&now, TIME_UTC);
    const uint64_t time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return handle_next_generation(mix(mix((uint64_t)(uintptr_t)object) ^ time));
}
