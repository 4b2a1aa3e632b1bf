/* SPDX-License-Identifier: MIT
 *
 * options.h: the command line of the attention benchmark. */
#ifndef BENCH_ATTN_OPTIONS_H
#define BENCH_ATTN_OPTIONS_H

#include "pagedkv/attn.h"

struct options {
    const char *csv;    /* file to write, or NULL */
    const char *filter; /* cases whose "group: name" contains it; NULL = all */
    int32_t rows;       /* 0 = the case's own */
    int32_t keys;
    int32_t threads; /* 0 = as this process may run */
    int32_t repeats; /* turns of each case */
    enum pkv_isa isa;
    bool quick; /* the groups of the targets, a few turns */
    bool help;
};

/* Complains on stderr about the first argument that is wrong. Texts point into argv. */
bool options_parse(int argc, char **argv, struct options *options);
void options_print_usage(void);

#endif
