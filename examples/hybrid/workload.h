/* SPDX-License-Identifier: MIT
 *
 * workload.h: requests that a seed decides, with the right answers. Prompts begin in common ones,
 * go on where an earlier request ended (chats), repeat an earlier prompt, or share nothing; some
 * end around the end of a block. Answers are naive.h's. A request whose smallest lead is below
 * MIN_LEAD is drawn anew, so that no answer hangs on the rounding of a logit. */
#ifndef HYBRID_WORKLOAD_H
#define HYBRID_WORKLOAD_H

#include "hybrid.h"
#include "sampler.h"
#include "whole.h"

enum { MAX_CHOICES = 2, MAX_TEXT = 144, MAX_NEW = 24, NUM_COMMON = 3, MAX_COMMON = 60 };

#define MIN_LEAD 1e-3f

/* Where the drafts of a request come from: nowhere, from an earlier occurrence of its last two
 * tokens, or from what stands for a draft model, which is right at most times. Of a tree of drafts
 * the same. */
enum draft_kind { DRAFT_NONE, DRAFT_LOOKUP, DRAFT_MODEL, DRAFT_TREE };

/* One answer. */
struct choice {
    struct sampler sampler;
    int32_t tokens[MAX_TEXT];                /* the prompt, and the right answer */
    float leads[MAX_NEW];                    /* of each token of the answer */
    struct whole_entry states[MAX_TEXT + 1]; /* by the number of tokens */
};

struct request {
    int32_t num_prompt, num_tokens; /* with the answer */
    int32_t num_choices;
    struct choice choices[MAX_CHOICES];
    int32_t arrival;  /* in steps */
    int32_t patience; /* steps after which its client leaves; 0 = it stays */
    int32_t max_rewind;
    enum draft_kind drafts;
    bool forks_late; /* the second choice begins when the first has some tokens */
};

struct workload {
    struct request *requests;
    int32_t count;
    float smallest_lead;
    int32_t num_redrawn;
};

/* What requests may be. */
struct workload_limits {
    int32_t max_rewind;
    bool has_trees;
};

/* The same for the same model, seed and limits. Complains when there is no memory. */
bool workload_create(const struct hybrid *hybrid, uint64_t seed, int32_t count,
                     const struct workload_limits *limits, struct workload *workload);
void workload_free(struct workload *workload);

#endif
