/* SPDX-License-Identifier: MIT
 *
 * What comes back from a tier is what went there, bit by bit, in every dtype and shape: the cells
 * of the blocks, and what a sequence computes that goes on from them. */
#include <string.h>

#include "tests/tiers/disk_case.h"
#include "tier_case.h"

enum { LENGTH = 27, MORE = 6 };

static struct prefix_seq x, y;

struct shape {
    const char *name;
    int64_t window, kept_prefix;
    int32_t block_size, kv_heads, max_rewind;
    bool v_in_k, has_second, has_extra;
};

static const struct shape shapes[] = {
    {"plain", 0, 0, 4, 2, 0, false, false, false},
    {"blocks of one token", 0, 0, 1, 1, 0, false, false, false},
    {"blocks of five, extras", 0, 0, 5, 2, 0, false, false, true},
    {"window, kept prefix", 6, 5, 4, 1, 0, false, false, false},
    {"window, max_rewind", 5, 0, 4, 2, 3, false, false, false},
    {"v in k", 0, 0, 4, 1, 0, true, false, false},
    {"two groups", 7, 0, 3, 2, 2, false, true, true},
};

static const enum pkv_dtype dtypes[] = {PKV_F32, PKV_F16, PKV_BF16, PKV_INT8, PKV_E4M3};
enum { NUM_DTYPES = sizeof dtypes / sizeof dtypes[0] };

static void set_scales(struct runtime_case *c, enum pkv_dtype k_dtype, enum pkv_dtype v_dtype)
{
    static const float scale = 1.0f / 64;
    for (int32_t i = 0; i < c->config.num_layers; i++) {
        struct pkv_attn_constants *constants = &c->layers[i].constants;
        if (pkv_dtype_bytes(k_dtype) == 1) {
            constants->k_scale = &scale;
            constants->k_scale_count = 1;
        }
        if (pkv_dtype_bytes(v_dtype) == 1 && !c->groups[0].v_in_k) {
            constants->v_scale = &scale;
            constants->v_scale_count = 1;
        }
    }
}

static void open_shape(struct runtime_case *c, const struct shape *shape, enum pkv_dtype k_dtype,
                       enum pkv_dtype v_dtype, pkv_tier *const *tiers)
{
    prefix_init(c);
    c->groups[0].kv_heads = shape->kv_heads;
    c->groups[0].k_width = 4;
    c->groups[0].v_width = 3;
    c->groups[0].v_in_k = shape->v_in_k;
    c->groups[0].block_size = shape->block_size;
    c->groups[0].num_blocks = 64;
    c->groups[0].k_dtype = k_dtype;
    c->groups[0].v_dtype = v_dtype;
    c->layers[0].num_heads = 2 * shape->kv_heads;
    (void)case_add_layer(c, 0);
    if (shape->has_second) {
        case_add_group(c)->kv_heads = 1;
        (void)case_add_layer(c, 1);
    }
    c->groups[0].sliding_window = shape->window;
    c->groups[0].kept_prefix = shape->kept_prefix;
    set_scales(c, k_dtype, v_dtype);
    c->config.tiers = tiers;
    c->config.num_tiers = 1;
    c->config.max_store_blocks = 64;
    case_open(c);
}

static void create(struct runtime_case *c, struct prefix_seq *seq, const struct shape *shape)
{
    const struct pkv_seq_options options = {.size = sizeof options,
                                            .max_rewind = shape->max_rewind};
    ASSERT_STATUS(PKV_OK, prefix_create(c, seq, 100, &options));
    seq->has_extra = shape->has_extra;
    for (int32_t i = 0; i < CASE_MAX_LENGTH; i++) {
        seq->extra[i] = i % 7 == 0 ? (uint64_t)i << 40 : 0;
    }
}

/* The next n ids by a step of its own; the bits that its outputs have. Keys and values follow from
 * the ids, and are no values that e4m3 has: so this does not compare with dense attention. */
