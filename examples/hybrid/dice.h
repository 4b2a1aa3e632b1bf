/* SPDX-License-Identifier: MIT
 *
 * dice.h: numbers that a seed decides, for weights, requests and what the server meets. */
#ifndef HYBRID_DICE_H
#define HYBRID_DICE_H

#include <stdbool.h>
#include <stdint.h>

/* The next 64 bits; any state is a seed. */
uint64_t dice_next(uint64_t *state);

/* A number of its own for each pair. */
uint64_t dice_mix(uint64_t a, uint64_t b);

/* Any number in [low, high]; true so many times of a hundred; in [-1, 1). */
int32_t dice_between(uint64_t *state, int32_t low, int32_t high);
bool dice_chance(uint64_t *state, int32_t percent);
float dice_uniform(uint64_t *state);

#endif
