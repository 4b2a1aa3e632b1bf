/* SPDX-License-Identifier: MIT
 *
 * Random tokens are 31 bits wide, so that requests share what they were given to share and nothing
 * else. A node of the tree is found by its parent and tokens among all before it. */
#include "trace.h"

#include <stdlib.h>
#include <string.h>

#include "measure.h"

enum { NUM_DECODED = 30, MAX_PROMPTS = 8, MAX_CHATS = 64 };

static int32_t between(uint64_t *state, int32_t low, int32_t high)
{
    return low + (int32_t)(measure_random(state) % (uint32_t)(high - low + 1));
}

static void fill(int32_t *tokens, int32_t n, uint64_t *state)
{
    for (int32_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)(measure_random(state) >> 1);
    }
}

/* A request that begins with `shared` and has fresh tokens up to `length`. */
static void add_request(struct trace *trace, const int32_t *shared, int32_t num_shared,
                        int32_t num_prompt, int32_t num_decoded, uint64_t *state)
{
    struct request *request = &trace->requests[trace->num_requests++];
    const int32_t length = num_prompt + num_decoded;
    *request = (struct request){.num_prompt = num_prompt, .length = length};
    request->tokens = measure_calloc((size_t)length, sizeof(int32_t));
    if (num_shared > 0) {
        memcpy(request->tokens, shared, (size_t)num_shared * sizeof(int32_t));
    }
    fill(request->tokens + num_shared, length - num_shared, state);
}

/* --- the tree */

struct tree_node {
    int32_t parent;
    const int32_t *tokens;
};

static bool is_node(const struct tree_node *node, int32_t parent, const int32_t *tokens)
{
    return node->parent == parent &&
           memcmp(node->tokens, tokens, TRACE_BLOCK * sizeof(int32_t)) == 0;
}

/* The number of the node, which may be a new one. */
static int32_t find_or_add(struct tree_node *nodes, int32_t *num_nodes, int32_t parent,
                           const int32_t *tokens)
{
    for (int32_t i = parent + 1; i < *num_nodes; i++) {
        if (is_node(&nodes[i], parent, tokens)) {
            return i;
        }
    }
    nodes[*num_nodes] = (struct tree_node){parent, tokens};
    return (*num_nodes)++;
}

static void add_to_tree(struct request *request, struct tree_node *nodes, int32_t *num_nodes)
{
    const int32_t before = *num_nodes;
    const int32_t max_shared = (request->num_prompt - 1) / TRACE_BLOCK;
    int32_t parent = -1;
    request->num_blocks = request->length / TRACE_BLOCK;
    request->nodes = measure_calloc((size_t)request->num_blocks, sizeof(int32_t));
    for (int32_t i = 0; i < request->num_blocks; i++) {
        parent = find_or_add(nodes, num_nodes, parent, request->tokens + (size_t)i * TRACE_BLOCK);
        request->nodes[i] = parent;
        request->num_shared += i < max_shared && parent < before;
    }
}

static void build_tree(struct trace *trace)
{
    size_t most = 0;
    for (int32_t i = 0; i < trace->num_requests; i++) {
        most += (size_t)trace->requests[i].length / TRACE_BLOCK;
    }
    struct tree_node *nodes = measure_calloc(most, sizeof *nodes);
    for (int32_t i = 0; i < trace->num_requests; i++) {
        add_to_tree(&trace->requests[i], nodes, &trace->num_nodes);
    }
    trace->parents = measure_calloc((size_t)trace->num_nodes, sizeof(int32_t));
    for (int32_t i = 0; i < trace->num_nodes; i++) {
        trace->parents[i] = nodes[i].parent;
    }
    free(nodes);
}

/* --- the traces */

