/* SPDX-License-Identifier: MIT
 *
 * decode.c: decode steps on the lower layers alone, for servers with a cache manager of their own:
 * a pool of block ids, pages that hold what blocks contain, and the operator that appends and
 * attends. Every query is zero, so a step's result is the mean of the values so far, which main
 * compares. */
#include <pagedkv.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 8, KV_HEADS = 2, WIDTH = 64 };
enum { BLOCK_SIZE = 64, NUM_BLOCKS = 16, MAX_BLOCKS = 4, STEPS = 200 };

static void must(enum pkv_status status)
{
    if (status != PKV_OK) {
        fprintf(stderr, "%s: %s\n", pkv_status_name(status), pkv_last_error());
        exit(EXIT_FAILURE);
    }
}

/* Stands for the model: query, key and value of token number `step`. */
static void next_token(int32_t step, float *q, float *k, float *v)
{
    for (int i = 0; i < HEADS * WIDTH; i++) {
        q[i] = 0;
    }
    for (int i = 0; i < KV_HEADS * WIDTH; i++) {
        k[i] = 1;
        v[i] = (float)step;
    }
}

/* One row of the batch, one token a step. */
static struct pkv_gqa_args call_of(float *q, float *k, float *v, float *out)
{
    struct pkv_gqa_args args = {.size = sizeof args, .form = PKV_CACHE_PAGED, .dtype = PKV_F32};
    args.num_heads = HEADS;
    args.kv_heads = KV_HEADS;
    args.k_width = WIDTH;
    args.batch = 1;
    args.num_tokens = 1;
    args.q = q;
    args.k = k;
    args.v = v;
    args.out = out;
    return args;
}

static void decode(float *q, float *k, float *v, float *out)
{
    struct pkv_page_geometry geometry = {.size = sizeof geometry, .num_layers = 1};
    geometry.num_blocks = NUM_BLOCKS;
    geometry.kv_heads = KV_HEADS;
    geometry.block_size = BLOCK_SIZE;
    geometry.k_width = WIDTH;
    struct pkv_gqa_args args = call_of(q, k, v, out);

    pkv_pool *pool;
    pkv_pages *pages;
    pkv_workspace *workspace;
    must(pkv_pool_create(NUM_BLOCKS, NULL, &pool));
    must(pkv_pages_create(&geometry, NULL, &pages));
    must(pkv_workspace_create(0, PKV_ISA_BEST, NULL, &workspace));

    int32_t length = 0, table[MAX_BLOCKS] = {-1, -1, -1, -1};
    args.block_table = table;
    args.max_blocks = MAX_BLOCKS;
    args.kv_lens = &length;
    must(pkv_pages_view(pages, 0, &args.past)); /* where layer 0 has its keys and values */
    while (length < STEPS) {
        if (length % BLOCK_SIZE == 0) { /* behind the last block, where there is one */
            const int32_t i = length / BLOCK_SIZE;
            must(pkv_pool_alloc_near(pool, i > 0 ? table[i - 1] : -1, 1, &table[i]));
        }
        next_token(length++, q, k, v);
        must(pkv_gqa(workspace, &args)); /* appends k and v, attends to all `length` tokens */
    }
    must(pkv_pool_release(pool, table, MAX_BLOCKS));

    pkv_workspace_destroy(workspace);
    pkv_pages_destroy(pages);
    pkv_pool_destroy(pool);
}

int main(void)
{
    static float q[HEADS * WIDTH], k[KV_HEADS * WIDTH], v[KV_HEADS * WIDTH], out[HEADS * WIDTH];
    decode(q, k, v, out);

    const double expected = (STEPS - 1) / 2.0; /* the mean of 0, 1, .. STEPS - 1 */
    double largest = 0;
    for (int i = 0; i < HEADS * WIDTH; i++) {
        const double error = out[i] > expected ? out[i] - expected : expected - out[i];
        largest = error > largest ? error : largest;
    }
    printf("%d steps, mean %g, largest error %g\n", STEPS, expected, largest);
    return largest <= 1e-5 * expected ? EXIT_SUCCESS : EXIT_FAILURE;
}
