/* SPDX-License-Identifier: MIT
 *
 * speculative: greedy decoding with a draft model that proposes tokens and a target model that
 * verifies several of them in one step, each on a managed cache.
 *
 *   decoder    a model on a cache: steps of which a part is kept, truncation
 *   decode     plain and speculative decoding of a request
 *   tree       speculative decoding by trees of drafts, without a draft model
 *
 * The draft is the target with fewer layers or changed weights. Every request is also decoded
 * plainly by the target; the run fails when a token differs.
 *
 * Exit status 0, or 1 after a line on stderr. */
#include "decode.h"
#include "load.h"
#include "random.h"
#include "report.h"
#include "source.h"
#include "tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char program_name[] = "speculative";

enum { NUM_PROMPTS = 4, MODEL_SEED = 10, DRAFT_SEED = 11, PREFILL = 16, MAX_LAYERS = 4096 };

static const char usage[] =
    "speculative: greedy decoding with drafts that are verified several at a time\n"
    "\n"
    "  --model FILE        the target; without it a random model\n"
    "  --tokenizer FILE    its vocabulary, for texts in and out\n"
    "  --prompt TEXT       a request; may be repeated\n"
    "  --tokens \"1 403 ..\" a request by token ids; may be repeated\n"
    "  --requests FILE     a request a line, by token ids\n"
    "  -n N                new tokens a request (128)\n"
    "  -k K                drafts a round (4)\n"
    "  --tree B            trees of drafts, up to B children each, that are looked up in the "
    "text:\n"
    "                      no draft model; 0 = off (0)\n"
    "  --draft-layers N    layers of the draft, 0 = one less than the target's (0)\n"
    "  --draft-noise P     percent by which its weights may differ (0)\n"
    "  --window W          sliding window, 0 = none (0)\n"
    "  --kept-prefix P     keys at the start that a window keeps (0)\n"
    "  --block-size B      tokens a block (64)\n"
    "  --threads T         of attention, 0 = as this process may run (0)\n"
    "  --ids               print token ids alone, a request a line\n";

struct options {
    struct source source;
    struct decoder_options decoder;
    int32_t num_new;
    int32_t num_drafts;
    int32_t num_branches; /* of trees; 0 = a draft model */
    int32_t draft_layers;
    int32_t draft_noise;
    int32_t window; /* of every layer; 0 = as the model has them */
    int32_t kept_prefix;
    bool ids;
    bool help;
};

static bool take_pair(struct options *o, const char *name, const char *value)
{
    const struct number_option numbers[] = {
        {"-n", 1, MAX_NUMBER, &o->num_new},
        {"-k", 1, MAX_DRAFTS, &o->num_drafts},
        {"--tree", 0, MAX_BRANCHES, &o->num_branches},
        {"--draft-layers", 0, MAX_LAYERS, &o->draft_layers},
        {"--draft-noise", 0, 1000, &o->draft_noise},
        {"--window", 0, MAX_NUMBER, &o->window},
        {"--kept-prefix", 0, MAX_NUMBER, &o->kept_prefix},
        {"--block-size", 1, MAX_NUMBER, &o->decoder.block_size},
        {"--threads", 0, MAX_THREADS, &o->decoder.threads},
    };
    bool taken = false;
    if (value == NULL) {
        return complain("%s is unknown, or lacks its value (--help)", name);
    }
    if (!take_number(numbers, sizeof numbers / sizeof numbers[0], name, value, &taken)) {
        return false;
    }
    return taken || source_take(&o->source, name, value) ||
           complain("unknown argument %s (--help lists them)", name);
}