static uint64_t append(struct runtime_case *c, struct prefix_seq *seq, int32_t n)
{
    static float q[4 * 4 * CASE_MAX_LENGTH], k[4 * 4 * CASE_MAX_LENGTH], v[4 * 4 * CASE_MAX_LENGTH];
    static float out[4 * 4 * CASE_MAX_LENGTH];
    const int32_t first = seq->seq.length;
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = &seq->seq.handle,
                                    .q_lens = &n,
                                    .num_rows = 1,
                                    .num_required_rows = 1,
                                    .token_ids = seq->ids + first,
                                    .token_extra = seq->has_extra ? seq->extra + first : NULL};
    uint64_t digest = 0;
    pkv_step step = {0};
    ASSERT_STATUS(PKV_OK, pkv_step_begin(c->cache, &batch, &step, NULL));
    for (int32_t layer = 0; layer < c->config.num_layers; layer++) {
        const struct pkv_group_config *group = &c->groups[c->layers[layer].group];
        struct test_random random = {(uint64_t)(seq->ids[first] + 1000 * layer)};
        const struct pkv_layer_io io = {
            .size = sizeof io, .q = q, .k = k, .v = group->v_in_k ? NULL : v, .out = out};
        for (int32_t i = 0; i < n * 16; i++) {
            q[i] = (float)random_unit(&random);
            k[i] = (float)random_unit(&random);
            v[i] = (float)random_unit(&random);
        }
        memset(out, 0, sizeof out);
        ASSERT_STATUS(PKV_OK, pkv_step_attend(c->cache, step, layer, &io));
        for (int32_t i = 0; i < n * 16; i++) {
            uint32_t bits = 0;
            memcpy(&bits, &out[i], sizeof bits);
            digest = (digest ^ bits) * 0x100000001b3u;
        }
    }
    ASSERT_STATUS(PKV_OK, pkv_step_commit(c->cache, step, NULL));
    seq->seq.length += n;
    return digest;
}

static void append_each(struct runtime_case *c, struct prefix_seq *seq, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        (void)append(c, seq, 1);
    }
}

/* Computes the first tokens in one cache, goes on from what another one loads; true when the bits
 * are those of the first going on itself. */
static bool is_the_same(const struct shape *shape, enum pkv_dtype k_dtype, enum pkv_dtype v_dtype,
                        pkv_tier *const *tiers)
{
    struct runtime_case a;
    struct runtime_case b;
    open_shape(&a, shape, k_dtype, v_dtype, tiers);
    create(&a, &x, shape);
    ASSERT_STATUS(PKV_OK, prefix_admit(&a, &x, LENGTH, MORE + 1, NULL));
    append_each(&a, &x, LENGTH + shape->max_rewind);
    tier_case_work_and_poll(&a);
    ASSERT_STATUS(PKV_OK, case_truncate(&a, &x.seq, LENGTH));
    const uint64_t expected = append(&a, &x, MORE);

    open_shape(&b, shape, k_dtype, v_dtype, tiers);
    create(&b, &y, shape);
    const pkv_ticket ticket = tier_case_prefetch(&b, &y, LENGTH);
    const struct pkv_ticket_info info = tier_case_wait(&b, ticket);
    CU_ASSERT(info.num_loaded > 0);
    CU_ASSERT_EQUAL(info.num_cached, (LENGTH - 1) / shape->block_size * shape->block_size);
    ASSERT_STATUS(PKV_OK, prefix_admit(&b, &y, LENGTH, MORE + 1, NULL));
    CU_ASSERT_EQUAL(y.seq.length, info.num_cached);
    tier_case_close_ticket(&b, ticket);
    append_each(&b, &y, LENGTH - y.seq.length);
    const uint64_t found = append(&b, &y, MORE);
    prefix_destroy(&a, &x);
    prefix_destroy(&b, &y);
    ASSERT_STATUS(PKV_OK, pkv_tier_flush(a.cache, UINT64_MAX, NULL));
    ASSERT_STATUS(PKV_OK, pkv_tier_flush(b.cache, UINT64_MAX, NULL));
    case_close(&a);
    case_close(&b);
    return found == expected;
}

static void every_dtype_and_shape_comes_back_bit_by_bit(void)
{
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (int pair = 0; pair < NUM_DTYPES * NUM_DTYPES; pair++) {
            const enum pkv_dtype k_dtype = dtypes[pair / NUM_DTYPES];
            const enum pkv_dtype v_dtype = dtypes[pair % NUM_DTYPES];
            if (shapes[s].v_in_k && v_dtype != k_dtype) {
                continue;
            }
            memory_tier_open(&tier_memory, "memory");
            ASSERT_CASE(shapes[s].name,
                        is_the_same(&shapes[s], k_dtype, v_dtype, &tier_memory.tier));
            memory_tier_close(&tier_memory);
        }
    }
}

static void the_disk_tier_gives_the_same_bits(void)
{
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        struct disk_case disk;
        disk_case_open(&disk, 1 << 24, NULL);
        ASSERT_CASE(shapes[s].name,
                    is_the_same(&shapes[s], dtypes[s % NUM_DTYPES],
                                dtypes[(s + !shapes[s].v_in_k) % NUM_DTYPES], &disk.tier));
        disk_case_close(&disk);
    }
}

static const struct test_case cases[] = {
    TEST(every_dtype_and_shape_comes_back_bit_by_bit),
    TEST(the_disk_tier_gives_the_same_bits),
    TEST_END,
};

const struct test_suite suite_runtime_tiers_bits = {"runtime_tiers_bits", cases};