void trace_of_system_prompts(struct trace *trace, int32_t num_prompts, int32_t num_requests,
                             uint64_t seed)
{
    static int32_t prompts[MAX_PROMPTS][300];
    int32_t lengths[MAX_PROMPTS];
    uint64_t state = seed;
    memset(trace, 0, sizeof *trace);
    for (int32_t i = 0; i < num_prompts; i++) {
        lengths[i] = between(&state, 60, 300);
        fill(prompts[i], lengths[i], &state);
    }
    for (int32_t i = 0; i < num_requests; i++) {
        const int32_t at = between(&state, 0, num_prompts - 1);
        add_request(trace, prompts[at], lengths[at], lengths[at] + between(&state, 100, 400),
                    NUM_DECODED, &state);
    }
    build_tree(trace);
}

void trace_of_chats(struct trace *trace, int32_t num_chats, int32_t num_turns, bool is_random,
                    uint64_t seed)
{
    int32_t turns[MAX_CHATS] = {0};
    const struct request *last[MAX_CHATS] = {NULL};
    uint64_t state = seed;
    memset(trace, 0, sizeof *trace);
    while (trace->num_requests < num_chats * num_turns) {
        const int32_t chat =
            is_random ? between(&state, 0, num_chats - 1) : trace->num_requests % num_chats;
        if (turns[chat] == num_turns) {
            continue;
        }
        const int32_t length = 200 + (1500 - 200) * turns[chat]++ / (num_turns - 1);
        const struct request *before = last[chat];
        last[chat] = &trace->requests[trace->num_requests];
        add_request(trace, before == NULL ? NULL : before->tokens,
                    before == NULL ? 0 : before->length, length - NUM_DECODED, NUM_DECODED, &state);
    }
    build_tree(trace);
}

void trace_of_turns(struct trace *trace, int32_t num_prompts, int32_t num_chats, int32_t num_turns,
                    uint64_t seed)
{
    static int32_t prompts[MAX_PROMPTS][300];
    int32_t lengths[MAX_PROMPTS];
    const struct request *last[MAX_CHATS] = {NULL};
    uint64_t state = seed;
    memset(trace, 0, sizeof *trace);
    for (int32_t i = 0; i < num_prompts; i++) {
        lengths[i] = between(&state, 60, 300);
        fill(prompts[i], lengths[i], &state);
    }
    while (trace->num_requests < num_turns) {
        const int32_t chat = between(&state, 0, num_chats - 1);
        const int32_t at = between(&state, 0, num_prompts - 1);
        const struct request *before = last[chat];
        const bool goes_on = before != NULL && before->length < 1700;
        const int32_t num_shared = goes_on ? before->length : lengths[at];
        last[chat] = &trace->requests[trace->num_requests];
        add_request(trace, goes_on ? before->tokens : prompts[at], num_shared,
                    num_shared + between(&state, 10, 100), between(&state, 20, 200), &state);
    }
}

void trace_of_sessions(struct trace *trace, int32_t num_sessions, int32_t num_rounds, int32_t first,
                       int32_t growth)
{
    uint64_t state = 1;
    memset(trace, 0, sizeof *trace);
    for (int32_t i = 0; i < num_sessions * num_rounds; i++) {
        const struct request *before = i < num_sessions ? NULL : &trace->requests[i - num_sessions];
        add_request(trace, before == NULL ? NULL : before->tokens,
                    before == NULL ? 0 : before->length, first + i / num_sessions * growth, 0,
                    &state);
    }
}

void trace_free(struct trace *trace)
{
    for (int32_t i = 0; i < trace->num_requests; i++) {
        free(trace->requests[i].tokens);
        free(trace->requests[i].nodes);
    }
    free(trace->parents);
}

int64_t trace_prompt_tokens(const struct trace *trace)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < trace->num_requests; i++) {
        sum += trace->requests[i].num_prompt;
    }
    return sum;
}

int64_t trace_shared_tokens(const struct trace *trace)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < trace->num_requests; i++) {
        sum += (int64_t)trace->requests[i].num_shared * TRACE_BLOCK;
    }
    return sum;
}
