/* SPDX-License-Identifier: MIT
 *
 * demo: the model of this repository writes stories that all begin with the same words, side by
 * side on one managed cache: blocks of the common beginning are shared, layers with a window and
 * layers that keep everything have groups of their own. While they grow a person sees the texts and
 * the pool. Then the same requests are decoded without the library and on a continuous cache, and
 * the tokens of all four runs are compared one by one.
 *
 * Exit status 0, or 1 after a line on stderr. */
#include "embedded.h"
#include "logits.h"
#include "report.h"
#include "screen.h"
#include "source.h"
#include "three_ways.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char program_name[] = "demo";

static const char beginning[] = "It was a cold morning in winter in the forest behind the hill, "
                                "and the snow lay deep on the roofs. ";
static const char *const continuations[] = {
    "A fox called Anna lived there, and she was very brave. What Anna loved most",
    "Hugo the bear woke up early in his cave. There was no honey left",
    "In a nest lived a clever mouse called Olga. One day a stranger",
    "An owl called Clara lived there, and she was very shy. Then the sky",
    "Finn the otter woke up early in his river bank. Everybody knew that he was proud. On market",
    "In a burrow lived a careful rabbit called Sam. When night came",
};
enum { NUM_REQUESTS = sizeof continuations / sizeof continuations[0], NUM_NEW = 560 };

static const char usage[] =
    "demo: the embedded model writes stories on a paged cache, and other ways agree\n"
    "\n"
    "  --delay MS          milliseconds that a frame stands on a terminal (30)\n"
    "  --block-size B      tokens a block (16)\n"
    "  --threads T         of attention, 0 = as this process may run (0)\n"
    "  --logits TEXT       instead: the model's logits after this text, one a line\n"
    "  --plain             no frames and no colours; so too when stdout is no terminal\n";

struct options {
    struct serve_options serve;
    const char *logits;
    int32_t delay;
    bool plain;
    bool help;
};

static bool take_pair(struct options *o, const char *name, const char *value)
{
    const struct number_option numbers[] = {
        {"--delay", 0, 10000, &o->delay},
        {"--block-size", 1, 256, &o->serve.block_size},
        {"--threads", 0, MAX_THREADS, &o->serve.threads},
    };
    bool taken = false;
    if (value == NULL) {
        return complain("%s is unknown, or lacks its value (--help)", name);
    }
    if (strcmp(name, "--logits") == 0) {
        o->logits = value;
        return true;
    }
    return take_number(numbers, sizeof numbers / sizeof numbers[0], name, value, &taken) &&
           (taken || complain("unknown argument %s (--help lists them)", name));
}

/* A chunk takes a whole prompt in one step, so that the second request finds the first one's
 * blocks. They have 16 tokens because the windows have 64 (docs/sizing.md). 1 MiB is less than all
 * six need at once, so that blocks are evicted and some wait. */
static bool parse(int argc, char **argv, struct options *o)
{
    *o = (struct options){.serve = {.block_size = 16,
                                    .bytes = (size_t)1 << 20,
                                    .max_batch = NUM_REQUESTS,
                                    .chunk = 256,
                                    .prefix_cache = true},
                          .delay = 30};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--plain") == 0) {
            o->plain = true;
        } else if (strcmp(argv[i], "--help") == 0) {
            o->help = true;
        } else if (take_pair(o, argv[i], i + 1 < argc ? argv[i + 1] : NULL)) {
            i++;
        } else {
            return false;
        }
    }
    o->plain = o->plain || isatty(STDOUT_FILENO) == 0;
    return true;
}

/* Begin, then the bytes of both texts: a model of bytes needs no tokenizer. */
static bool add_request(const struct model *model, const char *continuation,
                        struct request_list *list)
{
    int32_t prompt[256];
    int32_t count = 0;
    prompt[count++] = model->begin_id;
    for (const char *at = beginning; *at != '\0'; at++) {
        prompt[count++] = (unsigned char)*at;
    }
    for (const char *at = continuation; *at != '\0'; at++) {
        prompt[count++] = (unsigned char)*at;
    }
    return request_add(list, model, prompt, count, NUM_NEW);
}

static void print_stories(const struct screen *screen)
{
    for (int32_t r = 0; r < screen->requests->count; r++) {
        printf("\n%d\n", r + 1);
        screen_print_text(screen, &screen->requests->items[r], 1, 0);
    }
    putchar('\n');
}

/* Streams a run, then has three more in silence. */
static bool show(const struct options *options, const struct model *model,
                 struct request_list *list)
{
    struct screen screen = {.requests = list,
                            .model = model,
                            .num_shared = (int32_t)strlen(beginning),
                            .delay = options->delay,
                            .moves = !options->plain,
                            .start = now_seconds(),
                            .pool = {.plain = options->plain}};
    struct serve_options streaming = options->serve;
    struct serve_stats stats = {0};
    struct decoded streamed = {0};
    struct agreement agreement = {0};
    streaming.after_step = screen_step;
    streaming.context = &screen;
    if (!serve(model, &streaming, list, &stats)) {
        return false;
    }
    print_stories(&screen);
    const bool ok = decoded_copy(list, &streamed) &&
                    three_ways(model, &options->serve, list, &agreement) &&
                    decoded_compare(&streamed, "continuous", list);
    decoded_free(&streamed);
    if (ok) {
        printf("paged = continuous = naive: each decodes the same %lld tokens (smallest lead of a "
               "chosen token: %.4f)\n",
               (long long)agreement.num_tokens, (double)agreement.margin);
    }
    return ok;
}

static bool run(const struct options *options)
{
    struct model model = {0};
    struct request_list list = {0};
    bool ok = embedded_load(&model);
    if (ok && options->logits != NULL) {
        ok = print_logits(&model, options->logits);
        model_free(&model);
        return ok;
    }
    for (int32_t r = 0; ok && r < NUM_REQUESTS; r++) {
        ok = add_request(&model, continuations[r], &list);
    }
    if (ok) {
        printf("a model of bytes, %d layers, %d query heads on %d KV heads: %d stories with the "
               "same beginning\n",
               model.num_layers, model.num_heads, model.kv_heads, NUM_REQUESTS);
        ok = show(options, &model, &list);
    }
    request_free(&list);
    model_free(&model);
    return ok;
}

int main(int argc, char **argv)
{
    struct options options;
    bool ok = parse(argc, argv, &options);
    if (ok && options.help) {
        fputs(usage, stdout);
    } else if (ok) {
        ok = run(&options);
    }
    if (fflush(stdout) != 0) {
        ok = complain("stdout cannot be written");
    }
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
