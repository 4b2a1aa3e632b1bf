/* SPDX-License-Identifier: MIT */
#include "runtime/save_states.h"

#include "base/checked.h"

bool save_states_bytes(const struct state_group *states, uint64_t *bytes)
{
    size_t sum = 0;
    const bool fits = checked_mul(states->config->state_bytes, (size_t)states->num_layers, &sum) &&
                      checked_add(sum, sizeof(uint64_t), &sum);
    *bytes = sum;
    return fits;
}

bool save_states_visit(const struct state_group *states, int32_t seq,
                       bool (*visit)(void *context, void *bytes, size_t n), void *context)
{
    const struct state_entry *entries = state_entries(states, seq);
    bool goes_on = true;
    for (int32_t i = 0; goes_on && i < states->lists[seq].count; i++) {
        unsigned char *state =
            states->first_layer + (size_t)entries[i].block * states->state_stride_bytes;
        for (int32_t n = 0; goes_on && n < states->num_layers; n++) {
            goes_on = visit(context, state + (size_t)n * states->layer_stride_bytes,
                            states->config->state_bytes);
        }
    }
    return goes_on;
}
