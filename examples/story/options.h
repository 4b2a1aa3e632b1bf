/* SPDX-License-Identifier: MIT
 *
 * options.h: the command line, checked as far as it can be without a model. */
#ifndef STORY_OPTIONS_H
#define STORY_OPTIONS_H

#include "pagedkv/base.h"

/* NAIVE is for comparison: requests one after another, without the library. */
enum form { FORM_PAGED, FORM_CONTINUOUS, FORM_NAIVE };

enum prompt_kind { PROMPT_TEXT, PROMPT_IDS, PROMPT_FILE };
struct prompt {
    enum prompt_kind kind;
    const char *text;
};

struct options {
    const char *model;     /* NULL: the demonstration with a random model */
    const char *tokenizer; /* NULL: continuations are printed as ids */
    struct prompt *prompts;
    int32_t num_prompts;
    int32_t num_new; /* 0 = not given */
    int32_t window;  /* 0 = none */
    int32_t kept_prefix;
    int32_t block_size;
    enum form form;
    enum pkv_dtype dtype; /* of the cache */
    int32_t max_batch;
    int32_t num_blocks; /* 0 = enough that nothing is ever short */
    int32_t chunk;
    int32_t threads; /* 0 = OpenMP's default */
    bool ids;
    bool help;
};

/* Complains about the first argument that is wrong. Texts point into argv. */
bool options_parse(int argc, char **argv, struct options *options);
void options_free(struct options *options);

void options_print_usage(void);

#endif
