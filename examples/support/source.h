/* SPDX-License-Identifier: MIT
 *
 * source.h: the arguments that several programs take: numbers within bounds, and where a model,
 * its vocabulary and the prompts come from. */
#ifndef SUPPORT_SOURCE_H
#define SUPPORT_SOURCE_H

#include "request.h"
#include "tokenizer.h"

/* An argument that is a whole number in [low, high]. */
struct number_option {
    const char *name;
    int32_t low, high;
    int32_t *place;
};

enum { MAX_NUMBER = 1 << 20, MAX_THREADS = 1024 };

/* Takes the value when the name is one of the table's, which *taken tells. False when it is no
 * number within the bounds. */
bool take_number(const struct number_option *options, size_t num_options, const char *name,
                 const char *value, bool *taken);

enum prompt_kind { PROMPT_TEXT, PROMPT_IDS, PROMPT_FILE };
struct prompt {
    enum prompt_kind kind;
    const char *text;
};

/* --model, --tokenizer, --prompt, --tokens and --requests. Texts point into argv. */
struct source {
    const char *model;
    const char *tokenizer;
    struct prompt *prompts;
    int32_t num_prompts;
};

/* Room for the prompts that argc arguments can be. */
bool source_create(int argc, struct source *source);
void source_free(struct source *source);

/* True when the name is one of the source's. */
bool source_take(struct source *source, const char *name, const char *value);

/* What makes no sense without something else. */
bool source_check(const struct source *source);

/* Loads a tokenizer where one is named, and adds the prompts to the requests; without any, the
 * beginnings of a few stories, or the empty prompt by its id. */
bool source_load(const struct source *source, const struct model *model, int32_t num_new,
                 struct tokenizer *tokenizer, struct request_list *requests);

/* A request on stdout: the ids that were generated, on a line. */
void print_ids(const struct request *request);

/* All requests on stdout: as texts where a tokenizer was loaded, unless ids is set. */
void print_results(const struct request_list *requests, const struct tokenizer *tokenizer,
                   bool ids);

#endif
