/* SPDX-License-Identifier: MIT
 *
 * tree.h: drafts without a draft model: what followed in the request itself wherever it read as it
 * does now (prompt lookup). Where several tokens followed, the drafts branch. */
#ifndef SPECULATIVE_TREE_H
#define SPECULATIVE_TREE_H

#include "decode.h"

enum { MAX_BRANCHES = 8 };

/* A round: a tree of up to num_drafts guesses, each with up to num_branches children; the target
 * computes it in one step, keeps the path that it would have chosen itself, and chooses one token
 * more. num_drafts is in [1, MAX_DRAFTS] and less than max_step_tokens of the target. */
bool decode_tree(struct decoder *target, int32_t num_branches, int32_t num_drafts,
                 struct request *request, struct speculation *counts);

#endif
