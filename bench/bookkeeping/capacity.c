/* SPDX-License-Identifier: MIT
 *
 * capacity.c: short sequences in caches that would take long ones: what calls cost, and which pages
 * of the tables are there. A full and a window group. The last line is the raw call, whose table
 * has max_blocks columns by contract and is checked whole. */
#include <stdio.h>
#include <stdlib.h>

#include "parts.h"
#include "server.h"

enum { TURNS = 301, NUM_LIMITS = 3, SHORT_PROMPT = 17, LENGTH = 280, MANY = 256, NUM_KINDS = 6 };
enum kind { PAIR, FORK, ADMIT, ADMIT_EXTRA, STEP, RAW };
static const char *const names[NUM_KINDS] = {
    "create + destroy",         "fork + destroy",           "admit, 17 tokens",
    "admit, 17 tokens, extras", "begin + commit, 280 keys", "raw plan, 280 keys",
};

struct subject {
    struct server server;
    struct pkv_group_config groups[2];
    pkv_seq seq; /* of LENGTH tokens */
    int32_t max_blocks;
    int32_t *table; /* of the raw call */
    char *pages;
    pkv_workspace *workspace;
    pkv_plan *plan;
    struct samples times[NUM_KINDS];
};

static void open_raw(struct subject *subject)
{
    subject->max_blocks = subject->server.config.max_seq_len / BLOCK_SIZE;
    subject->table = measure_calloc((size_t)subject->max_blocks, sizeof subject->table[0]);
    for (int32_t i = 0; i < subject->max_blocks; i++) {
        subject->table[i] = i <= LENGTH / BLOCK_SIZE ? i : -1;
    }
    subject->pages = measure_calloc(2 * LENGTH, WIDTH * sizeof(float));
    measure_must(pkv_workspace_create(1, PKV_ISA_BEST, NULL, &subject->workspace),
                 "pkv_workspace_create");
    measure_must(pkv_plan_create(subject->workspace, &subject->plan), "pkv_plan_create");
}

static void open_subject(struct subject *subject, int32_t max_seq_len)
{
    struct server *server = &subject->server;
    server_init(server, MANY + 2, max_seq_len, 8192);
    subject->groups[0] = subject->groups[1] = server->group;
    subject->groups[1].sliding_window = 128;
    server->layers[1] = (struct pkv_layer_config){.group = 1, .num_heads = 1};
    server->config.groups = subject->groups;
    server->config.num_groups = server->config.num_layers = 2;
    server->config.prefix_cache = true;
    server->skips_attention = true;
    server_open(server);
    open_raw(subject);
}

static void close_subject(struct subject *subject)
{
    pkv_plan_destroy(subject->plan);
    pkv_workspace_destroy(subject->workspace);
    free(subject->table);
    free(subject->pages);
    server_close(&subject->server);
}

static double admit(struct server *server, const uint64_t *extra)
{
    static uint64_t seed = 1;
    int32_t tokens[SHORT_PROMPT];
    struct pkv_admission admission = {.size = sizeof admission};
    const pkv_seq seq = server_seq(server);
    server_tokens(tokens, SHORT_PROMPT, seed++);
    struct pkv_prompt prompt = server_prompt(tokens, SHORT_PROMPT);
    prompt.token_extra = extra;
    const double start = measure_now();
    measure_must(pkv_seq_admit(server->cache, seq, &prompt, 0, SHORT_PROMPT, &admission, NULL),
                 "pkv_seq_admit");
    const double time = measure_now() - start;
    server_end(server, seq);
    return time;
}

