/* SPDX-License-Identifier: MIT
 *
 * options.h: the command line, checked as far as it can be without a model. */
#ifndef STORY_OPTIONS_H
#define STORY_OPTIONS_H

#include "server.h"
#include "source.h"

/* NAIVE is for comparison: requests one after another, without the library. */
enum form { FORM_PAGED, FORM_CONTINUOUS, FORM_NAIVE };

struct options {
    struct source source; /* without a model: the demonstration with a random one */
    struct serve_options serve;
    enum form form;
    int32_t window; /* of every layer; 0 = as the model has them */
    int32_t kept_prefix;
    int32_t num_new; /* 0 = not given */
    bool ids;
    bool help;
};

/* Complains about the first argument that is wrong. Texts point into argv. */
bool options_parse(int argc, char **argv, struct options *options);
void options_free(struct options *options);

void options_print_usage(void);

#endif
