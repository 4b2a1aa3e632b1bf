/* SPDX-License-Identifier: MIT
 *
 * Sliding windows: what is attended, what is released, and how far one can rewind. Blocks that
 * were released hold NaN, so a key read one block too far shows; one released too early is -1.
 */
#include <string.h>

#include "support/runtime_case.h"

static const int32_t tokens[CASE_MAX_LENGTH];

/* One group with this window and prefix; sequences keep the last max_rewind tokens. */
static void open_window(struct runtime_case *c, int32_t block_size, int64_t window, int64_t prefix,
                        int32_t num_blocks)
{
    case_init(c);
    c->groups[0].block_size = block_size;
    c->groups[0].sliding_window = window;
    c->groups[0].kept_prefix = prefix;
    c->groups[0].num_blocks = num_blocks;
    case_open(c);
}

static void create_rewindable(struct runtime_case *c, struct case_seq *seq, int32_t max_rewind)
{
    const struct pkv_seq_options options = {.size = sizeof options, .max_rewind = max_rewind};
    ASSERT_STATUS(PKV_OK, case_create(c, seq, &options));
}

/* Appends tokens one by one whose value is their position, with keys and queries of 0; what the
 * last one got, the plain mean of the positions it sees. The cache has width 1. */
static float append_positions(struct runtime_case *c, pkv_seq seq, int32_t first, int32_t end)
{
    float out = -1;
    for (int32_t p = first; p < end; p++) {
        const float zero = 0;
        const float value = (float)p;
        pkv_step step = {0};
        const struct pkv_batch batch = {.size = sizeof batch,
                                        .seqs = &seq,
                                        .num_rows = 1,
                                        .num_required_rows = 1,
                                        .token_ids = tokens};
        const struct pkv_layer_io io = {
            .size = sizeof io, .q = &zero, .k = &zero, .v = &value, .out = &out};
        ASSERT_STATUS(PKV_OK, pkv_step_begin(c->cache, &batch, &step, NULL));
        ASSERT_STATUS(PKV_OK, pkv_step_attend(c->cache, step, 0, &io));
        ASSERT_STATUS(PKV_OK, pkv_step_commit(c->cache, step, NULL));
    }
    return out;
}

static float mean_of_positions(int32_t block_size, int64_t window, int64_t prefix, int32_t ctx)
{
    struct runtime_case c;
    pkv_seq seq = {0};
    case_init(&c);
    c.groups[0].k_width = 1;
    c.groups[0].block_size = block_size;
    c.groups[0].sliding_window = window;
    c.groups[0].kept_prefix = prefix;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, pkv_seq_create(c.cache, NULL, &seq));
    const float mean = append_positions(&c, seq, 0, ctx);
    case_close(&c);
    return mean;
}

/* The means are of at most 6 integers below 64: exact but for one division, rounded to f32. */
#define ASSERT_MEAN(expected, mean) CU_ASSERT_DOUBLE_EQUAL((double)(mean), expected, 64 * 0x1p-22)

/* F1: a window of W keys counts the key of the query itself. */
static void a_window_counts_the_querys_own_key(void)
{
    ASSERT_MEAN(1.0, mean_of_positions(4, 4, 0, 3));
    ASSERT_MEAN(1.5, mean_of_positions(4, 4, 0, 4));
    ASSERT_MEAN(2.5, mean_of_positions(4, 4, 0, 5));
    ASSERT_MEAN(5.0, mean_of_positions(4, 1, 0, 6));
    ASSERT_MEAN((0 + 4 + 5) / 3.0, mean_of_positions(4, 2, 1, 6));
    ASSERT_MEAN(2.5, mean_of_positions(4, 2, 5, 6));
}

/* F8: the window begins at its key; one that is rounded to blocks would give 22.5. */
static void the_mask_is_exact_inside_a_block(void)
{
    ASSERT_MEAN(27.0, mean_of_positions(16, 5, 0, 30));
}

