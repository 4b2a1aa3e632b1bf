/* SPDX-License-Identifier: MIT
 *
 * three_ways.c: naive first, then each cache against it. */
#include "three_ways.h"

#include "naive.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool decoded_copy(const struct request_list *list, struct decoded *decoded)
{
    const size_t count = (size_t)list->count;
    const size_t stride = (size_t)request_longest(list);
    *decoded = (struct decoded){.num_requests = list->count, .stride = stride};
    decoded->tokens = calloc(count * stride, sizeof *decoded->tokens);
    decoded->counts = calloc(count, sizeof *decoded->counts);
    if (decoded->tokens == NULL || decoded->counts == NULL) {
        decoded_free(decoded);
        return complain("out of memory for the tokens of %d requests", list->count);
    }
    for (size_t r = 0; r < count; r++) {
        const struct request *request = &list->items[r];
        decoded->counts[r] = request->num_tokens;
        memcpy(decoded->tokens + r * stride, request->tokens,
               (size_t)request->num_tokens * sizeof *request->tokens);
    }
    return true;
}

void decoded_free(struct decoded *decoded)
{
    free(decoded->tokens);
    free(decoded->counts);
    *decoded = (struct decoded){0};
}

bool decoded_compare(const struct decoded *decoded, const char *name,
                     const struct request_list *list)
{
    for (int32_t r = 0; r < decoded->num_requests; r++) {
        const struct request *request = &list->items[r];
        const int32_t *expected = decoded->tokens + (size_t)r * decoded->stride;
        const int32_t count = decoded->counts[r];
        for (int32_t i = 0; i < count && i < request->num_tokens; i++) {
            if (request->tokens[i] != expected[i]) {
                return complain("%s differs: request %d, token %d: %d, not %d", name, r, i,
                                request->tokens[i], expected[i]);
            }
        }
        if (request->num_tokens != count) {
            return complain("%s differs: request %d has %d tokens, not %d", name, r,
                            request->num_tokens, count);
        }
    }
    return true;
}

static void reset_all(struct request_list *list)
{
    for (int32_t r = 0; r < list->count; r++) {
        request_reset(&list->items[r]);
    }
}

static bool run_form(const struct model *model, const struct serve_options *options,
                     const char *name, struct request_list *list)
{
    struct serve_stats stats = {0};
    reset_all(list);
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
    return true;
}

static bool run_naive(const struct model *model, struct request_list *list,
                      struct agreement *agreement)
{
    const double start = now_seconds();
    reset_all(list);
    if (!naive_decode(model, list, &agreement->margin)) {
        return false;
    }
    agreement->num_tokens = request_generated(list);
    printf("  %-11s %5lld tokens, %6.0f tokens/s: one request after another, no library\n", "naive",
           (long long)agreement->num_tokens,
           (double)agreement->num_tokens / (now_seconds() - start + 1e-9));
    return true;
}

bool three_ways(const struct model *model, const struct serve_options *options,
                struct request_list *list, struct agreement *agreement)
{
    struct decoded naive = {0};
    struct serve_options paged = *options;
    struct serve_options continuous = *options;
    paged.storage = PKV_STORAGE_PAGED;
    continuous.storage = PKV_STORAGE_CONTINUOUS;
    continuous.prefix_cache = false;
    const bool ok = run_naive(model, list, agreement) && decoded_copy(list, &naive) &&
                    run_form(model, &paged, "paged", list) &&
                    decoded_compare(&naive, "paged", list) &&
                    run_form(model, &continuous, "continuous", list) &&
                    decoded_compare(&naive, "continuous", list);
    decoded_free(&naive);
    return ok;
}
