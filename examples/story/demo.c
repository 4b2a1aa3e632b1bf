/* SPDX-License-Identifier: MIT
 *
 * demo.c: a small random model, requests of uneven length, and a pool too small for all of them at
 * once, so that chunks, joins, leaves and preemption all happen. */
#include "demo.h"

#include "naive.h"
#include "random.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUM_REQUESTS = 6, NUM_NEW = 64, SEED = 10 };

static bool make_requests(const struct model *model, int32_t num_new, struct request_list *list)
{
    int32_t prompt[64];
    for (int32_t r = 0; r < NUM_REQUESTS; r++) {
        const int32_t length = 5 + 37 * r % 48;
        for (int32_t i = 0; i < length; i++) {
            prompt[i] = (r * 131 + i * i * 17 + i) % model->vocab_size;
        }
        if (!request_add(list, model, prompt, length, num_new)) {
            return false;
        }
    }
    return true;
}

/* Half of what all requests need at once, but enough for the longest alone: a window row can need
 * a block more than its cells fill. */
static int32_t tight_pool(const struct request_list *list, int32_t block_size)
{
    int32_t sum = 0;
    for (int32_t r = 0; r < list->count; r++) {
        sum += (list->items[r].max_tokens - 1) / block_size + 1;
    }
    const int32_t alone = (request_longest(list) - 1) / block_size + 2;
    return sum / 2 > alone ? sum / 2 : alone;
}

/* All tokens in one array, for the caller to free. */
static int32_t *copy_tokens(const struct request_list *list)
{
    const size_t stride = (size_t)request_longest(list);
    int32_t *all = calloc((size_t)list->count * stride, sizeof *all);
    for (int32_t r = 0; all != NULL && r < list->count; r++) {
        memcpy(all + (size_t)r * stride, list->items[r].tokens,
               (size_t)list->items[r].num_tokens * sizeof *all);
    }
    return all;
}

/* Compares each request of the list with the naive result (0 behind its end). */
static bool same_tokens(const char *name, const struct request_list *list, const int32_t *expected)
{
    const size_t stride = (size_t)request_longest(list);
    for (int32_t r = 0; r < list->count; r++) {
        const struct request *request = &list->items[r];
        for (int32_t i = 0; i < request->num_tokens; i++) {
            if (request->tokens[i] != expected[(size_t)r * stride + (size_t)i]) {
                return complain("%s differs from naive: request %d, token %d: %d, not %d", name, r,
                                i, request->tokens[i], expected[(size_t)r * stride + (size_t)i]);
            }
        }
    }
    return true;
}

static bool run_form(const struct model *model, const struct serve_options *options,
                     const char *name, struct request_list *list, const int32_t *expected)
{
    struct serve_stats stats = {0};
    for (int32_t r = 0; r < list->count; r++) {
        request_reset(&list->items[r]);
    }
    if (!serve(model, options, list, &stats)) {
        return false;
    }
    printf("  %-11s %5lld tokens, %6.0f tokens/s: %d steps of up to %d rows, at most %d of %d %s, "
           "%d preemptions\n",
           name, (long long)request_generated(list),
           (double)request_generated(list) / (stats.seconds + 1e-9), stats.num_steps,
           stats.peak_rows, stats.peak_blocks, stats.num_blocks,
           options->storage == PKV_STORAGE_PAGED ? "blocks" : "slots", stats.num_preemptions);
    if (options->prefix_cache) {
        printf("  %-11s %5llu of %llu prompt tokens were hits, and %llu of %llu that came again\n",
               "", (unsigned long long)stats.cache.hit_tokens,
               (unsigned long long)stats.cache.queried_tokens,
               (unsigned long long)stats.cache.rehit_tokens,
               (unsigned long long)stats.cache.readmitted_tokens);
    }
    return same_tokens(name, list, expected);
}

/* Only the paged run has the prefix cache, when that option is on. */
static bool run_three(const struct model *model, struct serve_options *o, struct request_list *list)
{
    float margin = 0;
    const double start = now_seconds();
    if (!naive_decode(model, list, &margin)) {
        return false;
    }
    const int64_t generated = request_generated(list);
    printf("  %-11s %5lld tokens, %6.0f tokens/s: one request after another, no library\n", "naive",
           (long long)generated, (double)generated / (now_seconds() - start + 1e-9));
    int32_t *expected = copy_tokens(list);
    if (expected == NULL) {
        return complain("out of memory for the result");
    }
    if (o->num_blocks == 0) {
        o->num_blocks = tight_pool(list, o->block_size);
    }
    o->storage = PKV_STORAGE_PAGED;
    bool ok = run_form(model, o, "paged", list, expected);
    o->storage = PKV_STORAGE_CONTINUOUS;
    o->prefix_cache = false;
    ok = ok && run_form(model, o, "continuous", list, expected);
    free(expected);
    if (ok) {
        printf("all three emit the same %lld tokens (smallest lead over the second: %.4f)\n",
               (long long)generated, (double)margin);
    }
    return ok;
}

bool demo(const struct options *options)
{
    struct model model = {.dim = 64,
                          .hidden_dim = 172,
                          .num_layers = 4,
                          .num_heads = 8,
                          .kv_heads = 2,
                          .vocab_size = 256,
                          .seq_len = 256};
    struct serve_options serve = options->serve;
    serve.progress = false;
    struct request_list list = {0};
    if (!model_random(SEED, &model)) {
        return false;
    }
    model_set_window(&model, options->window, options->kept_prefix);
    printf("no --model: a random one (%d wide, %d layers, %d query heads on %d KV heads), "
           "%d requests\n",
           model.dim, model.num_layers, model.num_heads, model.kv_heads, NUM_REQUESTS);
    const bool ok =
        make_requests(&model, options->num_new > 0 ? options->num_new : NUM_NEW, &list) &&
        run_three(&model, &serve, &list);
    request_free(&list);
    model_free(&model);
    return ok;
}
