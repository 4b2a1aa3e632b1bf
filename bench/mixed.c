/* SPDX-License-Identifier: MIT
 *
 * mixed: a layer of one long decode row, a prefill chunk and the last token of a prompt in one
 * call, against the same three rows in calls of their own, on one thread and on two; and the rate
 * at which 32 decode rows of different lengths are read. Every row must have the bits that it has
 * alone. f16, 32 query and 8 KV heads of width 128; the 32 rows have 4 and 1 of width 64. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer.h"
#include "measure.h"

enum { TURNS = 21, NUM_ROWS = 3, BLOCK_SIZE = 16, HEADS = 32, KV_HEADS = 8, WIDTH = 128 };

struct row {
    const char *name;
    int32_t q_len, keys;
};
static const struct row rows[NUM_ROWS] = {
    {"decode, 65536 keys", 1, 65536},
    {"prefill, 512 queries", 512, 512},
    {"last token of 513", 1, 513},
};

/* Rows [first, first + count) in one call. */
struct call {
    int32_t lens[NUM_ROWS], cu_seqlens[NUM_ROWS + 1];
    struct pkv_gqa_args args;
    pkv_plan *plan;
    struct samples times;
};

static int32_t blocks_of(int32_t row)
{
    return (rows[row].keys + BLOCK_SIZE - 1) / BLOCK_SIZE;
}

/* All blocks of the layer's one row, dealt to three. */
static int32_t *deal_blocks(const struct layer *layer, int32_t max_blocks)
{
    int32_t *table = measure_calloc((size_t)NUM_ROWS * (size_t)max_blocks, sizeof table[0]);
    int32_t next = 0;
    for (int32_t row = 0; row < NUM_ROWS; row++) {
        for (int32_t i = 0; i < max_blocks; i++) {
            table[row * max_blocks + i] = i < blocks_of(row) ? layer->table[next++] : -1;
        }
    }
    return table;
}

static void make_call(const struct layer *layer, const int32_t *table, int32_t max_blocks,
                      int32_t first, int32_t count, struct call *call)
{
    const size_t bytes = pkv_dtype_bytes(layer->dtype);
    size_t before = 0;
    *call = (struct call){.args = layer->args};
    for (int32_t row = 0; row < first; row++) {
        before += (size_t)rows[row].q_len;
    }
    for (int32_t i = 0; i < count; i++) {
        call->lens[i] = rows[first + i].keys;
        call->cu_seqlens[i + 1] = call->cu_seqlens[i] + rows[first + i].q_len;
    }
    struct pkv_gqa_args *args = &call->args;
    args->batch = count;
    args->num_tokens = call->cu_seqlens[count];
    args->cu_seqlens_q = call->cu_seqlens;
    args->kv_lens = call->lens;
    args->block_table = table + (size_t)first * (size_t)max_blocks;
    args->max_blocks = max_blocks;
    args->q = layer->q + before * HEADS * WIDTH * bytes;
    args->k = layer->k + before * KV_HEADS * WIDTH * bytes;
    args->v = layer->v + before * KV_HEADS * WIDTH * bytes;
    args->out = layer->out + before * HEADS * WIDTH * bytes;
    measure_must(pkv_plan_create(layer->workspace, &call->plan), "pkv_plan_create");
}

/* Seconds of a plan and a run. */
static double run(const struct layer *layer, struct call *call)
{
    const double start = measure_now();
    measure_must(pkv_gqa_plan(layer->workspace, &call->args, call->plan), "pkv_gqa_plan");
    measure_must(pkv_gqa_run(layer->workspace, &call->args, call->plan), "pkv_gqa_run");
    const double time = measure_now() - start;
    samples_add(&call->times, time);
    return time;
}

static void report(const struct call *together, const struct call *alone,
                   const struct samples *ratios, int threads)
{
    printf("%d thread%s: together %.2f ms", threads, threads == 1 ? " " : "s",
           1e3 * samples_median(&together->times));
    for (int32_t row = 0; row < NUM_ROWS; row++) {
        printf(", %s %.2f", rows[row].name, 1e3 * samples_median(&alone[row].times));
    }
    printf("; together / sum %.3f (target 1.15)\n", samples_median(ratios));
}

static void bench_rows(int threads)
{
    struct layer_spec spec = {.heads = HEADS,
                              .kv_heads = KV_HEADS,
                              .width = WIDTH,
                              .rows = 1,
                              .block_size = BLOCK_SIZE,
                              .cache = PKV_F16,
                              .threads = threads};
    struct layer layer;
    struct call together, alone[NUM_ROWS];
    struct samples ratios = {0};
    for (int32_t row = 0; row < NUM_ROWS; row++) {
        spec.q_len += rows[row].q_len;
        spec.keys += blocks_of(row) * BLOCK_SIZE;
    }
    layer_create(&spec, NULL, &layer);
    const int32_t max_blocks = blocks_of(0);
    int32_t *table = deal_blocks(&layer, max_blocks);
    const size_t out_bytes = (size_t)spec.q_len * HEADS * WIDTH * pkv_dtype_bytes(layer.dtype);
    char *expected = measure_calloc(out_bytes, 1);
    make_call(&layer, table, max_blocks, 0, NUM_ROWS, &together);
    for (int32_t row = 0; row < NUM_ROWS; row++) {
        make_call(&layer, table, max_blocks, row, 1, &alone[row]);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        double sum = 0;
        for (int32_t row = 0; row < NUM_ROWS; row++) {
            sum += run(&layer, &alone[row]);
        }
        memcpy(expected, layer.out, out_bytes);
        samples_add(&ratios, run(&layer, &together) / sum);
        if (memcmp(expected, layer.out, out_bytes) != 0) {
            measure_fail("a row has other bits than alone");
        }
    }
    report(&together, alone, &ratios, threads);
    pkv_plan_destroy(together.plan);
    for (int32_t row = 0; row < NUM_ROWS; row++) {
        pkv_plan_destroy(alone[row].plan);
    }
    free(expected);
    free(table);
    layer_destroy(&layer);
}

static void bench_depths(int threads)
{
    static const int32_t keys[] = {512, 4096, 16384};
    enum { NUM_DEPTHS = sizeof keys / sizeof keys[0] };
    struct layer layers[NUM_DEPTHS];
    struct samples rates[NUM_DEPTHS] = {{0}};
    for (int i = 0; i < NUM_DEPTHS; i++) {
        const struct layer_spec spec = {.heads = 4,
                                        .kv_heads = 1,
                                        .width = 64,
                                        .rows = 32,
                                        .q_len = 1,
                                        .keys = keys[i],
                                        .block_size = BLOCK_SIZE,
                                        .cache = PKV_F16,
                                        .threads = threads};
        layer_create(&spec, NULL, &layers[i]);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < NUM_DEPTHS; i++) {
            const double start = measure_now();
            layer_run(&layers[i]);
            samples_add(&rates[i], 1e-9 * layer_bytes(&layers[i].spec) / (measure_now() - start));
        }
    }
    printf("%d thread%s: 32 rows", threads, threads == 1 ? " " : "s");
    for (int i = 0; i < NUM_DEPTHS; i++) {
        printf(", %d keys %.1f GB/s", keys[i], samples_median(&rates[i]));
        layer_destroy(&layers[i]);
    }
    printf("\n");
}

int main(void)
{
    printf("%s\n", pkv_build_info());
    for (int threads = 1; threads <= 2; threads++) {
        bench_rows(threads);
    }
    for (int threads = 1; threads <= 2; threads++) {
        bench_depths(threads);
    }
    return EXIT_SUCCESS;
}
