/* SPDX-License-Identifier: MIT
 *
 * nhd_pages.c: attention over pages that another engine owns, in place. FlashInfer and vLLM keep
 * keys and values of a layer in one tensor in the order NHD,
 *
 *     [blocks][2][tokens][heads][width]      keys at index 0 of the second dimension, values at 1
 *
 * which strides of struct pkv_kv_view describe: nothing is copied. A ragged batch (a prompt in two
 * chunks beside rows that decode) appends to such pages and attends. main compares each result with
 * a naive computation, and the tensor with what the engine itself would have written into it. */
#include <math.h>
#include <pagedkv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 8, KV_HEADS = 2, WIDTH = 32, TOKENS = 16, NUM_BLOCKS = 24, MAX_BLOCKS = 6 };
enum { ROWS = 3, MAX_LENGTH = TOKENS * MAX_BLOCKS, MAX_STEP = 64 };
/* One token in one of the two halves of a block. */
enum { CELL = KV_HEADS * WIDTH, HALF = TOKENS * CELL };

struct engine {
    float tensor[NUM_BLOCKS][2][TOKENS][KV_HEADS][WIDTH]; /* the other engine's */
    float expected[NUM_BLOCKS][2][TOKENS][KV_HEADS][WIDTH];
    int32_t table[ROWS][MAX_BLOCKS];
    int32_t lengths[ROWS];
};

static void must(enum pkv_status status)
{
    if (status != PKV_OK) {
        fprintf(stderr, "%s: %s\n", pkv_status_name(status), pkv_last_error());
        exit(EXIT_FAILURE);
    }
}

/* A number in [-1, 1) for a channel: what is 0 for queries, 1 for keys, 2 for values. */
static float number(int what, int row, int position, int channel)
{
    uint32_t x = (uint32_t)(((what * 131 + row) * 1031 + position) * 4099 + channel);
    x = (x ^ x >> 16) * 0x45d9f3bu;
    x = (x ^ x >> 16) * 0x45d9f3bu;
    return (float)(x >> 8) / 8388608.0f - 1.0f;
}

/* Where the tensor has its keys and values. Strides are in elements. */
static struct pkv_kv_view view_of(struct engine *engine)
{
    struct pkv_kv_view view = {.k = engine->tensor[0][0],
                               .v = engine->tensor[0][1],
                               .k_dtype = PKV_F32,
                               .v_dtype = PKV_F32,
                               .num_blocks = NUM_BLOCKS,
                               .kv_heads = KV_HEADS,
                               .block_size = TOKENS,
                               .k_width = WIDTH,
                               .v_width = WIDTH};
    view.k_block_stride = view.v_block_stride = (size_t)2 * HALF;
    view.k_cell_stride = view.v_cell_stride = CELL;
    view.k_head_stride = view.v_head_stride = WIDTH;
    return view;
}

/* The engine's allocator gives blocks in no order. */
static void map_blocks(struct engine *engine)
{
    for (int row = 0; row < ROWS; row++) {
        for (int i = 0; i < MAX_BLOCKS; i++) {
            engine->table[row][i] = (row * MAX_BLOCKS + i) * 7 % NUM_BLOCKS;
        }
    }
}

/* What the engine would write for one token. */
static void expect_token(struct engine *engine, int row, int position)
{
    const int32_t block = engine->table[row][position / TOKENS];
    for (int half = 0; half < 2; half++) {
        float *cell = engine->expected[block][half][position % TOKENS][0];
        for (int c = 0; c < CELL; c++) {
            cell[c] = number(1 + half, row, position, c);
        }
    }
}

/* The attention of one query head, from its definition. */
static void attend_naively(int row, int position, int head, double out[WIDTH])
{
    const int first = head / (HEADS / KV_HEADS) * WIDTH;
    double sum = 0;
    memset(out, 0, WIDTH * sizeof out[0]);
    for (int j = 0; j <= position; j++) {
        double dot = 0;
        for (int c = 0; c < WIDTH; c++) {
            dot +=
                (double)number(0, row, position, head * WIDTH + c) * number(1, row, j, first + c);
        }
        const double weight = exp(dot / sqrt(WIDTH));
        sum += weight;
        for (int c = 0; c < WIDTH; c++) {
            out[c] += weight * number(2, row, j, first + c);
        }
    }
    for (int c = 0; c < WIDTH; c++) {
        out[c] /= sum;
    }
}