/* One (block size, window): ten prefixes side by side, one token a step. */
static void run_ten_prefixes(int32_t block_size, int32_t window, bool mean)
{
    static struct case_seq seqs[10];
    struct runtime_case c;
    case_init(&c);
    c.mean = mean;
    c.config.max_seqs = 10;
    c.groups[0].k_width = 1;
    c.groups[0].block_size = block_size;
    c.groups[0].sliding_window = window;
    c.groups[0].num_blocks = 10 * 61;
    case_open(&c);
    for (int64_t prefix = 0; prefix < 10; prefix++) {
        const struct pkv_seq_options options = {.size = sizeof options, .kept_prefix = &prefix};
        ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[prefix], &options));
    }
    for (int32_t ctx = 1; ctx <= 60; ctx++) {
        struct case_step step = {0};
        int32_t resident = 0;
        for (int32_t prefix = 0; prefix < 10; prefix++) {
            case_row(&step, &seqs[prefix], 1);
            resident += case_resident_blocks(ctx, block_size, window, prefix, 0);
        }
        ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 10));
        case_attend_all(&c, &step);
        case_commit(&c, &step, NULL);
        CU_ASSERT_EQUAL(case_held(&c, 0), resident);
    }
    case_close(&c);
}

/* F2: what is released is never attended, and what is attended is never released. */
static void reclaim_and_attention_agree_for_every_block_size_window_and_prefix(void)
{
    for (int32_t block_size = 1; block_size <= 8; block_size++) {
        for (int32_t window = 1; window <= 20; window++) {
            run_ten_prefixes(block_size, window, true);
            run_ten_prefixes(block_size, window, false);
        }
    }
}

/* Blocks past what a step keeps, and blocks below its window, go back in one commit. */
static void reclaim_follows_the_tokens_that_stay(void)
{
    static struct case_seq seq;
    for (int32_t keep = 0; keep <= 11; keep++) {
        struct runtime_case c;
        struct case_step step = {0};
        open_window(&c, 3, 5, 2, 16);
        ASSERT_STATUS(PKV_OK, case_create(&c, &seq, NULL));
        ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 10));
        case_row(&step, &seq, 11);
        ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 1));
        case_attend_all(&c, &step);
        case_commit(&c, &step, &keep);
        CU_ASSERT_EQUAL(case_held(&c, 0), case_resident_blocks(10 + keep, 3, 5, 2, 0));
        ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 4));
        case_close(&c);
    }
}

/* F4: positions are absolute for ever, and what is attended stays the bytes that were written. */
static void attended_keys_keep_their_bytes(void)
{
    static struct case_seq seq;
    struct runtime_case c;
    struct pkv_kv_view view;
    int32_t table[16];
    open_window(&c, 4, 3, 2, 16);
    ASSERT_STATUS(PKV_OK, case_create(&c, &seq, NULL));
    ASSERT_STATUS(PKV_OK, pkv_cache_view(c.cache, 0, &view));
    while (seq.length < 40) {
        ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 1));
        case_table(&c, &seq, 0, table, 16);
        for (int32_t j = 0; j < seq.length; j++) {
            if (j >= 2 && j <= seq.length - 3) {
                continue;
            }
            float k[2], v[2];
            CU_ASSERT_FATAL(table[j / 4] >= 0);
            memcpy(k, case_cell(&view, false, table[j / 4], 0, j % 4), sizeof k);
            memcpy(v, case_cell(&view, true, table[j / 4], 0, j % 4), sizeof v);
            for (int32_t d = 0; d < 2; d++) {
                CU_ASSERT_EQUAL((double)k[d], case_value(seq.tags[j], 0, 0, 0, d));
                CU_ASSERT_EQUAL((double)v[d], case_value(seq.tags[j], 0, 1, 0, d));
            }
        }
    }
    case_close(&c);
}

/* F5, E6: the bits of the last token do not depend on the chunks in which the tokens before it
 * came. */
