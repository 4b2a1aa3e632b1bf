/* SPDX-License-Identifier: MIT
 *
 * Save and load: what comes back is what went. */
#include <string.h>

#include "runtime/save_case.h"

enum { LENGTH = 21, MORE = 5, TEXT = 7 };

static struct save_bytes bytes;

/* Saves a sequence, loads it, and goes on with both: the same length and the same bits. */
static void round_trip(struct runtime_case *c, pkv_seq seq, int32_t text)
{
    pkv_seq loaded = {0};
    const int32_t length = case_length(c, seq);
    ASSERT_STATUS(PKV_OK, save_to(c, seq, &bytes));
    ASSERT_STATUS(PKV_OK, save_load(c, &bytes, &loaded, NULL));
    CU_ASSERT_EQUAL(case_length(c, loaded), length);
    CU_ASSERT_EQUAL(case_check(c), 0);
    const uint64_t expected = save_run(c, seq, text, MORE);
    CU_ASSERT_EQUAL(save_run(c, loaded, text, MORE), expected);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c->cache, loaded));
    CU_ASSERT_EQUAL(case_check(c), 0);
}

/* The first sequence of a cache after `length` tokens, round and round. */
static void round_trip_at(struct runtime_case *c, const struct pkv_seq_options *options,
                          int32_t length)
{
    const pkv_seq seq = save_seq(c, options, TEXT, length);
    round_trip(c, seq, TEXT);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c->cache, seq));
}

static void every_pair_of_dtypes_goes_on_with_the_same_bits(void)
{
    for (int k = PKV_F32; k <= PKV_E4M3; k++) {
        for (int v = PKV_F32; v <= PKV_E4M3; v++) {
            struct runtime_case c;
            case_init(&c);
            c.groups[0].kv_heads = 2;
            c.groups[0].k_width = 6;
            c.groups[0].v_width = 4;
            c.layers[0].num_heads = 2;
            save_open(&c, (enum pkv_dtype)k, (enum pkv_dtype)v);
            round_trip_at(&c, NULL, LENGTH);
            case_close(&c);
        }
    }
    save_bytes_free(&bytes);
}

/* Lengths around blocks, and 0. */
static void partial_blocks_come_back_cell_by_cell(void)
{
    for (int32_t length = 0; length <= 9; length++) {
        struct runtime_case c;
        case_init(&c);
        save_open(&c, PKV_F16, PKV_BF16);
        round_trip_at(&c, NULL, length);
        case_close(&c);
    }
    save_bytes_free(&bytes);
}

static void windows_come_back_with_their_holes(void)
{
    static const int32_t windows[] = {1, 2, 4, 7, 8};
    for (size_t w = 0; w < sizeof windows / sizeof windows[0]; w++) {
        for (int32_t length = 1; length <= 30; length++) {
            struct runtime_case c;
            const int64_t own = length % 3 == 0 ? 6 : 0;
            const struct pkv_seq_options options = {
                .size = sizeof options,
                .kept_prefix = length % 2 == 0 ? &own : NULL,
                .max_rewind = length % 5,
            };
            case_init(&c);
            c.groups[0].num_blocks = 32;
            struct pkv_group_config *group = case_add_group(&c);
            group->sliding_window = windows[w];
            group->kept_prefix = length % 4;
            (void)case_add_layer(&c, 1);
            save_open(&c, PKV_F32, PKV_F16);
            round_trip_at(&c, &options, length);
            case_close(&c);
        }
    }
    save_bytes_free(&bytes);
}

/* What a window released is in no file, and takes no block of who loads it. */
static void what_a_window_released_is_not_saved(void)
{
    struct runtime_case c;
    pkv_seq loaded = {0};
    case_init(&c);
    c.groups[0].sliding_window = 4;
    save_open(&c, PKV_F32, PKV_F32);
    const pkv_seq seq = save_seq(&c, NULL, TEXT, 33);
    const int32_t held = case_taken(&c, 0);
    CU_ASSERT(held <= 3);
    ASSERT_STATUS(PKV_OK, save_to(&c, seq, &bytes));
    CU_ASSERT(bytes.count < 1500);
    ASSERT_STATUS(PKV_OK, save_load(&c, &bytes, &loaded, NULL));
    CU_ASSERT_EQUAL(case_taken(&c, 0), 2 * held);
    case_close(&c);
    save_bytes_free(&bytes);
}

static void continuous_groups_and_values_in_keys_come_back(void)
{
    for (int i = 0; i < 4; i++) {
        struct runtime_case c;
        case_init(&c);
        c.groups[0].k_width = 6;
        c.groups[0].v_width = 4;
        c.groups[0].v_in_k = i % 2 == 1;
        c.groups[0].storage = i >= 2 ? PKV_STORAGE_CONTINUOUS : PKV_STORAGE_PAGED;
        struct pkv_group_config *other = case_add_group(&c);
        other->sliding_window = 6;
        (void)case_add_layer(&c, 1);
        save_open(&c, PKV_BF16, PKV_BF16);
        round_trip_at(&c, NULL, LENGTH);
        round_trip_at(&c, NULL, 0);
        case_close(&c);
    }
    save_bytes_free(&bytes);
}

