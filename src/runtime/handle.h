/* SPDX-License-Identifier: MIT
 *
 * handle.h: how a handle of a sequence, a step or a pin names one thing for ever:
 *
 *   63        62 .. 24          23 .. 0
 *   kind      generation        index           kind: 0 sequence or pin, 1 step
 *
 * Generations start at a number drawn per cache and only grow, so that a handle of another cache,
 * or of one that was destroyed at the same address, names nothing here. No decision depends on
 * them. Generation 0 is never used: a zeroed handle is stale. */
#ifndef PKV_RUNTIME_HANDLE_H
#define PKV_RUNTIME_HANDLE_H

#include <stdint.h>

#define HANDLE_INDEX_BITS 24
#define HANDLE_GENERATION_BITS 39
#define HANDLE_INDEX_MASK (((uint64_t)1 << HANDLE_INDEX_BITS) - 1)
#define HANDLE_STEP ((uint64_t)1 << 63)

/* The first generation of a new object at this address. */
uint64_t handle_first_generation(const void *object);

/* The generation after this one. */
uint64_t handle_next_generation(uint64_t generation);

/* The handle of what lies at an index; without a kind. */
static inline uint64_t handle_make(uint64_t generation, int32_t index)
{
    return generation << HANDLE_INDEX_BITS | (uint64_t)index;
}

#endif
