/* SPDX-License-Identifier: MIT
 *
 * workload.c: made from a seed. */
#include "workload.h"

#include <stdlib.h>
#include <string.h>

enum { NUM_SYSTEMS = 6, NUM_CHATS = 48, NUM_QUESTIONS = 120, NUM_COLD = 50, MAX_TURNS = 6 };
_Static_assert(NUM_CHATS *MAX_TURNS + NUM_QUESTIONS + NUM_COLD <= MAX_REQUESTS, "requests");
/* Steps in which chats, questions and cold prompts begin. */
enum { SPAN = 200 };

/* Text that grows: what a chat has said so far. */
struct text {
    int32_t tokens[MAX_TOKENS];
    int32_t count;
};

int32_t any_number(uint64_t *state, int32_t low, int32_t high)
{
    *state ^= *state << 13; /* Marsaglia's xorshift */
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return low + (int32_t)(*state >> 20 & 0x7fffffff) % (high - low + 1);
}

static void say_anything(struct workload *w, struct text *text, int32_t num_tokens)
{
    for (int32_t i = 0; i < num_tokens; i++) {
        text->tokens[text->count++] = any_number(&w->random, 0, NUM_IDS - 1);
    }
}

static void say_answer(struct text *text, int32_t num_tokens)
{
    int32_t sum = 0;
    for (int32_t i = 0; i < text->count; i++) {
        sum += text->tokens[i];
    }
    for (int32_t i = 0; i < num_tokens; i++) {
        const int32_t token = sum % NUM_IDS;
        text->tokens[text->count++] = token;
        sum += token;
    }
}

/* A request whose prompt is the text; the answer becomes part of it. Returns its index. */
static int32_t add_request(struct workload *w, struct text *text, int32_t delay, int32_t previous)
{
    const int32_t index = w->count++;
    int32_t *tokens = w->tokens + (size_t)index * MAX_TOKENS;
    struct request *request = &w->requests[index];
    *request = (struct request){.tokens = tokens, .num_prompt = text->count, .delay = delay};
    request->num_answer = any_number(&w->random, 10, 30);
    request->previous = previous;
    say_answer(text, request->num_answer);
    memcpy(tokens, text->tokens, (size_t)text->count * sizeof *tokens);
    return index;
}

/* One half of the requests has the first system prompt, a quarter the second, and so on. */
static const struct text *any_system(struct workload *w, const struct text *systems)
{
    int32_t which = 0;
    while (which + 1 < NUM_SYSTEMS && any_number(&w->random, 0, 1) == 0) {
        which++;
    }
    return &systems[which];
}

static void add_chat(struct workload *w, const struct text *system)
{
    struct text text = *system;
    const int32_t num_turns = any_number(&w->random, 2, MAX_TURNS);
    int32_t previous = -1;
    for (int32_t turn = 0; turn < num_turns; turn++) {
        say_anything(w, &text, any_number(&w->random, 10, 60));
        const int32_t delay =
            turn == 0 ? any_number(&w->random, 0, SPAN) : any_number(&w->random, 5, 60);
        previous = add_request(w, &text, delay, previous);
    }
}

static void add_single(struct workload *w, const struct text *system, int32_t num_tokens)
{
    struct text text = {0};
    if (system != NULL) {
        text = *system;
    }
    say_anything(w, &text, num_tokens);
    add_request(w, &text, any_number(&w->random, 0, SPAN), -1);
}

bool workload_create(uint64_t seed, struct workload *w)
{
    struct text systems[NUM_SYSTEMS] = {0};
    *w = (struct workload){.random = seed * 0x9e3779b97f4a7c15u + 1,
                           .num_chats = NUM_CHATS,
                           .num_questions = NUM_QUESTIONS,
                           .num_cold = NUM_COLD};
    w->requests = calloc(MAX_REQUESTS, sizeof *w->requests);
    w->tokens = calloc((size_t)MAX_REQUESTS * MAX_TOKENS, sizeof *w->tokens);
    if (w->requests == NULL || w->tokens == NULL) {
        workload_free(w);
        return false;
    }
    for (int32_t i = 0; i < NUM_SYSTEMS; i++) {
        say_anything(w, &systems[i], 150 + 30 * i);
    }
    for (int32_t i = 0; i < NUM_CHATS; i++) {
        add_chat(w, any_system(w, systems));
    }
    for (int32_t i = 0; i < NUM_QUESTIONS; i++) {
        add_single(w, any_system(w, systems), any_number(&w->random, 10, 80));
    }
    for (int32_t i = 0; i < NUM_COLD; i++) {
        add_single(w, NULL, any_number(&w->random, 100, 300));
    }
    return true;
}

void workload_free(struct workload *workload)
{
    free(workload->requests);
    free(workload->tokens);
    *workload = (struct workload){0};
}
