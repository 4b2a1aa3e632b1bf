/* SPDX-License-Identifier: MIT
 *
 * story: a continuous-batching decoder of llama2.c checkpoints on the managed cache.
 *
 *   report     messages, numbers, files          options    the command line
 *   model      the checkpoint                    forward    one pass, attention left open
 *   tokenizer  text and ids                      request    a prompt and what follows it
 *   server     continuous batching on pkv_cache  naive      the same without the library
 *   demo       naive, paged and continuous compared on a random model
 *
 * Exit status 0, or 1 after a line on stderr. */
#include "demo.h"
#include "naive.h"
#include "options.h"
#include "report.h"
#include "request.h"
#include "server.h"
#include "tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

enum { NUM_NEW = 256 };

struct story {
    const struct options *options;
    struct model model;
    struct tokenizer tokenizer;
    struct request_list requests;
};

static bool add_text(struct story *story, const char *text, int32_t num_new)
{
    int32_t *ids = NULL;
    int32_t num_ids = 0;
    if (!tokenizer_encode(&story->tokenizer, text, &ids, &num_ids)) {
        return false;
    }
    const bool ok = request_add(&story->requests, &story->model, ids, num_ids, num_new);
    free(ids);
    return ok;
}

static bool add_prompt(struct story *story, const struct prompt *prompt, int32_t num_new)
{
    switch (prompt->kind) {
    case PROMPT_TEXT: return add_text(story, prompt->text, num_new);
    case PROMPT_IDS: return request_add_ids(&story->requests, &story->model, prompt->text, num_new);
    case PROMPT_FILE:
        return request_add_file(&story->requests, &story->model, prompt->text, num_new);
    }
    return false;
}

/* What to tell when nobody asks: a few beginnings, or the empty prompt by its id. */
static bool add_defaults(struct story *story, int32_t num_new)
{
    static const char *const beginnings[] = {"", "Tim had a red ball.", "One day, a cat",
                                             "Lily and her mom"};
    const int32_t begin = TOKEN_BEGIN;
    if (story->options->tokenizer == NULL) {
        return request_add(&story->requests, &story->model, &begin, 1, num_new);
    }
    for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0]; i++) {
        if (!add_text(story, beginnings[i], num_new)) {
            return false;
        }
    }
    return true;
}

static bool load(struct story *story)
{
    const struct options *o = story->options;
    const int32_t num_new = o->num_new > 0 ? o->num_new : NUM_NEW;
    if (!model_load(o->model, &story->model)) {
        return false;
    }
    if (o->tokenizer != NULL &&
        !tokenizer_load(o->tokenizer, story->model.vocab_size, &story->tokenizer)) {
        return false;
    }
    if (o->num_prompts == 0) {
        return add_defaults(story, num_new);
    }
    for (int32_t i = 0; i < o->num_prompts; i++) {
        if (!add_prompt(story, &o->prompts[i], num_new)) {
            return false;
        }
    }
    return true;
}

static bool run_naive(struct story *story)
{
    float margin = 0;
    const double start = now_seconds();
    if (!naive_decode(&story->model, story->options->window, story->options->kept_prefix,
                      &story->requests, &margin)) {
        return false;
    }
    const int64_t generated = request_generated(&story->requests);
    fprintf(stderr, "naive: %d requests, %lld new tokens, %.0f a second, smallest lead %.5f\n",
            story->requests.count, (long long)generated,
            (double)generated / (now_seconds() - start + 1e-9), (double)margin);
    return true;
}

static bool run_server(struct story *story)
{
    const struct options *o = story->options;
    const bool paged = o->form == FORM_PAGED;
    struct serve_stats stats = {0};
    if (!serve(&story->model, o, !o->ids, &story->requests, &stats)) {
        return false;
    }
    const int64_t generated = request_generated(&story->requests);
    fprintf(stderr,
            "%s: %d requests, %lld new tokens, %.0f a second; %lld computed in %d steps of up to "
            "%d rows; at most %d of %d %s held; %d preemptions\n",
            paged ? "paged" : "continuous", story->requests.count, (long long)generated,
            (double)generated / (stats.seconds + 1e-9), (long long)stats.num_computed,
            stats.num_steps, stats.peak_rows, stats.peak_blocks, stats.num_blocks,
            paged ? "blocks" : "cache rows", stats.num_preemptions);
    return true;
}

static void print_ids(const struct request *request)
{
    for (int32_t i = request->num_prompt; i < request->num_tokens; i++) {
        printf("%s%d", i > request->num_prompt ? " " : "", request->tokens[i]);
    }
    putchar('\n');
}

static void print_results(const struct story *story)
{
    const bool text = !story->options->ids && story->options->tokenizer != NULL;
    for (int32_t r = 0; r < story->requests.count; r++) {
        const struct request *request = &story->requests.items[r];
        if (!text) {
            print_ids(request);
            continue;
        }
        printf("[%d] ", r);
        tokenizer_print(&story->tokenizer, request->tokens, request->num_tokens, stdout);
        fputs("\n\n", stdout);
    }
}

static bool tell(const struct options *options)
{
    struct story story = {.options = options};
    bool ok = load(&story);
    if (ok) {
        ok = options->form == FORM_NAIVE ? run_naive(&story) : run_server(&story);
    }
    if (ok) {
        print_results(&story);
    }
    request_free(&story.requests);
    tokenizer_free(&story.tokenizer);
    model_free(&story.model);
    return ok;
}

int main(int argc, char **argv)
{
    struct options options;
    if (!options_parse(argc, argv, &options)) {
        return EXIT_FAILURE;
    }
    bool ok = true;
    if (options.help) {
        options_print_usage();
    } else {
        ok = options.model == NULL ? demo(&options) : tell(&options);
    }
    options_free(&options);
    if (fflush(stdout) != 0) {
        ok = complain("stdout cannot be written");
    }
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
