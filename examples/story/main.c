/* SPDX-License-Identifier: MIT
 *
 * story: a continuous-batching decoder of llama2.c checkpoints on the managed cache.
 *
 *   options    the command line
 *   demo       naive, paged and continuous compared on a random model
 *
 * and from examples/support, which other examples use too
 *
 *   report     messages, numbers, files          source     model, prompts, results
 *   model      shape and weights                 load       any file of a model
 *   forward    one pass, attention left open     tokenizer  text and ids
 *   request    a prompt and what follows it      naive      decoding without the library
 *   cached     a model on pkv_cache              server     continuous batching on it
 *
 * Exit status 0, or 1 after a line on stderr. */
#include "demo.h"
#include "load.h"
#include "naive.h"
#include "options.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>

const char program_name[] = "story";

enum { NUM_NEW = 256 };

struct story {
    const struct options *options;
    struct model model;
    struct tokenizer tokenizer;
    struct request_list requests;
};

static bool load(struct story *story)
{
    const struct options *o = story->options;
    if (!model_load(o->source.model, &story->model)) {
        return false;
    }
    if (o->window > 0) {
        model_set_window(&story->model, o->window, o->kept_prefix);
    }
    return source_load(&o->source, &story->model, o->num_new > 0 ? o->num_new : NUM_NEW,
                       &story->tokenizer, &story->requests);
}

static bool run_naive(struct story *story)
{
    float margin = 0;
    const double start = now_seconds();
    if (!naive_decode(&story->model, &story->requests, &margin)) {
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
    if (!serve(&story->model, &o->serve, &story->requests, &stats)) {
        return false;
    }
    const int64_t generated = request_generated(&story->requests);
    fprintf(stderr,
            "%s: %d requests, %lld new tokens, %.0f a second; %lld computed in %d steps of up to "
            "%d rows; at most %d of %d %s held; %d preemptions\n",
            paged ? "paged" : "continuous", story->requests.count, (long long)generated,
            (double)generated / (stats.seconds + 1e-9), (long long)stats.num_computed,
            stats.num_steps, stats.peak_rows, stats.peak_blocks, stats.num_blocks,
            paged ? "blocks" : "slots", stats.num_preemptions);
    if (o->serve.prefix_cache) {
        fprintf(stderr,
                "prefix cache: %llu of %llu prompt tokens were hits, and %llu of %llu tokens that "
                "came again after a preemption\n",
                (unsigned long long)stats.cache.hit_tokens,
                (unsigned long long)stats.cache.queried_tokens,
                (unsigned long long)stats.cache.rehit_tokens,
                (unsigned long long)stats.cache.readmitted_tokens);
    }
    return true;
}

static bool tell(const struct options *options)
{
    struct story story = {.options = options};
    bool ok = load(&story);
    if (ok) {
        ok = options->form == FORM_NAIVE ? run_naive(&story) : run_server(&story);
    }
    if (ok) {
        print_results(&story.requests, &story.tokenizer, options->ids);
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
        ok = options.source.model == NULL ? demo(&options) : tell(&options);
    }
    options_free(&options);
    if (fflush(stdout) != 0) {
        ok = complain("stdout cannot be written");
    }
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
