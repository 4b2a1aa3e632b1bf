/* SPDX-License-Identifier: MIT
 *
 * trace.h: requests as lists of tokens, served one after the other, and the tree of their blocks.
 */
#ifndef BENCH_TRACE_H
#define BENCH_TRACE_H

#include <stdbool.h>
#include <stdint.h>

enum { TRACE_BLOCK = 16, TRACE_CHUNK = 128, TRACE_MAX_LENGTH = 2048, TRACE_MAX_REQUESTS = 2048 };

/* A prompt, and the tokens that are decoded after it. */
struct request {
    int32_t *tokens; /* [length] */
    int32_t num_prompt;
    int32_t length;
    int32_t *nodes; /* [num_blocks]: the full blocks of all its tokens; NULL without a tree */
    int32_t num_blocks;
    int32_t num_shared; /* blocks of the prompt, but its last token, that an earlier request had */
};

struct trace {
    struct request requests[TRACE_MAX_REQUESTS];
    int32_t num_requests;
    int32_t *parents; /* [num_nodes], -1 = root */
    int32_t num_nodes;
};

/* num_prompts beginnings of 60 to 300 tokens; each request has one of them at random, 100 to 400
 * tokens of its own, and 30 decoded. */
void trace_of_system_prompts(struct trace *trace, int32_t num_prompts, int32_t num_requests,
                             uint64_t seed);

/* Chats that take turns in order, or at random; each grows from 200 to 1500 tokens in num_turns
 * turns, 30 tokens of each are decoded. */
void trace_of_chats(struct trace *trace, int32_t num_chats, int32_t num_turns, bool is_random,
                    uint64_t seed);

/* Chats that take turns at random, num_turns in all: each begins with one of num_prompts system
 * prompts of 60 to 300 tokens, and each turn brings 10 to 100 tokens and gets 20 to 200 decoded. A
 * chat of 1800 tokens ends, and another takes its place. The tree of blocks is not built. */
void trace_of_turns(struct trace *trace, int32_t num_prompts, int32_t num_chats, int32_t num_turns,
                    uint64_t seed);

/* Sessions in turn, each longer by `growth` tokens than in the round before. The tree of blocks is
 * not built. */
void trace_of_sessions(struct trace *trace, int32_t num_sessions, int32_t num_rounds, int32_t first,
                       int32_t growth);

void trace_free(struct trace *trace);

int64_t trace_prompt_tokens(const struct trace *trace);

/* Prompt tokens that a cache without bounds would find. */
int64_t trace_shared_tokens(const struct trace *trace);

#endif
