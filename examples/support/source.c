/* SPDX-License-Identifier: MIT
 *
 * source.c: from arguments to requests, and from requests to stdout. */
#include "source.h"

#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool take_number(const struct number_option *options, size_t num_options, const char *name,
                 const char *value, bool *taken)
{
    for (size_t i = 0; i < num_options; i++) {
        const struct number_option *option = &options[i];
        if (strcmp(name, option->name) == 0) {
            *taken = true;
            return parse_number(name, value, option->low, option->high, option->place);
        }
    }
    *taken = false;
    return true;
}

bool source_create(int argc, struct source *source)
{
    *source = (struct source){0};
    source->prompts = calloc((size_t)argc + 1, sizeof *source->prompts);
    return source->prompts != NULL || complain("out of memory");
}

void source_free(struct source *source)
{
    free(source->prompts);
    *source = (struct source){0};
}

bool source_take(struct source *source, const char *name, const char *value)
{
    static const char *const names[] = {"--prompt", "--tokens", "--requests"};
    static const enum prompt_kind kinds[] = {PROMPT_TEXT, PROMPT_IDS, PROMPT_FILE};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            source->prompts[source->num_prompts++] = (struct prompt){kinds[i], value};
            return true;
        }
    }
    if (strcmp(name, "--model") == 0) {
        source->model = value;
    } else if (strcmp(name, "--tokenizer") == 0) {
        source->tokenizer = value;
    } else {
        return false;
    }
    return true;
}

bool source_check(const struct source *source)
{
    if (source->model == NULL && (source->num_prompts > 0 || source->tokenizer != NULL)) {
        return complain("prompts, --tokenizer and --ids need --model");
    }
    return true;
}

static bool add_text(const struct tokenizer *tokenizer, const struct model *model, const char *text,
                     int32_t num_new, struct request_list *requests)
{
    int32_t *ids = NULL;
    int32_t num_ids = 0;
    if (!tokenizer_encode(tokenizer, text, &ids, &num_ids)) {
        return false;
    }
    const bool ok = request_add(requests, model, ids, num_ids, num_new);
    free(ids);
    return ok;
}

static bool add_prompt(const struct prompt *prompt, const struct tokenizer *tokenizer,
                       const struct model *model, int32_t num_new, struct request_list *requests)
{
    switch (prompt->kind) {
    case PROMPT_TEXT: return add_text(tokenizer, model, prompt->text, num_new, requests);
    case PROMPT_IDS: return request_add_ids(requests, model, prompt->text, num_new);
    case PROMPT_FILE: return request_add_file(requests, model, prompt->text, num_new);
    }
    return false;
}

static bool add_defaults(const struct tokenizer *tokenizer, const struct model *model,
                         int32_t num_new, struct request_list *requests)
{
    static const char *const beginnings[] = {"", "Tim had a red ball.", "One day, a cat",
                                             "Lily and her mom"};
    const int32_t begin = model->begin_id;
    if (tokenizer->pieces == NULL) {
        return request_add(requests, model, &begin, 1, num_new);
    }
    for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0]; i++) {
        if (!add_text(tokenizer, model, beginnings[i], num_new, requests)) {
            return false;
        }
    }
    return true;
}

/* None where there is none: then prompts are ids. */
static bool load_tokenizer(const struct source *source, const struct model *model,
                           struct tokenizer *tokenizer)
{
    if (source->tokenizer != NULL) {
        return tokenizer_load(source->tokenizer, model->vocab_size, tokenizer);
    }
    if (model->byte_vocabulary) {
        return tokenizer_create_bytes(model->begin_id, model->end_id, tokenizer);
    }
    for (int32_t i = 0; i < source->num_prompts; i++) {
        if (source->prompts[i].kind == PROMPT_TEXT) {
            return complain("--prompt needs --tokenizer");
        }
    }
    return true;
}

bool source_load(const struct source *source, const struct model *model, int32_t num_new,
                 struct tokenizer *tokenizer, struct request_list *requests)
{
    if (!load_tokenizer(source, model, tokenizer)) {
        return false;
    }
    if (source->num_prompts == 0) {
        return add_defaults(tokenizer, model, num_new, requests);
    }
    for (int32_t i = 0; i < source->num_prompts; i++) {
        if (!add_prompt(&source->prompts[i], tokenizer, model, num_new, requests)) {
            return false;
        }
    }
    return true;
}

void print_ids(const struct request *request)
{
    for (int32_t i = request->num_prompt; i < request->num_tokens; i++) {
        printf("%s%d", i > request->num_prompt ? " " : "", request->tokens[i]);
    }
    putchar('\n');
}

void print_results(const struct request_list *requests, const struct tokenizer *tokenizer, bool ids)
{
    for (int32_t r = 0; r < requests->count; r++) {
        const struct request *request = &requests->items[r];
        if (ids || tokenizer->pieces == NULL) {
            print_ids(request);
            continue;
        }
        printf("[%d] ", r);
        tokenizer_print(tokenizer, request->tokens, request->num_tokens, stdout);
        fputs("\n\n", stdout);
    }
}