static double plan_raw(const struct subject *subject)
{
    static const int32_t cu_seqlens[] = {0, 1};
    const int32_t length = LENGTH;
    const struct pkv_gqa_args args = {
        .size = sizeof args,
        .form = PKV_CACHE_PAGED,
        .dtype = PKV_F32,
        .num_heads = 1,
        .kv_heads = 1,
        .k_width = WIDTH,
        .batch = 1,
        .num_tokens = 1,
        .cu_seqlens_q = cu_seqlens,
        .kv_lens = &length,
        .block_table = subject->table,
        .max_blocks = subject->max_blocks,
        .q = subject->server.activations,
        .k = subject->server.activations,
        .v = subject->server.activations,
        .out = (float *)subject->server.activations + WIDTH,
        .past = {.k = subject->pages,
                 .v = subject->pages +
                      (size_t)(LENGTH / BLOCK_SIZE + 1) * BLOCK_SIZE * WIDTH * sizeof(float),
                 .k_dtype = PKV_F32,
                 .v_dtype = PKV_F32,
                 .num_blocks = LENGTH / BLOCK_SIZE + 1,
                 .kv_heads = 1,
                 .block_size = BLOCK_SIZE,
                 .k_width = WIDTH,
                 .v_width = WIDTH},
    };
    const double start = measure_now();
    measure_must(pkv_gqa_plan(subject->workspace, &args, subject->plan), "pkv_gqa_plan");
    return measure_now() - start;
}

static void measure_calls(struct subject *subject)
{
    static const uint64_t extra[SHORT_PROMPT] = {[3] = 1};
    struct server *server = &subject->server;
    pkv_seq child;
    double start = measure_now();
    server_end(server, server_seq(server));
    samples_add(&subject->times[PAIR], measure_now() - start);
    start = measure_now();
    measure_must(pkv_seq_fork(server->cache, subject->seq, LENGTH, 1, &child), "pkv_seq_fork");
    server_end(server, child);
    samples_add(&subject->times[FORK], measure_now() - start);
    samples_add(&subject->times[ADMIT], admit(server, NULL));
    samples_add(&subject->times[ADMIT_EXTRA], admit(server, extra));
    const struct step_time time = server_step(server, &subject->seq, NULL, server->token_ids, 1);
    samples_add(&subject->times[STEP], time.begin + time.commit);
    measure_must(pkv_seq_truncate(server->cache, subject->seq, LENGTH), "pkv_seq_truncate");
    samples_add(&subject->times[RAW], plan_raw(subject));
}

/* KiB of tables for each of many sequences of one token, and for one more of them. */
static double resident_kib(struct subject *subject)
{
    struct server *server = &subject->server;
    const size_t before = counting_resident(&server->counting, PKV_MAP_TABLES);
    for (int i = 0; i < MANY; i++) {
        const pkv_seq seq = server_seq(server);
        server_step(server, &seq, NULL, server->token_ids, 1);
    }
    const size_t after = counting_resident(&server->counting, PKV_MAP_TABLES);
    return (double)(after - before) / MANY / 1024;
}

void bench_capacity(void)
{
    static const int32_t limits[NUM_LIMITS] = {4096, 131072, 1048576};
    static struct subject subjects[NUM_LIMITS];
    double resident[NUM_LIMITS];
    for (int i = 0; i < NUM_LIMITS; i++) {
        open_subject(&subjects[i], limits[i]);
        resident[i] = resident_kib(&subjects[i]);
        subjects[i].seq = server_seq(&subjects[i].server);
        server_write(&subjects[i].server, subjects[i].seq, subjects[i].server.token_ids, 0, LENGTH);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < NUM_LIMITS; i++) {
            measure_calls(&subjects[i]);
        }
    }
    printf("max_seq_len                    %8d %8d %8d\n", limits[0], limits[1], limits[2]);
    for (int kind = 0; kind < NUM_KINDS; kind++) {
        printf("  %-25s", names[kind]);
        for (int i = 0; i < NUM_LIMITS; i++) {
            printf(" %8.3f", 1e6 * samples_median(&subjects[i].times[kind]));
        }
        printf(" us\n");
    }
    printf("  tables of a sequence     ");
    for (int i = 0; i < NUM_LIMITS; i++) {
        printf(" %8.1f", resident[i]);
        close_subject(&subjects[i]);
    }
    printf(" KiB resident\n");
}
