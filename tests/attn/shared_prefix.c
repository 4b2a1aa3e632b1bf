/* SPDX-License-Identifier: MIT
 *
 * Rows whose tables begin with the same blocks are attended together; here every result is held,
 * bit by bit, against the same row in a call of its own, where nothing can be shared. Tables form
 * random trees: a row continues another one's table up to some block and goes on with blocks of its
 * own. */
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

#define MAX_ROWS 40
#define HEADS 6
#define KV_HEADS 2
#define WIDTH 24

struct tree {
    int32_t num_rows, block_size, max_blocks, num_blocks;
    enum pkv_dtype dtype, cache_dtype;
    int32_t *table;
    int32_t kv_lens[MAX_ROWS];
    char *k, *v;
    char *q, *new_k, *new_v;
    char *out, *alone;
    float lse[MAX_ROWS * HEADS], alone_lse[HEADS];
};

static char *random_floats(struct test_random *random, enum pkv_dtype dtype, size_t count)
{
    char *array = malloc(count * 4);
    for (size_t i = 0; i < count; i++) {
        ref_store(dtype, array, i, random_unit(random));
    }
    return array;
}

/* Row r takes the first blocks of an earlier row's past, whole blocks below its own new key. */
static void grow_tree(struct test_random *random, struct tree *t)
{
    int32_t next = 0;
    for (int32_t r = 0; r < t->num_rows; r++) {
        int32_t *row = t->table + (size_t)r * (size_t)t->max_blocks;
        const int32_t parent = r > 0 ? random_between(random, 0, r - 1) : 0;
        const int32_t limit = r > 0 ? (t->kv_lens[parent] - 1) / t->block_size : 0;
        const int32_t shared =
            random_between(random, 0, 3) > 0 ? random_between(random, 0, limit) : 0;
        const int32_t own = random_between(random, 1, 200);
        t->kv_lens[r] = shared * t->block_size + own;
        if (t->kv_lens[r] > t->max_blocks * t->block_size) {
            t->kv_lens[r] = t->max_blocks * t->block_size;
        }
        const int32_t used = (t->kv_lens[r] + t->block_size - 1) / t->block_size;
        for (int32_t i = 0; i < t->max_blocks; i++) {
            row[i] = i >= used ? -1
                     : i < shared && i < used - 1
                         ? t->table[(size_t)parent * (size_t)t->max_blocks + (size_t)i]
                         : next++;
        }
    }
    t->num_blocks = next;
}

static struct pkv_gqa_args args_of(const struct tree *t, int32_t first, int32_t count, char *out,
                                   float *lse)
{
    const size_t element = pkv_dtype_bytes(t->dtype);
    const size_t token = (size_t)first * WIDTH * element;
    return (struct pkv_gqa_args){
        .size = sizeof(struct pkv_gqa_args),
        .form = PKV_CACHE_PAGED,
        .dtype = t->dtype,
        .num_heads = HEADS,
        .kv_heads = KV_HEADS,
        .k_width = WIDTH,
        .batch = count,
        .num_tokens = count,
        .kv_lens = t->kv_lens + first,
        .block_table = t->table + (size_t)first * (size_t)t->max_blocks,
        .max_blocks = t->max_blocks,
        .q = t->q + token * HEADS,
        .k = t->new_k + token * KV_HEADS,
        .v = t->new_v + token * KV_HEADS,
        .out = out,
        .lse = lse,
        .past = {.k = t->k,
                 .v = t->v,
                 .k_dtype = t->cache_dtype,
                 .v_dtype = t->cache_dtype,
                 .num_blocks = t->num_blocks,
                 .kv_heads = KV_HEADS,
                 .block_size = t->block_size,
                 .k_width = WIDTH},
    };
}

static void check_tree(struct tree *t, int num_threads)
{
    pkv_workspace *workspace = NULL;
    const size_t row_bytes = HEADS * WIDTH * pkv_dtype_bytes(t->dtype);
    ASSERT_STATUS(PKV_OK, pkv_workspace_create(num_threads, test_isa(), NULL, &workspace));
    test_eager_threads(workspace);
    const struct pkv_gqa_args together = args_of(t, 0, t->num_rows, t->out, t->lse);
    ASSERT_STATUS(PKV_OK, pkv_gqa(workspace, &together));
    for (int32_t r = 0; r < t->num_rows; r++) {
        const struct pkv_gqa_args one = args_of(t, r, 1, t->alone, t->alone_lse);
        ASSERT_STATUS(PKV_OK, pkv_gqa(workspace, &one));
        CU_ASSERT(memcmp(t->alone, t->out + (size_t)r * row_bytes, row_bytes) == 0);
        CU_ASSERT(memcmp(t->alone_lse, t->lse + r * HEADS, sizeof t->alone_lse) == 0);
    }
    pkv_workspace_destroy(workspace);
}

