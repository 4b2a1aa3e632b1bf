/* SPDX-License-Identifier: MIT
 *
 * dice.c: splitmix64. */
#include "dice.h"

static uint64_t scramble(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t dice_next(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    return scramble(*state);
}

uint64_t dice_mix(uint64_t a, uint64_t b)
{
    return scramble(scramble(a + 0x9e3779b97f4a7c15u) + b);
}

int32_t dice_between(uint64_t *state, int32_t low, int32_t high)
{
    return low + (int32_t)(dice_next(state) % (uint64_t)((int64_t)high - low + 1));
}

bool dice_chance(uint64_t *state, int32_t percent)
{
    return dice_between(state, 0, 99) < percent;
}

float dice_uniform(uint64_t *state)
{
    return (float)(int32_t)(dice_next(state) >> 32) * (1.0f / 2147483648.0f);
}