static void prefill_and_decode_give_the_same_bits(void)
{
    static struct case_seq seq;
    static const int32_t chunks[] = {20, 1, 3, 7, 19};
    for (int32_t window = 0; window <= 8; window += 4) {
        uint64_t expected = 0;
        for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
            struct runtime_case c;
            uint64_t digest = 0;
            open_window(&c, 4, window, 0, 16);
            ASSERT_STATUS(PKV_OK, case_create(&c, &seq, NULL));
            while (seq.length < 20) {
                const int32_t left = 20 - seq.length;
                digest = case_append_digest(&c, &seq, chunks[i] < left ? chunks[i] : left);
            }
            expected = i == 0 ? digest : expected;
            CU_ASSERT_EQUAL(digest, expected);
            case_close(&c);
        }
    }
}

/* F6: a truncation goes as far as the keys that it needs are mapped. Blocks 0..2 are released and
 * block 3 is kept, because max_rewind is 3. */
static void a_window_rewinds_as_far_as_its_keys_are_resident(void)
{
    static struct case_seq seq;
    struct runtime_case c;
    int32_t table[6];
    open_window(&c, 4, 8, 0, 16);
    create_rewindable(&c, &seq, 3);
    ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 24));
    case_table(&c, &seq, 0, table, 6);
    CU_ASSERT(table[0] == -1 && table[1] == -1 && table[2] == -1 && table[3] >= 0);
    ASSERT_STATUS(PKV_NOT_RESIDENT, case_truncate(&c, &seq, 18));
    CU_ASSERT_EQUAL(case_length(&c, seq.handle), 24);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &seq, 21));
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &seq, 19)); /* past max_rewind, and resident */
    ASSERT_REFUSED(PKV_NOT_RESIDENT, "19", case_truncate(&c, &seq, 18));
    ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 6));
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &seq, 0));
    CU_ASSERT_EQUAL(case_held(&c, 0), 0);
    ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 13));
    case_close(&c);
}

/* C7: a sequence has one length, and a refused truncation leaves it as it was. */
static void a_refused_truncation_leaves_the_sequence_usable(void)
{
    static struct case_seq seq;
    struct runtime_case c;
    open_window(&c, 2, 4, 0, 16);
    ASSERT_STATUS(PKV_OK, case_create(&c, &seq, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 20));
    ASSERT_REFUSED(PKV_NOT_RESIDENT, "19", case_truncate(&c, &seq, 6));
    CU_ASSERT_EQUAL(case_length(&c, seq.handle), 20);
    ASSERT_STATUS(PKV_NOT_RESIDENT, case_truncate(&c, &seq, 18));
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &seq, 19));
    ASSERT_STATUS(PKV_NOT_RESIDENT, case_truncate(&c, &seq, 18));
    ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 1));
    ASSERT_STATUS(PKV_NOT_RESIDENT, case_truncate(&c, &seq, 6));
    ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 1)); /* the next append at 20 */
    CU_ASSERT_EQUAL(case_length(&c, seq.handle), 21);
    case_close(&c);
}

/* F7: a block that is wider than the window is kept while it holds the newest key. */
static void the_block_of_the_last_key_is_never_reclaimed(void)
{
    static struct case_seq seq;
    struct runtime_case c;
    int32_t table[3];
    open_window(&c, 16, 4, 0, 4);
    ASSERT_STATUS(PKV_OK, case_create(&c, &seq, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 16));
    while (seq.length < 40) {
        ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 1));
        case_table(&c, &seq, 0, table, 3);
        CU_ASSERT(table[(seq.length - 1) / 16] >= 0);
    }
    case_close(&c);
}

