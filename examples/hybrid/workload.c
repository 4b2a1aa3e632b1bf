/* SPDX-License-Identifier: MIT
 *
 * workload.c: draws requests and has them computed naively. */
#include "workload.h"

#include "dice.h"
#include "naive.h"
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DRAWS = 1000, MAX_QUESTION = 24, LONGEST_CHAT = MAX_TEXT - MAX_NEW - MAX_QUESTION - 1 };

struct draw {
    const struct hybrid *hybrid;
    const struct workload_limits *limits;
    struct workload *workload;
    struct naive naive;
    struct whole whole;
    uint64_t random;
    int32_t common[NUM_COMMON][MAX_COMMON];
    int32_t common_lengths[NUM_COMMON];
};

static int32_t any_token(struct draw *draw)
{
    return dice_between(&draw->random, 0, draw->hybrid->model.vocab_size - 1);
}

static void draw_tokens(struct draw *draw, int32_t *tokens, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        tokens[i] = any_token(draw);
    }
}

/* What the prompt takes from others; its length. */
static int32_t draw_beginning(struct draw *draw, int32_t r, int32_t *tokens)
{
    const int32_t kind = dice_between(&draw->random, 0, 9);
    if (r > 0 && kind < 4) {
        const struct request *before =
            &draw->workload->requests[dice_between(&draw->random, r > 12 ? r - 12 : 0, r - 1)];
        /* All that was said; or the same prompt, of which the last token is drawn as new. */
        const int32_t length = kind < 3 ? before->num_tokens : before->num_prompt - 1;
        const int32_t choice = dice_between(&draw->random, 0, before->num_choices - 1);
        if (length <= LONGEST_CHAT) {
            memcpy(tokens, before->choices[choice].tokens, (size_t)length * sizeof *tokens);
            return length;
        }
    }
    if (kind < 8) {
        const int32_t common = dice_between(&draw->random, 0, NUM_COMMON - 1);
        const int32_t length = draw->common_lengths[common];
        memcpy(tokens, draw->common[common], (size_t)length * sizeof *tokens);
        return length;
    }
    return 0;
}

/* Most questions are of any length; some end one token before, at, or behind a multiple of 16. */
static int32_t draw_length(struct draw *draw, int32_t beginning)
{
    const int32_t length = beginning + dice_between(&draw->random, 1, MAX_QUESTION);
    if (dice_chance(&draw->random, 70)) {
        return length;
    }
    const int32_t edge = length / 16 * 16 + dice_between(&draw->random, -1, 1);
    return edge > beginning ? edge : length;
}

static void draw_request(struct draw *draw, int32_t r, struct request *request)
{
    uint64_t *random = &draw->random;
    memset(request, 0, sizeof *request);
    int32_t *tokens = request->choices[0].tokens;
    const int32_t beginning = draw_beginning(draw, r, tokens);
    request->num_prompt = draw_length(draw, beginning);
    draw_tokens(draw, tokens + beginning, request->num_prompt - beginning);
    request->num_tokens = request->num_prompt + dice_between(random, 1, MAX_NEW);
    request->arrival = (r > 0 ? request[-1].arrival : 0) + dice_between(random, 0, 5);
    request->patience = dice_chance(random, 12) ? dice_between(random, 1, 30) : 0;
    request->num_choices = dice_chance(random, 25) ? MAX_CHOICES : 1;
    request->forks_late = dice_chance(random, 50);
    request->max_rewind = dice_chance(random, 70) ? draw->limits->max_rewind : 0;
    if (request->max_rewind > 0) {
        request->drafts = (enum draft_kind)dice_between(random, DRAFT_NONE, DRAFT_TREE);
        if (request->drafts == DRAFT_TREE && !draw->limits->has_trees) {
            request->drafts = DRAFT_MODEL;
        }
    }
}

/* One answer after the first choice's prompt, whose smallest lead is *smallest. */
static bool answer(struct draw *draw, struct request *request, struct choice *choice,
                   float *smallest)
{
    const bool is_greedy = request->num_choices == 1 && dice_chance(&draw->random, 50);
    choice->sampler =
        (struct sampler){.temperature = is_greedy ? 0 : 1, .seed = dice_next(&draw->random)};
    memmove(choice->tokens, request->choices[0].tokens,
            (size_t)request->num_prompt * sizeof *choice->tokens);
    return naive_continue(&draw->naive, &choice->sampler, MIN_LEAD, choice->tokens,
                          request->num_prompt, request->num_tokens, choice->leads, smallest) &&
           whole_states(&draw->whole, choice->tokens, request->num_tokens, choice->states);
}

/* *smallest is below MIN_LEAD when the request must be drawn anew. */
static bool answer_all(struct draw *draw, struct request *request, float *smallest)
{
    *smallest = INFINITY;
    for (int32_t c = 0; c < request->num_choices && *smallest >= MIN_LEAD; c++) {
        float lead = 0;
        if (!answer(draw, request, &request->choices[c], &lead)) {
            return false;
        }
        *smallest = fminf(*smallest, lead);
    }
    return true;
}

static bool draw_one(struct draw *draw, int32_t r)
{
    struct workload *workload = draw->workload;
    for (int32_t i = 0; i < MAX_DRAWS; i++) {
        float smallest = 0;
        draw_request(draw, r, &workload->requests[r]);
        if (!answer_all(draw, &workload->requests[r], &smallest)) {
            return false;
        }
        if (smallest >= MIN_LEAD) {
            workload->smallest_lead = fminf(workload->smallest_lead, smallest);
            return true;
        }
        workload->num_redrawn++;
    }
    return complain("request %d: no answer is certain", r);
}

static bool draw_all(struct draw *draw)
{
    for (int32_t i = 0; i < NUM_COMMON; i++) {
        draw->common_lengths[i] = dice_between(&draw->random, 10, MAX_COMMON);
        draw_tokens(draw, draw->common[i], draw->common_lengths[i]);
    }
    for (int32_t r = 0; r < draw->workload->count; r++) {
        if (!draw_one(draw, r)) {
            return false;
        }
    }
    return true;
}

bool workload_create(const struct hybrid *hybrid, uint64_t seed, int32_t count,
                     const struct workload_limits *limits, struct workload *workload)
{
    *workload = (struct workload){.count = count, .smallest_lead = INFINITY};
    workload->requests = calloc((size_t)count, sizeof *workload->requests);
    if (workload->requests == NULL) {
        return complain("out of memory for %d requests", count);
    }
    struct draw draw = {.hybrid = hybrid, .limits = limits, .workload = workload, .random = seed};
    const bool ok = naive_create(hybrid, MAX_TEXT, &draw.naive) &&
                    whole_create(hybrid, MAX_TEXT, &draw.whole) && draw_all(&draw);
    naive_free(&draw.naive);
    whole_free(&draw.whole);
    if (!ok) {
        workload_free(workload);
    }
    return ok;
}

void workload_free(struct workload *workload)
{
    free(workload->requests);
    *workload = (struct workload){0};
}
