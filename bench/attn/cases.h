/* SPDX-License-Identifier: MIT
 *
 * cases.h: what is measured. Cases come in groups: those of a group exist at the same time and are
 * run in turns, so the ratio of two of them is not that of two moments of the machine. The first
 * case of a group is what the others are compared with. */
#ifndef BENCH_ATTN_CASES_H
#define BENCH_ATTN_CASES_H

#include "layer.h"

enum { MAX_CASES = 24, MAX_CASE_NAME = 80 };

struct attn_case {
    char name[MAX_CASE_NAME];
    const char *model;
    struct layer_spec spec;
};

struct group {
    const char *name;
    bool quick;        /* part of --quick: a target stands on it */
    bool has_one_pool; /* all cases lie in the pages of the first, which has as many as any */
    void (*build)(struct group *group);
    int num_cases;
    struct attn_case cases[MAX_CASES];
};

/* The groups, *count of them; build fills in the cases of one. */
const struct group *cases_groups(int *count);

/* Writes the case's name anew, after its spec was changed. */
void cases_name(struct attn_case *c);

#endif
