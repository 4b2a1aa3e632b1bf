/* SPDX-License-Identifier: MIT
 *
 * options.c: one table for numbers and one for each kind of words. Every bound is here. */
#include "options.h"

#include "report.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "story: a continuous-batching decoder of llama2.c checkpoints on the managed cache\n"
    "\n"
    "  --model FILE        checkpoint; without it a random model checks the cache\n"
    "  --tokenizer FILE    its vocabulary, for texts in and out\n"
    "  --prompt TEXT       a request; may be repeated\n"
    "  --tokens \"1 403 ..\" a request by token ids; may be repeated\n"
    "  --requests FILE     a request a line, by token ids\n"
    "  -n N                new tokens a request (256)\n"
    "  --window W          sliding window, 0 = none (0)\n"
    "  --kept-prefix P     keys at the start that a window keeps (0)\n"
    "  --form NAME         paged, continuous, or naive: without the library (paged)\n"
    "  --block-size B      tokens a block (64)\n"
    "  --num-blocks N      blocks of the pool, 0 = enough for all (0)\n"
    "  --dtype NAME        of the cache: f32, f16, bf16 (f32)\n"
    "  --max-batch M       requests that run at once (8)\n"
    "  --chunk C           prompt tokens that a step has room for (16)\n"
    "  --prefix-cache      prompts that begin alike share blocks; paged only\n"
    "  --threads T         of attention, 0 = as this process may run (0)\n"
    "  --ids               print token ids alone, a request a line\n";

enum { MAX_BATCH = 4096 };

void options_print_usage(void)
{
    fputs(usage, stdout);
}

static bool take_form(struct options *o, const char *value)
{
    static const char *const names[] = {"paged", "continuous", "naive"};
    static const enum form forms[] = {FORM_PAGED, FORM_CONTINUOUS, FORM_NAIVE};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(value, names[i]) != 0) {
            continue;
        }
        o->form = forms[i];
        o->serve.storage = o->form == FORM_CONTINUOUS ? PKV_STORAGE_CONTINUOUS : PKV_STORAGE_PAGED;
        return true;
    }
    return complain("--form: '%s' is not paged, continuous or naive", value);
}

static bool take_dtype(struct options *o, const char *value)
{
    static const char *const names[] = {"f32", "f16", "bf16"};
    static const enum pkv_dtype dtypes[] = {PKV_F32, PKV_F16, PKV_BF16};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(value, names[i]) != 0) {
            continue;
        }
        o->serve.dtype = dtypes[i];
        return true;
    }
    return complain("--dtype: '%s' is not f32, f16 or bf16", value);
}

static bool take_pair(struct options *o, const char *name, const char *value)
{
    const struct number_option numbers[] = {
        {"-n", 1, MAX_NUMBER, &o->num_new},
        {"--window", 0, MAX_NUMBER, &o->window},
        {"--kept-prefix", 0, MAX_NUMBER, &o->kept_prefix},
        {"--block-size", 1, MAX_NUMBER, &o->serve.block_size},
        {"--num-blocks", 0, INT32_MAX, &o->serve.num_blocks},
        {"--max-batch", 1, MAX_BATCH, &o->serve.max_batch},
        {"--chunk", 1, MAX_NUMBER, &o->serve.chunk},
        {"--threads", 0, MAX_THREADS, &o->serve.threads},
    };
    bool taken = false;
    if (value == NULL) {
        return complain("%s is unknown, or lacks its value (--help)", name);
    }
    if (strcmp(name, "--form") == 0) {
        return take_form(o, value);
    }
    if (strcmp(name, "--dtype") == 0) {
        return take_dtype(o, value);
    }
    if (!take_number(numbers, sizeof numbers / sizeof numbers[0], name, value, &taken)) {
        return false;
    }
    return taken || source_take(&o->source, name, value) ||
           complain("unknown argument %s (--help lists them)", name);
}

/* Arguments that only make sense together. */
static bool check_together(const struct options *o)
{
    if (o->source.model == NULL) {
        if (o->ids) {
            return complain("prompts, --tokenizer and --ids need --model");
        }
        if (o->form != FORM_PAGED || o->serve.dtype != PKV_F32) {
            return complain("--form and --dtype need --model; the check without it runs all forms");
        }
    }
    if (o->form == FORM_NAIVE && o->serve.dtype != PKV_F32) {
        return complain("--form naive computes in f32 only");
    }
    if (o->form != FORM_PAGED && o->serve.prefix_cache) {
        return complain("--prefix-cache needs --form paged: it is blocks that are shared");
    }
    return source_check(&o->source);
}

bool options_parse(int argc, char **argv, struct options *options)
{
    *options = (struct options){.serve = {.block_size = 64, .max_batch = 8, .chunk = 16}};
    bool ok = source_create(argc, &options->source);
    for (int i = 1; ok && i < argc; i++) {
        if (strcmp(argv[i], "--ids") == 0) {
            options->ids = true;
        } else if (strcmp(argv[i], "--prefix-cache") == 0) {
            options->serve.prefix_cache = true;
        } else if (strcmp(argv[i], "--help") == 0) {
            options->help = true;
        } else {
            ok = take_pair(options, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
            i++;
        }
    }
    ok = ok && (options->help || check_together(options));
    options->serve.progress = !options->ids;
    if (!ok) {
        options_free(options);
    }
    return ok;
}

void options_free(struct options *options)
{
    source_free(&options->source);
}