/* A constant number of pages, within ceil((W + m + q) / bs) + 1 and the prefix's. */
static void an_endless_stream_holds_a_constant_number_of_pages(void)
{
    static struct case_seq seq;
    for (int32_t chunk = 1; chunk <= 5; chunk += 4) {
        struct runtime_case c;
        const int32_t bound = (8 + 2 + chunk + 3) / 4 + 1 + 1;
        int32_t most[2] = {0, 0};
        case_init(&c);
        c.mean = true;
        c.groups[0].sliding_window = 8;
        c.groups[0].kept_prefix = 3;
        c.groups[0].num_blocks = bound;
        c.config.max_seq_len = CASE_MAX_LENGTH;
        case_open(&c);
        create_rewindable(&c, &seq, 2);
        for (int32_t i = 0; i < 1500 / chunk; i++) {
            const enum pkv_status status = case_append(&c, &seq, chunk);
            CU_ASSERT_EQUAL_FATAL(status, PKV_OK);
            const int32_t half = seq.length > 750;
            const int32_t held = case_held(&c, 0);
            most[half] = held > most[half] ? held : most[half];
        }
        CU_ASSERT_EQUAL(most[0], most[1]);
        CU_ASSERT(most[1] <= bound);
        case_close(&c);
    }
}

/* From each new greatest length, in one piece or in single tokens. */
static void rewinding_within_max_rewind_always_succeeds(void)
{
    static struct case_seq seq;
    struct test_random random = {test_seed()};
    for (int32_t round = 0; round < 5 * 10 * 7; round++) {
        const int32_t block_size = 1 + round % 5;
        const int32_t window = 1 + round / 5 % 10;
        const int32_t max_rewind = round / 50;
        struct runtime_case c;
        open_window(&c, block_size, window, round % 3, 64);
        create_rewindable(&c, &seq, max_rewind);
        ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 1));
        while (seq.length < 50) {
            const int32_t total = random_between(&random, 0, max_rewind);
            const int32_t back = total < seq.length ? total : seq.length;
            const int32_t pieces = random_between(&random, 0, 1) ? back : back > 0;
            for (int32_t i = 0; i < pieces; i++) {
                const int32_t by = pieces == back ? 1 : back;
                ASSERT_STATUS(PKV_OK, case_truncate(&c, &seq, seq.length - by));
            }
            ASSERT_STATUS(PKV_OK, case_append(&c, &seq, back + random_between(&random, 1, 4)));
            CU_ASSERT_EQUAL(case_held(&c, 0), case_resident_blocks(seq.length, block_size, window,
                                                                   round % 3, max_rewind));
        }
        case_close(&c);
    }
}

/* Which truncations succeed is residency alone: [0, min(P, n)) and [n - W + 1, n). */
static void every_truncation_is_allowed_exactly_when_its_keys_are_there(void)
{
    static struct case_seq seq;
    for (int32_t round = 0; round < 4 * 9 * 4; round++) {
        const int32_t block_size = 1 + round % 4;
        const int32_t window = 1 + round / 4 % 9;
        const int32_t prefix = round / 36 * 3;
        struct runtime_case c;
        open_window(&c, block_size, window, prefix, 64);
        for (int32_t n = 0; n <= 23; n++) {
            int32_t table[24];
            bool is_resident = true;
            ASSERT_STATUS(PKV_OK, case_create(&c, &seq, NULL));
            ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 23));
            case_table(&c, &seq, 0, table, (24 + block_size - 1) / block_size);
            for (int32_t j = 0; j < n; j++) {
                const bool is_seen = j < prefix || j > n - window;
                is_resident = is_resident && (!is_seen || table[j / block_size] >= 0);
            }
            ASSERT_STATUS(is_resident || n == 0 ? PKV_OK : PKV_NOT_RESIDENT,
                          case_truncate(&c, &seq, n));
            CU_ASSERT_EQUAL(case_check(&c), 0);
            ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 3));
            ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 1));
            ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seq.handle));
            CU_ASSERT_EQUAL(case_held(&c, 0), 0);
        }
        case_close(&c);
    }
}

