/* SPDX-License-Identifier: MIT
 *
 * server_loop.c: the loop of a server on a managed cache, to be copied. Four requests share a pool
 * that is too small for all of them at once: some wait for blocks, and one that runs is preempted
 * and continues later. The model is a stand-in that can be computed by hand: it has one channel,
 * every query is 0 and the value of a token is its id, so attention returns the mean of the ids so
 * far, and the next token is mean * length, their sum, modulo 100. take_token compares.
 *
 *   server_loop [blocks of the pool, 8] */
#include <math.h>
#include <pagedkv.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 2, NUM_REQUESTS = 4, MAX_TOKENS = 14, MAX_STEP_TOKENS = 56 };

struct request {
    int32_t num_tokens, tokens[MAX_TOKENS]; /* the prompt, then what the model adds */
    int32_t num_prompt, num_cached;         /* num_cached have keys and values in the cache */
    enum { WAITING, RUNNING, DONE } state;
    pkv_seq seq;
    struct pkv_shortage shortage; /* why it waits; need is 0 when it was not refused */
};

struct server {
    pkv_cache *cache;
    int32_t step, num_done, num_wrong;
    struct request requests[NUM_REQUESTS]; /* in order of arrival */
    pkv_seq seqs[NUM_REQUESTS];            /* the next batch: a row for each running request */
    int32_t q_lens[NUM_REQUESTS], token_ids[MAX_STEP_TOKENS];
    float q[MAX_STEP_TOKENS], k[MAX_STEP_TOKENS]; /* stay 0 */
    float v[MAX_STEP_TOKENS], out[MAX_STEP_TOKENS];
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
    /* Blocks of 4 tokens, so that requests of a dozen tokens need several; servers take 64. */
    struct pkv_group_config group = {.kv_heads = 1, .k_width = 1, .block_size = 4};
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
    for (int i = 0; i < NUM_REQUESTS; i++) {
        must(pkv_seq_create(s->cache, NULL, &s->requests[i].seq));
        s->requests[i].num_prompt = s->requests[i].num_tokens;
    }
}

/* Adopts what the cache has of a request and is promised blocks for the rest; false = not now. One
 * that was refused asks again when what it lacked is free: a wait of no time says whether. */
static bool admit(struct server *s, struct request *r)
{
    if (r->shortage.need > 0 && pkv_wait_free(s->cache, r->seq, &r->shortage, 0) != PKV_OK) {
        return false;
    }
    struct pkv_admission admission = {.size = sizeof admission};
    struct pkv_prompt prompt = {.size = sizeof prompt, .token_ids = r->tokens};
    prompt.num_tokens = r->num_tokens;
    r->shortage = (struct pkv_shortage){.size = sizeof r->shortage};
    const enum pkv_status status =
        pkv_seq_admit(s->cache, r->seq, &prompt, 0, MAX_TOKENS, &admission, &r->shortage);
    const int number = (int)(r - s->requests);
    if (status == PKV_NO_BLOCKS) {
        printf("step %2d: request %d waits, %d blocks needed, %d free\n", s->step, number,
               (int)r->shortage.need, (int)r->shortage.free);
        return false;
    }
    must(status);
    printf("step %2d: request %d admitted, %d of %d tokens cached\n", s->step, number,
           admission.num_cached, r->num_tokens);
    r->num_cached = admission.num_cached;
    r->state = RUNNING;
    return true;
}

/* In order of arrival, request r at step r: behind the first that has to wait, all wait. */
static void admit_waiting(struct server *s)
{
    for (int r = 0; r < NUM_REQUESTS && r <= s->step; r++) {
        if (s->requests[r].state == WAITING && !admit(s, &s->requests[r])) {
            break;
        }
    }
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

/* Each running request computes the tokens that the cache lacks: its prompt at first, then one. */
static struct pkv_batch next_batch(struct server *s)
{
    struct pkv_batch batch = {.size = sizeof batch, .seqs = s->seqs, .q_lens = s->q_lens};
    int32_t num_tokens = 0;
    for (const struct request *r = s->requests; r < s->requests + NUM_REQUESTS; r++) {
        for (int32_t i = r->num_cached; r->state == RUNNING && i < r->num_tokens; i++) {
            s->v[num_tokens] = (float)r->tokens[i]; /* stands for the model's projections */
            s->token_ids[num_tokens++] = r->tokens[i];
        }
        s->seqs[batch.num_rows] = r->seq;
        s->q_lens[batch.num_rows] = r->num_tokens - r->num_cached;
        batch.num_rows += r->state == RUNNING;
    }
    batch.num_required_rows = batch.num_rows;
    batch.token_ids = s->token_ids;
    return batch;
}

/* The output of a request's last token gives the next one, which must be the sum of all before. */
static void take_token(struct server *s, struct request *r, float mean)
{
    int32_t sum = 0;
    for (int32_t i = 0; i < r->num_tokens; i++) {
        sum += r->tokens[i];
    }
    r->num_cached = r->num_tokens;
    r->tokens[r->num_tokens] = (int32_t)lroundf(mean * (float)r->num_tokens) % 100;
    s->num_wrong += r->tokens[r->num_tokens++] != sum % 100;
    if (r->num_tokens == MAX_TOKENS) {
        must(pkv_seq_destroy(s->cache, r->seq));
        r->state = DONE;
        s->num_done++;
        printf("step %2d: request %d done:", s->step, (int)(r - s->requests));
        for (int32_t i = 0; i < MAX_TOKENS; i++) {
            printf("%s %d%s", i == r->num_prompt ? " |" : "", r->tokens[i],
                   i + 1 == MAX_TOKENS ? "\n" : "");
        }
    }
}

static void take_tokens(struct server *s)
{
    int32_t end = 0;
    for (struct request *r = s->requests; r < s->requests + NUM_REQUESTS; r++) {
        if (r->state == RUNNING) {
            end += r->num_tokens - r->num_cached;
            take_token(s, r, s->out[end - 1]);
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
    static struct server server = {
        .requests = {{.num_tokens = 6, .tokens = {3, 1, 4, 1, 5, 9}},
                     {.num_tokens = 6, .tokens = {2, 7, 1, 8, 2, 8}},
                     {.num_tokens = 7, .tokens = {3, 1, 4, 1, 5, 9, 3}},
                     {.num_tokens = 6, .tokens = {2, 7, 1, 8, 3, 3}}},
    };
    create(&server, argc > 1 ? atoi(argv[1]) : 8);
    serve(&server);
    must(pkv_cache_destroy(server.cache, false));
    printf("%d requests, %d wrong tokens\n", server.num_done, server.num_wrong);
    return server.num_wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
