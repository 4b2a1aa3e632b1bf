/* SPDX-License-Identifier: MIT
 *
 * decode.h: the same continuation in two ways. */
#ifndef SPECULATIVE_DECODE_H
#define SPECULATIVE_DECODE_H

#include "decoder.h"
#include "request.h"

struct speculation {
    int64_t num_rounds;
    int64_t num_drafted;
    int64_t num_accepted; /* of those, equal to what the target chose */
};

enum { MAX_DRAFTS = 64 };

/* One step of one token for each new one. */
bool decode_plain(struct decoder *target, struct request *request);

/* A round: the draft model proposes up to num_drafts tokens, a step each; the target computes them
 * all in one step and keeps those that it would have chosen itself, and one more that it chooses.
 * num_drafts is in [1, MAX_DRAFTS], less than max_step_tokens of the target, and at most the
 * draft's max_rewind. */
bool decode_speculative(struct decoder *target, struct decoder *draft, int32_t num_drafts,
                        struct request *request, struct speculation *counts);

#endif