static bool parse(int argc, char **argv, struct options *o)
{
    *o = (struct options){.decoder = {.block_size = 64}, .num_new = 128, .num_drafts = 4};
    bool ok = source_create(argc, &o->source);
    for (int i = 1; ok && i < argc; i++) {
        if (strcmp(argv[i], "--ids") == 0) {
            o->ids = true;
        } else if (strcmp(argv[i], "--help") == 0) {
            o->help = true;
        } else {
            ok = take_pair(o, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
            i++;
        }
    }
    if (ok && !o->help && o->source.model == NULL && o->ids) {
        ok = complain("prompts, --tokenizer and --ids need --model");
    }
    return ok && (o->help || source_check(&o->source));
}

struct run {
    const struct options *options;
    struct model target_model;
    struct model draft_model;
    struct tokenizer tokenizer;
    struct request_list requests;
    struct decoder target;
    struct decoder draft;
    struct decoder plain;
    struct speculation counts;
};

static bool make_random(struct run *run)
{
    run->target_model = (struct model){.dim = 64,
                                       .hidden_dim = 172,
                                       .num_layers = 6,
                                       .num_heads = 8,
                                       .kv_heads = 2,
                                       .vocab_size = 256,
                                       .seq_len = 512};
    if (!model_random(MODEL_SEED, &run->target_model)) {
        return false;
    }
    int32_t prompt[NUM_PROMPTS * 7];
    for (int32_t r = 0; r < NUM_PROMPTS; r++) {
        const int32_t length = 7 * (r + 1);
        for (int32_t i = 0; i < length; i++) {
            prompt[i] = (i < 7 ? 3 + i : r * 131 + i * i * 17) % run->target_model.vocab_size;
        }
        if (!request_add(&run->requests, &run->target_model, prompt, length,
                         run->options->num_new)) {
            return false;
        }
    }
    return true;
}

static bool make_models(struct run *run)
{
    const struct options *o = run->options;
    if (o->source.model == NULL) {
        if (!make_random(run)) {
            return false;
        }
    } else if (!model_load(o->source.model, &run->target_model) ||
               !source_load(&o->source, &run->target_model, o->num_new, &run->tokenizer,
                            &run->requests)) {
        return false;
    }
    if (o->window > 0) {
        model_set_window(&run->target_model, o->window, o->kept_prefix);
    }
    const int32_t all = run->target_model.num_layers;
    if (o->draft_layers > all) {
        return complain("--draft-layers: %d, but the model has %d", o->draft_layers, all);
    }
    int32_t layers = o->draft_layers;
    if (layers == 0) {
        layers = all > 1 ? all - 1 : 1;
    }
    return model_draft(&run->target_model, layers, (float)o->draft_noise / 100.0f, DRAFT_SEED,
                       &run->draft_model);
}

/* The target needs no rewind: what it does not keep was never committed. */
static bool make_decoders(struct run *run)
{
    struct decoder_options options = run->options->decoder;
    options.max_tokens = request_longest(&run->requests);
    options.max_step_tokens =
        run->options->num_drafts + 1 > PREFILL ? run->options->num_drafts + 1 : PREFILL;
    if (options.max_step_tokens > options.max_tokens) {
        options.max_step_tokens = options.max_tokens;
    }
    struct decoder_options draft = options;
    draft.max_rewind = run->options->num_drafts < options.max_tokens ? run->options->num_drafts
                                                                     : options.max_tokens;
    return decoder_create(&run->target_model, &options, &run->target) &&
           decoder_create(&run->target_model, &options, &run->plain) &&
           decoder_create(&run->draft_model, &draft, &run->draft);
}

static bool decode_with_drafts(struct run *run, struct request *request)
{
    const struct options *o = run->options;
    if (o->num_branches > 0) {
        return decode_tree(&run->target, o->num_branches, o->num_drafts, request, &run->counts);
    }
    return decode_speculative(&run->target, &run->draft, o->num_drafts, request, &run->counts);
}

/* Decodes a request in both ways; the speculative result stays. */
static bool decode_both(struct run *run, int32_t r)
{
    struct request *request = &run->requests.items[r];
    if (!decode_plain(&run->plain, request)) {
        return false;
    }
    const int32_t num_expected = request->num_tokens;
    int32_t *expected = malloc((size_t)num_expected * sizeof *expected);
    if (expected == NULL) {
        return complain("out of memory for a result of %d tokens", num_expected);
    }
    memcpy(expected, request->tokens, (size_t)num_expected * sizeof *expected);
    request_reset(request);
    bool ok = decode_with_drafts(run, request);
    for (int32_t i = 0; ok && i < num_expected; i++) {
        if (i >= request->num_tokens || request->tokens[i] != expected[i]) {
            ok = complain("request %d differs from plain decoding at token %d", r, i);
        }
    }
    if (ok && request->num_tokens != num_expected) {
        ok = complain("request %d has %d tokens, %d by plain decoding", r, request->num_tokens,
                      num_expected);
    }
    free(expected);
    return ok;
}

static void print_summary(const struct run *run, FILE *out)
{
    const struct speculation *c = &run->counts;
    const int64_t generated = request_generated(&run->requests);
    fprintf(out, "speculative: %d requests, %lld new tokens, the same as by plain decoding; ",
            run->requests.count, (long long)generated);
    if (run->options->num_branches > 0) {
        fprintf(out, "trees of up to %d drafts, %d children each\n", run->options->num_drafts,
                run->options->num_branches);
    } else {
        fprintf(out, "draft of %d of %d layers, %d drafts a round\n", run->draft_model.num_layers,
                run->target_model.num_layers, run->options->num_drafts);
    }
    fprintf(out, "accepted %lld of %lld drafts (%.1f %%), %.2f tokens a round\n",
            (long long)c->num_accepted, (long long)c->num_drafted,
            100.0 * (double)c->num_accepted / (double)(c->num_drafted > 0 ? c->num_drafted : 1),
            (double)generated / (double)(c->num_rounds > 0 ? c->num_rounds : 1));
    fprintf(out, "steps of the target: %lld, plainly %lld; steps of the draft: %lld\n",
            (long long)run->target.num_steps, (long long)run->plain.num_steps,
            (long long)run->draft.num_steps);
}

static bool decode_all(struct run *run)
{
    for (int32_t r = 0; r < run->requests.count; r++) {
        if (!decode_both(run, r)) {
            return false;
        }
    }
    return true;
}

static bool run_all(const struct options *options)
{
    struct run run = {.options = options};
    bool ok = make_models(&run) && make_decoders(&run) && decode_all(&run);
    if (ok && options->source.model != NULL) {
        print_results(&run.requests, &run.tokenizer, options->ids);
    }
    if (ok) {
        print_summary(&run, options->source.model != NULL ? stderr : stdout);
    }
    ok = decoder_destroy(&run.target) && ok;
    ok = decoder_destroy(&run.plain) && ok;
    ok = decoder_destroy(&run.draft) && ok;
    request_free(&run.requests);
    tokenizer_free(&run.tokenizer);
    model_free(&run.draft_model);
    model_free(&run.target_model);
    return ok;
}

int main(int argc, char **argv)
{
    struct options options;
    bool ok = parse(argc, argv, &options);
    if (ok && options.help) {
        fputs(usage, stdout);
    } else if (ok) {
        ok = run_all(&options);
    }
    source_free(&options.source);
    if (fflush(stdout) != 0) {
        ok = complain("stdout cannot be written");
    }
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
