/* SPDX-License-Identifier: MIT
 *
 * row.h: a run's part of a step: a piece of its prompt, or its last token and drafts after it. */
#ifndef HYBRID_ROW_H
#define HYBRID_ROW_H

#include "drafts.h"
#include "forward.h"
#include "hybrid.h"
#include "run.h"

/* drafts has the tokens of the row when has_drafts; else they are the text's from run->length on.
 * The path is what the model would have taken itself: of drafts the root and the accepted ones, and
 * of other rows all tokens, which is not listed. */
struct row {
    struct run *run;
    int32_t first; /* of its tokens in the step */
    int32_t q_len;
    bool reaches_end; /* of what is known of the text: a token is chosen */
    bool has_drafts, is_tree;
    struct drafts drafts;
    int32_t path[MAX_DRAFTS + 1];
    int32_t num_path;
    int32_t num_tokens; /* of the text after the step */
};

/* Of at most `room` tokens, which is >= 1. */
void row_compose(struct run *run, int32_t room, int32_t vocab_size, uint64_t *random,
                 struct row *row);

/* tokens [q_len], and the parent of each among them, -1 of the first. */
void row_write(const struct row *row, int32_t *tokens, int32_t *parents);

/* Chooses tokens after the pass in *a and sets the path. Complains about a token that is not the
 * right one; *widest is raised to how far a lead is from the naive one. */
bool row_verify(const struct hybrid *hybrid, struct activations *a, struct row *row, float *widest);

/* The first token of another answer to the same prompt, whose last token is the row's token `t`. */
bool row_choose_other(const struct hybrid *hybrid, struct activations *a, const struct row *row,
                      struct run *other, float *widest);

#endif