/* A long request in a small window pool: what it can hold at once is what it needs. */
static void admission_reserves_what_a_window_row_can_hold_at_once(void)
{
    static struct case_seq seq;
    struct runtime_case c;
    struct pkv_admission admission = {.size = sizeof admission};
    struct pkv_shortage shortage = {.size = sizeof shortage};
    case_init(&c);
    c.config.max_step_tokens = 8;
    c.groups[0].sliding_window = 5;
    c.groups[0].num_blocks = 6;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &seq, NULL));
    ASSERT_STATUS(PKV_OK, pkv_seq_admit(c.cache, seq.handle, PROMPT(tokens, 40), 20, 0, &admission,
                                        &shortage));
    CU_ASSERT_EQUAL(admission.num_blocks, 2);
    CU_ASSERT_EQUAL(case_held(&c, 0), 4); /* a step of 8 tokens: 12 keys from the last of a block */
    while (seq.length < 60) {
        const int32_t left = 60 - seq.length;
        ASSERT_STATUS(PKV_OK, case_append(&c, &seq, left < 8 ? left : 8));
        CU_ASSERT_EQUAL(case_check(&c), 0);
    }
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seq.handle));
    CU_ASSERT_EQUAL(case_held(&c, 0), 0);
    case_close(&c);
}

/* F9: each layer sees its own group's window in the same step, also one that is longer than any
 * sequence. */
static void groups_with_several_windows_share_a_step(void)
{
    static struct case_seq a, b;
    struct runtime_case c;
    const int64_t windows[4] = {0, 3, 7, (int64_t)1 << 40};
    case_init(&c);
    for (int32_t g = 1; g < 4; g++) {
        struct pkv_group_config *group = case_add_group(&c);
        group->sliding_window = windows[g];
        group->block_size = 1 + g;
        group->num_blocks = 64;
        case_add_layer(&c, g);
    }
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_create(&c, &b, NULL));
    while (a.length < 30) {
        struct case_step step = {0};
        case_row(&step, &a, 2);
        case_row(&step, &b, 1);
        ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 2));
        case_attend_all(&c, &step);
        case_commit(&c, &step, NULL);
        CU_ASSERT_EQUAL(case_held(&c, 3), (a.length + 3) / 4 + (b.length + 3) / 4);
        CU_ASSERT_EQUAL(case_held(&c, 1), case_resident_blocks(a.length, 2, 3, 0, 0) +
                                              case_resident_blocks(b.length, 2, 3, 0, 0));
    }
    case_close(&c);
}

/* A slot keeps its cells, so a window there only masks and every rewind succeeds. */
static void a_continuous_window_masks_and_rewinds_freely(void)
{
    static struct case_seq seq;
    struct runtime_case c;
    case_init(&c);
    c.groups[0].storage = PKV_STORAGE_CONTINUOUS;
    c.groups[0].sliding_window = 5;
    c.groups[0].kept_prefix = 2;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &seq, NULL));
    for (int32_t n = 40; n >= 0; n -= 5) {
        ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 41 - seq.length));
        ASSERT_STATUS(PKV_OK, case_truncate(&c, &seq, n));
        ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 1));
    }
    CU_ASSERT_EQUAL(case_held(&c, 0), 1);
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(a_window_counts_the_querys_own_key),
    TEST(the_mask_is_exact_inside_a_block),
    TEST(reclaim_and_attention_agree_for_every_block_size_window_and_prefix),
    TEST(reclaim_follows_the_tokens_that_stay),
    TEST(attended_keys_keep_their_bytes),
    TEST(prefill_and_decode_give_the_same_bits),
    TEST(a_window_rewinds_as_far_as_its_keys_are_resident),
    TEST(a_refused_truncation_leaves_the_sequence_usable),
    TEST(the_block_of_the_last_key_is_never_reclaimed),
    TEST(an_endless_stream_holds_a_constant_number_of_pages),
    TEST(rewinding_within_max_rewind_always_succeeds),
    TEST(every_truncation_is_allowed_exactly_when_its_keys_are_there),
    TEST(admission_reserves_what_a_window_row_can_hold_at_once),
    TEST(groups_with_several_windows_share_a_step),
    TEST(a_continuous_window_masks_and_rewinds_freely),
    TEST_END,
};
const struct test_suite suite_runtime_window = {"runtime_window", cases};
