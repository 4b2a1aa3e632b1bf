/* SPDX-License-Identifier: MIT
 *
 * drafts.h: tokens proposed after a text, to be verified by the model in one row. */
#ifndef HYBRID_DRAFTS_H
#define HYBRID_DRAFTS_H

#include "workload.h"

enum { MAX_DRAFTS = 16 };

/* tokens[0] is the text's last token, the root; draft i follows tokens[parents[i]], and parents[i]
 * < i. parents[0] is -1. */
struct drafts {
    int32_t count; /* with the root */
    int32_t tokens[MAX_DRAFTS + 1];
    int32_t parents[MAX_DRAFTS + 1];
};

/* At most max_drafts after the first num_tokens tokens of the answer. */
void drafts_propose(enum draft_kind kind, const struct choice *choice, int32_t num_tokens,
                    int32_t vocab_size, int32_t max_drafts, uint64_t *random,
                    struct drafts *drafts);

#endif
