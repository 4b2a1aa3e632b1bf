/* SPDX-License-Identifier: MIT
 *
 * draft_tree [threads]: what it takes to verify 16 drafts: as the tokens of one row that are a tree
 * or a chain, or as the one new token of each of 16 rows that share the prefix (forks). A plan and
 * the runs of all layers, by the layer; one token alone is the time of plain decoding. 32 query and
 * 8 KV heads of width 128, bf16, blocks of 64 tokens; layers of at least 128 MiB together, so that
 * none is in a cache when its turn comes. */
#include <stdio.h>
#include <stdlib.h>

#include "measure.h"
#include "pagedkv.h"

enum { HEADS = 32, KV_HEADS = 8, WIDTH = 128, BLOCK_SIZE = 64, DRAFTS = 16, TURNS = 40 };
enum { BLOCK_ELEMENTS = KV_HEADS * BLOCK_SIZE * WIDTH, LAYER_MIB = 128 };

/* A way to compute the drafts. */
struct way {
    const char *name;
    int32_t rows, tokens;
    const int32_t *parents;
    struct samples times, ratios;
};

static int32_t parents[DRAFTS]; /* each token has two children, as long as there are tokens */
static struct way ways[] = {
    {.name = "tree of 16", .rows = 1, .tokens = DRAFTS, .parents = parents},
    {.name = "chain of 16", .rows = 1, .tokens = DRAFTS},
    {.name = "16 forks", .rows = DRAFTS, .tokens = DRAFTS},
    {.name = "one token", .rows = 1, .tokens = 1},
};
enum { NUM_WAYS = sizeof ways / sizeof ways[0] };

struct pages {
    int32_t keys, layers, blocks;
    uint16_t *k, *v; /* [layers][blocks] */
    uint16_t *q, *new_kv, *out;
};

static uint16_t *random_bf16(size_t count)
{
    uint64_t state = 1;
    uint16_t *values = measure_calloc(count, sizeof *values);
    for (size_t i = 0; i < count; i++) { /* 0.5 .. 1, either sign */
        values[i] = (uint16_t)(0x3f00 | (measure_random(&state) & 0x807f));
    }
    return values;
}

static struct pages make_pages(int32_t keys)
{
    struct pages p = {.keys = keys, .blocks = keys / BLOCK_SIZE + DRAFTS};
    const size_t layer_bytes = (size_t)p.blocks * BLOCK_ELEMENTS * 2 * sizeof *p.k;
    p.layers = (int32_t)(((size_t)LAYER_MIB << 20) / layer_bytes) + 1;
    const size_t elements = (size_t)p.layers * (size_t)p.blocks * BLOCK_ELEMENTS;
    p.k = random_bf16(elements);
    p.v = random_bf16(elements);
    p.q = random_bf16((size_t)DRAFTS * HEADS * WIDTH);
    p.new_kv = random_bf16((size_t)DRAFTS * KV_HEADS * WIDTH);
    p.out = random_bf16((size_t)DRAFTS * HEADS * WIDTH);
    return p;
}

static void free_pages(struct pages *p)
{
    free(p->k);
    free(p->v);
    free(p->q);
    free(p->new_kv);
    free(p->out);
}

/* Rows share all blocks but the last of each. */
static void fill_tables(const struct pages *p, int32_t *table, int32_t *kv_lens, int32_t *cu,
                        const struct way *way)
{
    const int32_t shared = p->keys / BLOCK_SIZE;
    for (int32_t b = 0; b < way->rows; b++) {
        for (int32_t i = 0; i <= shared; i++) {
            *table++ = i < shared ? i : shared + b;
        }
        cu[b + 1] = (b + 1) * (way->tokens / way->rows);
        kv_lens[b] = p->keys + way->tokens / way->rows;
    }
}

