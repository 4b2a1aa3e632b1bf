/* SPDX-License-Identifier: MIT
 *
 * server_loop.c: the loop of a server on a managed cache, to be copied. Four requests share a pool
 * that is too small for all of them at once: some wait for blocks, and one that runs is preempted
 * and continues later. The model is a stand-in that can be computed by hand: every query is 0 and
 * the value of a token is its id, so attention returns the mean of the ids so far, and the next
 * token is mean * length, their sum, modulo 100. print_result compares.
 *
 *   server_loop [blocks of the pool, 8] */
#include <math.h>
#include <pagedkv.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 2, WIDTH = 8, BLOCK_SIZE = 4 };
enum { NUM_REQUESTS = 4, MAX_TOKENS = 14, MAX_STEP_TOKENS = NUM_REQUESTS * MAX_TOKENS };

enum state { WAITING, RUNNING, DONE };
struct request {
    int32_t num_prompt, num_tokens;
    int32_t tokens[MAX_TOKENS]; /* the prompt, then what the model adds */
    int32_t num_cached;         /* tokens whose keys and values are in the cache */
    enum state state;
    pkv_seq seq;
    struct pkv_shortage shortage; /* why it waits; need is 0 when it was not refused */
};

struct server {
    pkv_cache *cache;
    struct request requests[NUM_REQUESTS]; /* in order of arrival */
    int32_t step, num_done, num_wrong;
    pkv_seq seqs[NUM_REQUESTS]; /* the next batch: a row for each running request */
    int32_t q_lens[NUM_REQUESTS], token_ids[MAX_STEP_TOKENS];
    float q[MAX_STEP_TOKENS * WIDTH], k[MAX_STEP_TOKENS * WIDTH]; /* stay 0 */
    float v[MAX_STEP_TOKENS * WIDTH], out[MAX_STEP_TOKENS * WIDTH];
};

static void must(enum pkv_status status)
{
    if (status != PKV_OK) {
        fprintf(stderr, "%s: %s\n", pkv_status_name(status), pkv_last_error());
        exit(EXIT_FAILURE);
    }
}

static void create(struct server *s, int32_t num_blocks)
{
    struct pkv_group_config group = {.kv_heads = 1, .k_width = WIDTH, .block_size = BLOCK_SIZE};
    const struct pkv_layer_config layers[LAYERS] = {{.num_heads = 1}, {.num_heads = 1}};
    struct pkv_cache_config config = {.size = sizeof config, .groups = &group, .layers = layers};
    group.num_blocks = num_blocks;
    config.num_groups = 1;
    config.num_layers = LAYERS;
    config.max_seqs = NUM_REQUESTS;
    config.max_seq_len = MAX_TOKENS;
    config.max_step_tokens = MAX_STEP_TOKENS;
    config.prefix_cache = true;
    must(pkv_cache_create(&config, &s->cache));
    for (int r = 0; r < NUM_REQUESTS; r++) {
        must(pkv_seq_create(s->cache, NULL, &s->requests[r].seq));
        s->requests[r].num_tokens = s->requests[r].num_prompt;
    }
}

/* Adopts what the cache has of the request and is promised blocks for the rest; false = not now. */
static bool admit(struct server *s, struct request *request)
{
    struct pkv_admission admission = {.size = sizeof admission};
    struct pkv_shortage *shortage = &request->shortage;
    shortage->size = sizeof *shortage;
    struct pkv_prompt prompt = {.size = sizeof prompt, .token_ids = request->tokens};
    prompt.num_tokens = request->num_tokens;
    const enum pkv_status status =
        pkv_seq_admit(s->cache, request->seq, &prompt, 0, prompt.num_tokens, &admission, shortage);
    const int r = (int)(request - s->requests);
    if (status == PKV_NO_BLOCKS) {
        printf("step %2d: request %d waits, %d blocks needed, %d free\n", s->step, r,
               (int)shortage->need, (int)shortage->free);
        return false;
    }
    must(status);
    *shortage = (struct pkv_shortage){0};
    request->state = RUNNING;
    request->num_cached = admission.num_cached;
    printf("step %2d: request %d admitted, %d of %d tokens cached\n", s->step, r,
           request->num_cached, request->num_tokens);
    return true;
}

/* Whether it is worth asking again: a wait of no time looks whether what was missing is free. */
static bool may_fit(struct server *s, const struct request *request)
{
    return request->shortage.need == 0 ||
           pkv_wait_free(s->cache, request->seq, &request->shortage, 0) == PKV_OK;
}

