/* SPDX-License-Identifier: MIT
 *
 * save_states.h: the states of a sequence in one state group, in the order that a saved file has
 * them:
 *
 *   length of each state | [state][layer][byte]
 *
 * Of a page only the state_bytes of each layer: what pads it is never read here. What is visited is
 * constant while the sequence is moving (seq_life.h), so no mutex is needed. */
#ifndef PKV_RUNTIME_SAVE_STATES_H
#define PKV_RUNTIME_SAVE_STATES_H

#include "runtime/state_group.h"

/* Bytes in a file of one state of all layers, its length too; false when they overflow. O(1). */
bool save_states_bytes(const struct state_group *states, uint64_t *bytes);

/* Shows the memory of all states of a sequence, in order, until visit returns false. O(states *
 * layers). */
bool save_states_visit(const struct state_group *states, int32_t seq,
                       bool (*visit)(void *context, void *bytes, size_t n), void *context);

#endif