/* Seconds by the layer of a plan and its runs. */
static double time_of(const struct pages *p, const struct way *way, pkv_workspace *workspace,
                      pkv_plan *plan)
{
    int32_t *table =
        measure_calloc((size_t)(way->rows * (p->keys / BLOCK_SIZE + 1)), sizeof *table);
    int32_t kv_lens[DRAFTS], cu[DRAFTS + 1] = {0};
    fill_tables(p, table, kv_lens, cu, way);
    struct pkv_gqa_args args = {.size = sizeof args,
                                .form = PKV_CACHE_PAGED,
                                .dtype = PKV_BF16,
                                .num_heads = HEADS,
                                .kv_heads = KV_HEADS,
                                .k_width = WIDTH,
                                .batch = way->rows,
                                .num_tokens = way->tokens,
                                .cu_seqlens_q = cu,
                                .kv_lens = kv_lens,
                                .block_table = table,
                                .max_blocks = p->keys / BLOCK_SIZE + 1,
                                .q = p->q,
                                .k = p->new_kv,
                                .v = p->new_kv,
                                .out = p->out,
                                .past = {.k_dtype = PKV_BF16,
                                         .v_dtype = PKV_BF16,
                                         .num_blocks = p->blocks,
                                         .kv_heads = KV_HEADS,
                                         .block_size = BLOCK_SIZE,
                                         .k_width = WIDTH,
                                         .v_width = WIDTH},
                                .parents = way->parents};
    const double start = measure_now();
    for (int32_t layer = 0; layer < p->layers; layer++) {
        const size_t at = (size_t)layer * (size_t)p->blocks * BLOCK_ELEMENTS;
        args.past.k = p->k + at;
        args.past.v = p->v + at;
        if (layer == 0) {
            measure_must(pkv_gqa_plan(workspace, &args, plan), "pkv_gqa_plan");
        }
        measure_must(pkv_gqa_run(workspace, &args, plan), "pkv_gqa_run");
    }
    const double seconds = measure_now() - start;
    free(table);
    return seconds / p->layers;
}

static void measure_keys(int32_t keys, pkv_workspace *workspace, pkv_plan *plan)
{
    struct pages p = make_pages(keys);
    for (int w = 0; w < NUM_WAYS; w++) {
        ways[w].times.count = ways[w].ratios.count = 0;
    }
    for (int turn = -1; turn < TURNS; turn++) { /* the first warms up */
        double of_tree = 0;
        for (int w = 0; w < NUM_WAYS; w++) {
            const double seconds = time_of(&p, &ways[w], workspace, plan);
            of_tree = w == 0 ? seconds : of_tree;
            if (turn >= 0) {
                samples_add(&ways[w].times, seconds);
                samples_add(&ways[w].ratios, seconds / of_tree);
            }
        }
    }
    printf("%d keys, %d layers of %.0f MiB\n", keys, p.layers,
           (double)p.blocks * BLOCK_ELEMENTS * 4 / (1 << 20));
    for (int w = 0; w < NUM_WAYS; w++) {
        printf("  %-12s %8.3f ms a layer (%.3f .. %.3f), %.2f of the tree's\n", ways[w].name,
               1e3 * samples_median(&ways[w].times), 1e3 * samples_min(&ways[w].times),
               1e3 * samples_max(&ways[w].times), samples_median(&ways[w].ratios));
    }
    free_pages(&p);
}

int main(int argc, char **argv)
{
    static const int32_t lengths[] = {4096, 16384};
    const int threads = argc > 1 ? atoi(argv[1]) : 0;
    pkv_workspace *workspace = NULL;
    pkv_plan *plan = NULL;
    for (int32_t i = 0; i < DRAFTS; i++) {
        parents[i] = i > 0 ? (i - 1) / 2 : -1;
    }
    measure_must(pkv_workspace_create(threads, PKV_ISA_BEST, NULL, &workspace),
                 "pkv_workspace_create");
    measure_must(pkv_plan_create(workspace, &plan), "pkv_plan_create");
    printf("%s, %d threads, kernels %s\n", pkv_build_info(), pkv_workspace_num_threads(workspace),
           pkv_isa_name(pkv_workspace_isa(workspace)));
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        measure_keys(lengths[i], workspace, plan);
    }
    pkv_plan_destroy(plan);
    pkv_workspace_destroy(workspace);
    return EXIT_SUCCESS;
}
