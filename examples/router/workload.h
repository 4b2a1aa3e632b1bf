/* SPDX-License-Identifier: MIT
 *
 * workload.h: requests as a service meets them: chats of several turns, each turn bringing all that
 * was said before; single questions; both behind one of a few system prompts, some of which are
 * far more frequent than others; and prompts that share nothing with any other.
 *
 * The model is that of server_loop.c, so that answers are known beforehand: ids are below
 * NUM_IDS, and the next token is the sum of all tokens before it, modulo NUM_IDS. */
#ifndef ROUTER_WORKLOAD_H
#define ROUTER_WORKLOAD_H

#include <stdbool.h>
#include <stdint.h>

enum { NUM_IDS = 100, MAX_TOKENS = 1024, MAX_REQUESTS = 512 };

struct request {
    const int32_t *tokens; /* [num_prompt + num_answer]: the prompt, then the right answer */
    int32_t num_prompt, num_answer;
    /* Steps until it arrives: from the start, or from the end of the turn before it. */
    int32_t delay;
    int32_t previous; /* the index of that turn; -1 = none */
};

struct workload {
    struct request *requests;
    int32_t count;
    int32_t num_chats, num_questions, num_cold;
    int32_t *tokens; /* of all requests, [count][MAX_TOKENS] */
    uint64_t random;
};

/* The same for the same seed. False when there is no memory. */
bool workload_create(uint64_t seed, struct workload *workload);
void workload_free(struct workload *workload);

/* Any number in [low, high]; state is not 0. */
int32_t any_number(uint64_t *state, int32_t low, int32_t high);

#endif
