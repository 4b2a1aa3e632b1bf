/* SPDX-License-Identifier: MIT
 *
 * roles.h: what the two processes do, each with its socket to the front. Both end with it. */
#ifndef DISAGGREGATED_ROLES_H
#define DISAGGREGATED_ROLES_H

#include "worker.h"

/* Computes prompts, and stores their blocks after each step; answers when all of a prompt is
 * stored. In the middle of the request `dies_in` it kills itself, as machines fail; -1 = never. */
bool run_prefill(int socket, const struct place *place, int32_t dies_in);

/* Prefetches what the tier has of a prompt, computes the rest, generates, answers. */
bool run_decode(int socket, const struct place *place);

#endif