static void run_tree(struct test_random *random, int32_t block_size, enum pkv_dtype dtype,
                     enum pkv_dtype cache_dtype, int num_threads)
{
    struct tree t = {.num_rows = random_between(random, 2, MAX_ROWS),
                     .block_size = block_size,
                     .max_blocks = 2600 / block_size,
                     .dtype = dtype,
                     .cache_dtype = cache_dtype};
    t.table = calloc((size_t)t.num_rows * (size_t)t.max_blocks, sizeof t.table[0]);
    grow_tree(random, &t);
    const size_t cells = (size_t)t.num_blocks * (size_t)block_size * KV_HEADS * WIDTH;
    const size_t tokens = (size_t)t.num_rows * WIDTH;
    t.k = random_floats(random, cache_dtype, cells);
    t.v = random_floats(random, cache_dtype, cells);
    t.q = random_floats(random, dtype, tokens * HEADS);
    t.new_k = random_floats(random, dtype, tokens * KV_HEADS);
    t.new_v = random_floats(random, dtype, tokens * KV_HEADS);
    t.out = calloc(tokens * HEADS, 4);
    t.alone = calloc(HEADS * WIDTH, 4);
    check_tree(&t, num_threads);
    void *arrays[] = {t.table, t.k, t.v, t.q, t.new_k, t.new_v, t.out, t.alone};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        free(arrays[i]);
    }
}

static void rows_that_share_blocks_have_the_bits_they_have_alone(void)
{
    struct test_random random = {test_seed()};
    const int32_t block_sizes[] = {16, 64, 7, 512, 100};
    for (int32_t i = 0; i < 15; i++) {
        run_tree(&random, block_sizes[i % 5], PKV_F32, PKV_F32, i % 3 + 1);
    }
}

static void sharing_holds_for_every_dtype(void)
{
    struct test_random random = {test_seed() + 1};
    const enum pkv_dtype dtypes[] = {PKV_F16, PKV_BF16, PKV_F32};
    for (int32_t i = 0; i < 9; i++) {
        run_tree(&random, 16, dtypes[i / 3], dtypes[i % 3], 2);
    }
}

/* All of a batch behind one long prefix: more rows than one task takes. */
static void one_prefix_under_all_rows_is_shared_by_all(void)
{
    struct test_random random = {test_seed() + 2};
    struct tree t = {.num_rows = MAX_ROWS, .block_size = 16, .max_blocks = 80};
    int32_t *table = calloc((size_t)MAX_ROWS * 80, sizeof table[0]);
    t.table = table;
    t.num_blocks = 72 + MAX_ROWS;
    for (int32_t r = 0; r < MAX_ROWS; r++) {
        for (int32_t i = 0; i < 80; i++) {
            table[r * 80 + i] = i < 72 ? i : i == 72 ? 72 + r : -1;
        }
        t.kv_lens[r] = 72 * 16 + 1 + r % 16;
    }
    const size_t cells = (size_t)t.num_blocks * 16 * KV_HEADS * WIDTH;
    t.k = random_floats(&random, PKV_F32, cells);
    t.v = random_floats(&random, PKV_F32, cells);
    t.q = random_floats(&random, PKV_F32, MAX_ROWS * WIDTH * HEADS);
    t.new_k = random_floats(&random, PKV_F32, MAX_ROWS * WIDTH * KV_HEADS);
    t.new_v = random_floats(&random, PKV_F32, MAX_ROWS * WIDTH * KV_HEADS);
    t.out = calloc(MAX_ROWS * WIDTH * HEADS, 4);
    t.alone = calloc(HEADS * WIDTH, 4);
    check_tree(&t, 2);
    void *arrays[] = {table, t.k, t.v, t.q, t.new_k, t.new_v, t.out, t.alone};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        free(arrays[i]);
    }
}

static const struct test_case cases[] = {
    TEST(rows_that_share_blocks_have_the_bits_they_have_alone),
    TEST(sharing_holds_for_every_dtype),
    TEST(one_prefix_under_all_rows_is_shared_by_all),
    TEST_END,
};
const struct test_suite suite_shared_prefix = {"shared_prefix", cases};