/* In order of arrival, request r at step r: behind the first that has to wait, all wait. */
static void admit_waiting(struct server *s)
{
    bool room = true;
    for (int r = 0; r < NUM_REQUESTS && r <= s->step && room; r++) {
        struct request *request = &s->requests[r];
        room = request->state != WAITING || (may_fit(s, request) && admit(s, request));
    }
}

/* Each running request computes the tokens that the cache lacks: its prompt at first, then one. */
static struct pkv_batch next_batch(struct server *s)
{
    struct pkv_batch batch = {.size = sizeof batch, .seqs = s->seqs, .q_lens = s->q_lens};
    batch.token_ids = s->token_ids;
    int32_t num_tokens = 0;
    for (int r = 0; r < NUM_REQUESTS; r++) {
        const struct request *request = &s->requests[r];
        if (request->state == RUNNING) {
            s->seqs[batch.num_rows] = request->seq;
            s->q_lens[batch.num_rows++] = request->num_tokens - request->num_cached;
            for (int32_t i = request->num_cached; i < request->num_tokens; i++) {
                s->token_ids[num_tokens++] = request->tokens[i];
            }
        }
    }
    batch.num_required_rows = batch.num_rows;
    for (int32_t i = 0; i < num_tokens * WIDTH; i++) { /* stands for the model's projections */
        s->v[i] = (float)s->token_ids[i / WIDTH];
    }
    return batch;
}

/* The youngest releases all its blocks and waits again, with what it has so far as its prompt.
 * The oldest is never preempted, so the loop ends. */
static void preempt_youngest(struct server *s)
{
    int r = NUM_REQUESTS - 1;
    while (s->requests[r].state != RUNNING) {
        r--;
    }
    must(pkv_seq_truncate(s->cache, s->requests[r].seq, 0));
    s->requests[r].state = WAITING;
    printf("step %2d: request %d preempted\n", s->step, r);
}

/* Each token after the prompt must be the sum of all before it. */
static void print_result(struct server *s, int r)
{
    const struct request *request = &s->requests[r];
    int32_t sum = 0;
    printf("step %2d: request %d done:", s->step, r);
    for (int32_t i = 0; i < MAX_TOKENS; i++) {
        s->num_wrong += i >= request->num_prompt && request->tokens[i] != sum % 100;
        sum += request->tokens[i];
        printf("%s %d", i == request->num_prompt ? " |" : "", request->tokens[i]);
    }
    printf("\n");
}

/* The output of a row's last token gives the next one. */
static void take_tokens(struct server *s)
{
    int32_t end = 0;
    for (int r = 0; r < NUM_REQUESTS; r++) {
        struct request *request = &s->requests[r];
        if (request->state == RUNNING) {
            end += request->num_tokens - request->num_cached;
            request->num_cached = request->num_tokens;
            const float sum = s->out[(end - 1) * WIDTH] * (float)request->num_cached;
            request->tokens[request->num_tokens++] = (int32_t)lroundf(sum) % 100;
        }
        if (request->state == RUNNING && request->num_tokens == MAX_TOKENS) {
            must(pkv_seq_destroy(s->cache, request->seq));
            request->state = DONE;
            s->num_done++;
            print_result(s, r);
        }
    }
}

static void serve(struct server *s)
{
    struct pkv_layer_io io = {.size = sizeof io, .q = s->q, .k = s->k, .v = s->v, .out = s->out};
    for (; s->num_done < NUM_REQUESTS; s->step++) {
        admit_waiting(s);
        struct pkv_batch batch = next_batch(s);
        pkv_step step;
        enum pkv_status status;
        while ((status = pkv_step_begin(s->cache, &batch, &step, NULL)) == PKV_NO_BLOCKS) {
            preempt_youngest(s);
            batch = next_batch(s);
        }
        must(status);
        for (int layer = 0; layer < LAYERS; layer++) {
            must(pkv_step_attend(s->cache, step, layer, &io)); /* appends k and v, attends */
        }
        must(pkv_step_commit(s->cache, step, NULL)); /* the new tokens count from here on */
        take_tokens(s);
    }
}

int main(int argc, char **argv)
{
    static struct server server = {.requests = {{6, .tokens = {3, 1, 4, 1, 5, 9}},
                                                {6, .tokens = {2, 7, 1, 8, 2, 8}},
                                                {7, .tokens = {3, 1, 4, 1, 5, 9, 3}},
                                                {6, .tokens = {2, 7, 1, 8, 3, 3}}}};
    create(&server, argc > 1 ? atoi(argv[1]) : 8);
    serve(&server);
    must(pkv_cache_destroy(server.cache, false));
    printf("%d requests, %d wrong tokens\n", server.num_done, server.num_wrong);
    return server.num_wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