/* The saved sequence is as it was, and so is every sharer of its blocks. */
static void forks_are_saved_with_what_they_share(void)
{
    struct runtime_case c;
    pkv_seq child = {0}, loaded = {0};
    case_init(&c);
    c.groups[0].num_blocks = 64;
    save_open(&c, PKV_F16, PKV_F16);
    const pkv_seq parent = save_seq(&c, NULL, TEXT, LENGTH);
    ASSERT_STATUS(PKV_OK, pkv_seq_fork(c.cache, parent, 14, 1, &child));
    ASSERT_STATUS(PKV_OK, save_to(&c, child, &bytes));
    (void)save_run(&c, parent, TEXT, MORE);
    ASSERT_STATUS(PKV_OK, save_load(&c, &bytes, &loaded, NULL));
    CU_ASSERT_EQUAL(case_length(&c, loaded), 14);
    const uint64_t expected = save_run(&c, child, TEXT + 1, MORE);
    CU_ASSERT_EQUAL(save_run(&c, loaded, TEXT + 1, MORE), expected);
    round_trip(&c, parent, TEXT);
    case_close(&c);
    save_bytes_free(&bytes);
}

/* A hit that ends inside a block is saved before its first step has made the copy. */
static void a_hit_that_was_not_copied_yet_is_saved(void)
{
    struct runtime_case c;
    pkv_seq seq = {0};
    int32_t ids[32];
    struct pkv_admission admission = {.size = sizeof admission};
    case_init(&c);
    c.config.prefix_cache = true;
    c.groups[0].num_blocks = 64;
    save_open(&c, PKV_F32, PKV_F32);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, save_seq(&c, NULL, TEXT, LENGTH)));
    save_ids(TEXT, 32, ids);
    ASSERT_STATUS(PKV_OK, pkv_seq_create(c.cache, NULL, &seq));
    ASSERT_STATUS(PKV_OK, pkv_seq_admit(c.cache, seq, PROMPT(ids, 20), 0, 20, &admission, NULL));
    CU_ASSERT(admission.num_copied == 3 && admission.num_cached == 19);
    round_trip(&c, seq, TEXT);
    case_close(&c);
    save_bytes_free(&bytes);
}

static void a_rewind_goes_as_far_after_a_load(void)
{
    struct runtime_case c;
    pkv_seq loaded = {0};
    const struct pkv_seq_options options = {.size = sizeof options, .max_rewind = 5};
    struct pkv_seq_info info = {.size = sizeof info};
    case_init(&c);
    c.groups[0].num_blocks = 64;
    c.groups[0].sliding_window = 6;
    save_open(&c, PKV_F32, PKV_F32);
    const pkv_seq seq = save_seq(&c, &options, TEXT, 30);
    ASSERT_STATUS(PKV_OK, save_to(&c, seq, &bytes));
    ASSERT_STATUS(PKV_OK, save_load(&c, &bytes, &loaded, NULL));
    ASSERT_STATUS(PKV_OK, pkv_seq_describe(c.cache, loaded, &info, NULL));
    CU_ASSERT_EQUAL(info.max_rewind, 5);
    ASSERT_STATUS(PKV_OK, pkv_seq_truncate(c.cache, loaded, 25));
    ASSERT_STATUS(PKV_OK, pkv_seq_truncate(c.cache, seq, 25));
    round_trip(&c, seq, TEXT);
    case_close(&c);
    save_bytes_free(&bytes);
}

/* The other cache has more of everything that may differ. */
static void another_cache_of_the_same_model_takes_it(void)
{
    struct runtime_case c, other;
    pkv_seq loaded = {0};
    case_init(&c);
    save_open(&c, PKV_INT8, PKV_E4M3);
    const pkv_seq seq = save_seq(&c, NULL, TEXT, LENGTH);
    ASSERT_STATUS(PKV_OK, save_to(&c, seq, &bytes));
    case_init(&other);
    other.groups[0].num_blocks = 100;
    other.config.max_seqs = 3;
    other.config.max_seq_len = 200;
    save_open(&other, PKV_INT8, PKV_E4M3);
    ASSERT_STATUS(PKV_OK, save_load_stream(&other, &bytes, &loaded, NULL));
    CU_ASSERT_EQUAL(bytes.next, bytes.count);
    CU_ASSERT_EQUAL(save_run(&c, seq, TEXT, MORE), save_run(&other, loaded, TEXT, MORE));
    case_close(&other);
    case_close(&c);
    save_bytes_free(&bytes);
}

/* Cells behind the committed ones hold NaN here, as fresh pages do: none of them is in the file. */
static void unused_cells_never_leave_the_process(void)
{
    static const unsigned char nan[8] = {255, 255, 255, 255, 255, 255, 255, 255};
    struct runtime_case c;
    case_init(&c);
    save_open(&c, PKV_F32, PKV_F32);
    const pkv_seq seq = save_seq(&c, NULL, TEXT, LENGTH);
    ASSERT_STATUS(PKV_OK, save_to(&c, seq, &bytes));
    int count = 0;
    for (size_t i = 0; i + sizeof nan <= bytes.count; i++) {
        count += memcmp(bytes.at + i, nan, sizeof nan) == 0;
    }
    CU_ASSERT_EQUAL(count, 1); /* kept_prefix of none */
    case_close(&c);
    save_bytes_free(&bytes);
}

static const struct test_case cases[] = {
    TEST(every_pair_of_dtypes_goes_on_with_the_same_bits),
    TEST(partial_blocks_come_back_cell_by_cell),
    TEST(windows_come_back_with_their_holes),
    TEST(what_a_window_released_is_not_saved),
    TEST(continuous_groups_and_values_in_keys_come_back),
    TEST(forks_are_saved_with_what_they_share),
    TEST(a_hit_that_was_not_copied_yet_is_saved),
    TEST(a_rewind_goes_as_far_after_a_load),
    TEST(another_cache_of_the_same_model_takes_it),
    TEST(unused_cells_never_leave_the_process),
    TEST_END,
};
const struct test_suite suite_runtime_save = {"runtime_save", cases};
