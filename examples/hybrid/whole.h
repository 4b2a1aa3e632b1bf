/* SPDX-License-Identifier: MIT
 *
 * whole.h: the states that a text leaves behind, computed in one pass over all of its tokens, from
 * zeros on and with attention that has no cache (PKV_CACHE_NONE). A result of the library has the
 * same bits however a text is cut into calls, and so has the recurrence: what a server reads as the
 * state of a sequence of so many tokens must equal these bit by bit. */
#ifndef HYBRID_WHOLE_H
#define HYBRID_WHOLE_H

#include "forward.h"
#include "hybrid.h"

/* The hash of each recurrent layer's state after one number of tokens. */
struct whole_entry {
    uint64_t hashes[HYBRID_STATES];
};

struct whole {
    const struct hybrid *hybrid;
    struct activations activations;
    pkv_workspace *workspace;
    int32_t num_tokens;          /* of the text at hand */
    struct whole_entry *entries; /* the caller's */
    float *state;                /* [state_bytes] */
};

/* For texts of up to `capacity` tokens. */
bool whole_create(const struct hybrid *hybrid, int32_t capacity, struct whole *whole);
void whole_free(struct whole *whole);

/* states [num_tokens + 1]: entry i is of those after the first i tokens. */
bool whole_states(struct whole *whole, const int32_t *tokens, int32_t num_tokens,
                  struct whole_entry *states);

#endif