static double difference(int row, int position, const float *out)
{
    double largest = 0, expected[WIDTH];
    for (int head = 0; head < HEADS; head++) {
        attend_naively(row, position, head, expected);
        for (int c = 0; c < WIDTH; c++) {
            const double error = fabs(out[head * WIDTH + c] - expected[c]);
            largest = error <= largest ? largest : error; /* NaN is kept */
        }
    }
    return largest;
}

/* Stands for the model: the query, key and value of one token. */
static void make_token(int row, int position, float *q, float *k, float *v)
{
    for (int c = 0; c < HEADS * WIDTH; c++) {
        q[c] = number(0, row, position, c);
    }
    for (int c = 0; c < CELL; c++) {
        k[c] = number(1, row, position, c);
        v[c] = number(2, row, position, c);
    }
}

/* Appends q_lens[row] tokens to each row and attends; returns the largest error. */
static double step(struct engine *engine, pkv_workspace *workspace, const int32_t q_lens[ROWS])
{
    static float q[MAX_STEP * HEADS * WIDTH], k[MAX_STEP * CELL], v[MAX_STEP * CELL];
    static float out[MAX_STEP * HEADS * WIDTH];
    int32_t starts[ROWS + 1] = {0};
    for (int row = 0; row < ROWS; row++) {
        for (int i = 0; i < q_lens[row]; i++) {
            const int position = engine->lengths[row] + i, token = starts[row] + i;
            make_token(row, position, q + token * HEADS * WIDTH, k + token * CELL,
                       v + token * CELL);
            expect_token(engine, row, position);
        }
        starts[row + 1] = starts[row] + q_lens[row];
        engine->lengths[row] += q_lens[row];
    }
    const struct pkv_gqa_args args = {.size = sizeof args,
                                      .form = PKV_CACHE_PAGED,
                                      .dtype = PKV_F32,
                                      .num_heads = HEADS,
                                      .kv_heads = KV_HEADS,
                                      .k_width = WIDTH,
                                      .v_width = WIDTH,
                                      .batch = ROWS,
                                      .num_tokens = starts[ROWS],
                                      .cu_seqlens_q = starts,
                                      .kv_lens = engine->lengths,
                                      .block_table = engine->table[0],
                                      .max_blocks = MAX_BLOCKS,
                                      .q = q,
                                      .k = k,
                                      .v = v,
                                      .out = out,
                                      .past = view_of(engine)};
    must(pkv_gqa(workspace, &args));
    double largest = 0;
    for (int row = 0; row < ROWS; row++) {
        for (int i = 0; i < q_lens[row]; i++) {
            const int position = engine->lengths[row] - q_lens[row] + i;
            const float *result = out + (size_t)(starts[row] + i) * HEADS * WIDTH;
            const double error = difference(row, position, result);
            largest = error <= largest ? largest : error;
        }
    }
    return largest;
}

int main(void)
{
    static struct engine engine;
    static const int32_t prompts[ROWS] = {40, 7, 1}, chunk[ROWS] = {20, 1, 1}, ones[] = {1, 1, 1};
    const int num_decodes = 30;
    pkv_workspace *workspace;
    must(pkv_workspace_create(0, PKV_ISA_BEST, NULL, &workspace));
    map_blocks(&engine);
    double largest = step(&engine, workspace, prompts);
    for (int i = 0; i <= num_decodes; i++) {
        const double error = step(&engine, workspace, i == 0 ? chunk : ones);
        largest = error <= largest ? largest : error;
    }
    pkv_workspace_destroy(workspace);

    const bool same = memcmp(engine.tensor, engine.expected, sizeof engine.tensor) == 0;
    printf("%d rows in pages of [2][%d][%d][%d], %d steps: largest error %s, pages %s\n", ROWS,
           TOKENS, KV_HEADS, WIDTH, num_decodes + 2, largest <= 1e-5 ? "below 1e-5" : "too large",
           same ? "as the engine writes them" : "differ");
    return largest <= 1e-5 && same ? EXIT_SUCCESS : EXIT_FAILURE;
}
