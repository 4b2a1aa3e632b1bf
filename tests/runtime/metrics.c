/* SPDX-License-Identifier: MIT
 *
 * Two counters whose values can be worked out by hand: what attention reads, and how long evicted
 * blocks had been free. Block size 4, and 4 or 2 bytes a channel. A decode row of length n reads
 * n + 1 keys, its own included. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reuse_case.h"

#define SPAN 512      /* keys that rows share as a whole or not at all */
#define QUERY_ROWS 64 /* heads x tokens of a chunk of queries, at most, per KV head */

static struct case_seq seqs[CASE_MAX_ROWS];
static struct prefix_seq a, b;

/* Same numbers for all of these. */
static const int threads[] = {1, 2, 8};
#define NUM_THREADS (int)(sizeof threads / sizeof threads[0])

static uint64_t bytes_read(struct runtime_case *c)
{
    return prefix_stats(c).attention_bytes;
}

/* What a step of these rows reads, all layers. It is counted when the step ends. */
static uint64_t step_reads(struct runtime_case *c, struct case_step *step)
{
    const uint64_t before = bytes_read(c);
    ASSERT_STATUS(PKV_OK, case_begin(c, step, step->num_rows));
    case_attend_all(c, step);
    CU_ASSERT_EQUAL(bytes_read(c), before);
    case_commit(c, step, NULL);
    return bytes_read(c) - before;
}

static uint64_t row_reads(struct runtime_case *c, struct case_seq *seq, int32_t q_len)
{
    struct case_step step = {0};
    case_row(&step, seq, q_len);
    return step_reads(c, &step);
}

static void create_with(struct runtime_case *c, struct case_seq *seq, int32_t length)
{
    ASSERT_STATUS(PKV_OK, case_create(c, seq, NULL));
    ASSERT_STATUS(PKV_OK, case_append(c, seq, length));
}

/* --- attention_bytes */

static void a_decode_row_reads_its_keys_once_a_kv_head(void)
{
    for (int t = 0; t < NUM_THREADS; t++) {
        struct runtime_case c;
        struct case_step step = {0};
        case_init(&c);
        c.config.num_threads = threads[t];
        c.groups[0].kv_heads = 2;
        c.groups[0].k_width = 3;
        c.groups[0].v_width = 5;
        c.groups[0].v_dtype = PKV_BF16;
        c.layers[0].num_heads = 6;
        case_open(&c);
        CU_ASSERT_EQUAL(bytes_read(&c), 0);
        create_with(&c, &seqs[0], 5);
        create_with(&c, &seqs[1], 9);
        ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[2], NULL));
        for (int i = 0; i < 3; i++) {
            case_row(&step, &seqs[i], 1);
        }
        CU_ASSERT_EQUAL(step_reads(&c, &step), (6 + 10 + 1) * 2 * (3 * 4 + 5 * 2));
        case_close(&c);
    }
}

static void each_layer_reads_and_a_sharing_one_reads_again(void)
{
    struct runtime_case c;
    case_init(&c);
    c.groups[0].v_dtype = PKV_F16;
    case_add_group(&c)->k_width = 8;
    struct pkv_layer_config *sharing = case_add_layer(&c, 0);
    sharing->shares_kv = true;
    sharing->kv_layer = 0;
    sharing->num_heads = 3;
    case_add_layer(&c, 1);
    case_open(&c);
    create_with(&c, &seqs[0], 5);
    /* group 0: 2 layers, K 2 x f32, V 2 x f16; group 1: 1 layer, K 8 x f32, V 8 x f16 */
    CU_ASSERT_EQUAL(row_reads(&c, &seqs[0], 1), 6 * (2 * (2 * 4 + 2 * 2) + (8 * 4 + 8 * 2)));
    case_close(&c);
}

static void a_sharing_layer_may_read_several_times_in_a_step(void)
{
    struct runtime_case c;
    struct case_step step = {0};
    case_init(&c);
    struct pkv_layer_config *sharing = case_add_layer(&c, 0);
    sharing->shares_kv = true;
    sharing->kv_layer = 0;
    case_open(&c);
    create_with(&c, &seqs[0], 5);
    case_row(&step, &seqs[0], 1);
    const uint64_t before = bytes_read(&c);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 1));
    CU_ASSERT(case_attend(&c, &step, 0));
    CU_ASSERT(case_attend(&c, &step, 1));
    CU_ASSERT(case_attend(&c, &step, 1));
    case_commit(&c, &step, NULL);
    CU_ASSERT_EQUAL(bytes_read(&c), before + 3 * 6 * 16);
    case_close(&c);
}

static void values_that_lie_in_the_keys_are_not_read_twice(void)
{
    struct runtime_case c;
    case_init(&c);
    c.groups[0].k_width = 6;
    c.groups[0].v_width = 4;
    c.groups[0].v_in_k = true;
    case_open(&c);
    create_with(&c, &seqs[0], 5);
    CU_ASSERT_EQUAL(row_reads(&c, &seqs[0], 1), 6 * 6 * 4);
    case_close(&c);
}

static void a_window_row_reads_what_it_sees(void)
{
    const int64_t none = 0;
    const struct pkv_seq_options without = {.size = sizeof without, .kept_prefix = &none};
    const int32_t cell = (2 + 2) * 4;
    struct runtime_case c;
    case_init(&c);
    c.groups[0].sliding_window = 4;
    c.groups[0].kept_prefix = 2;
    case_open(&c);
    create_with(&c, &seqs[0], 2);
    CU_ASSERT_EQUAL(row_reads(&c, &seqs[0], 1), 3 * cell); /* all */
    CU_ASSERT_EQUAL(row_reads(&c, &seqs[0], 1), 4 * cell);
    CU_ASSERT_EQUAL(row_reads(&c, &seqs[0], 1), 5 * cell);
    CU_ASSERT_EQUAL(row_reads(&c, &seqs[0], 1), 6 * cell); /* 0, 1 and 2 .. 5 */
    CU_ASSERT_EQUAL(row_reads(&c, &seqs[0], 1), 6 * cell); /* 0, 1 and 3 .. 6 */
    ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[0], 12));
    CU_ASSERT_EQUAL(row_reads(&c, &seqs[0], 1), (2 + 4) * cell);
    CU_ASSERT_EQUAL(row_reads(&c, &seqs[0], 3), (2 + 4 + 2) * cell); /* of three queries */
    ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[1], &without));
    ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[1], 19));
    CU_ASSERT_EQUAL(row_reads(&c, &seqs[1], 1), 4 * cell);
    case_close(&c);
}

/* A window that begins in a span of its own: the span before it is cut, the prefix is not. */
static void a_long_window_row_reads_what_it_sees(void)
{
    for (int t = 0; t < NUM_THREADS; t++) {
        struct runtime_case c;
        case_init(&c);
        c.config.num_threads = threads[t];
        c.config.max_seq_len = 1600;
        c.config.max_step_tokens = 1600;
        c.groups[0].num_blocks = 400;
        c.groups[0].sliding_window = 600;
        c.groups[0].kept_prefix = 10;
        case_open(&c);
        create_with(&c, &seqs[0], 1500);
        CU_ASSERT_EQUAL(row_reads(&c, &seqs[0], 1), (10 + 600) * 16);
        CU_ASSERT_EQUAL(row_reads(&c, &seqs[0], 5), (10 + 604) * 16);
        case_close(&c);
    }
}

static void a_row_of_several_tokens_reads_once_a_block_of_queries(void)
{
    for (int t = 0; t < NUM_THREADS; t++) {
        struct runtime_case c;
        case_init(&c);
        c.config.num_threads = threads[t];
        c.config.max_seq_len = 128;
        c.groups[0].num_blocks = 32;
        c.layers[0].num_heads = 4; /* blocks of QUERY_ROWS / 4 = 16 queries */
        case_open(&c);
        ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[0], NULL));
        CU_ASSERT_EQUAL(row_reads(&c, &seqs[0], 7), 7 * 16);
        CU_ASSERT_EQUAL(row_reads(&c, &seqs[0], QUERY_ROWS / 4), 23 * 16);
        CU_ASSERT_EQUAL(row_reads(&c, &seqs[0], QUERY_ROWS / 4 + 1), (39 + 40) * 16);
        CU_ASSERT_EQUAL(row_reads(&c, &seqs[0], 40), (56 + 72 + 80) * 16);
        case_close(&c);
    }
}

/* More heads than a block has query rows: a query is a block. */
static void a_wide_group_reads_once_a_query(void)
{
    struct runtime_case c;
    case_init(&c);
    c.layers[0].num_heads = QUERY_ROWS + 1;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[0], NULL));
    CU_ASSERT_EQUAL(row_reads(&c, &seqs[0], 3), (1 + 2 + 3) * 16);
    case_close(&c);
}

static void init_long(struct runtime_case *c, int num_threads)
{
    case_init(c);
    c->config.num_threads = num_threads;
    c->config.max_seqs = 16;
    c->config.max_seq_len = 1200;
    c->config.max_step_tokens = 1200;
    c->groups[0].num_blocks = 500;
}

static void keys_that_rows_share_are_read_once_a_span(void)
{
    for (int t = 0; t < 2 * NUM_THREADS; t++) {
        struct runtime_case c;
        struct case_step step = {0};
        init_long(&c, threads[t % NUM_THREADS]);
        c.tasks = t >= NUM_THREADS;
        case_open(&c);
        create_with(&c, &seqs[0], 1100);
        ASSERT_STATUS(PKV_OK, case_fork(&c, &seqs[0], 1100, &seqs[1]));
        ASSERT_STATUS(PKV_OK, case_fork(&c, &seqs[0], 1030, &seqs[2]));
        ASSERT_STATUS(PKV_OK, case_fork(&c, &seqs[0], 600, &seqs[3]));
        create_with(&c, &seqs[4], 700); /* a stranger */
        for (int i = 0; i < 5; i++) {
            case_row(&step, &seqs[i], 1);
        }
        /* Span 0 of four rows, span 1 of three, and what each has past those. */
        const int32_t own = (1101 - 2 * SPAN) * 2 + (1031 - 2 * SPAN) + (601 - SPAN) + 701;
        CU_ASSERT_EQUAL(step_reads(&c, &step), (uint64_t)(SPAN + SPAN + own) * 16);
        case_close(&c);
    }
}

static void less_than_a_span_is_read_by_each(void)
{
    struct runtime_case c;
    init_long(&c, 1);
    case_open(&c);
    create_with(&c, &seqs[0], SPAN);
    ASSERT_STATUS(PKV_OK, case_fork(&c, &seqs[0], SPAN - 1, &seqs[1]));
    ASSERT_STATUS(PKV_OK, case_fork(&c, &seqs[0], SPAN, &seqs[2]));
    struct case_step step = {0};
    case_row(&step, &seqs[0], 1);
    case_row(&step, &seqs[1], 1); /* its last shared block is one key short */
    CU_ASSERT_EQUAL(step_reads(&c, &step), (SPAN + 1 + SPAN) * 16);
    step = (struct case_step){0};
    case_row(&step, &seqs[0], 1);
    case_row(&step, &seqs[1], 1); /* as long, but with a block of its own in the span */
    case_row(&step, &seqs[2], 1);
    CU_ASSERT_EQUAL(step_reads(&c, &step), (SPAN + 2 + 1 + SPAN + 1) * 16);
    step = (struct case_step){0};
    case_row(&step, &seqs[0], 1);
    case_row(&step, &seqs[2], 2); /* only decode rows share */
    CU_ASSERT_EQUAL(step_reads(&c, &step), (SPAN + 3 + SPAN + 3) * 16);
    case_close(&c);
}

/* A task takes QUERY_ROWS / 16 = 4 rows of 16 heads: six rows read a shared span twice. */
static void more_rows_than_a_task_takes_read_once_a_task(void)
{
    for (int t = 0; t < NUM_THREADS; t++) {
        struct runtime_case c;
        struct case_step step = {0};
        init_long(&c, threads[t]);
        c.layers[0].num_heads = 16;
        case_open(&c);
        create_with(&c, &seqs[0], SPAN);
        case_row(&step, &seqs[0], 1);
        for (int i = 1; i < 6; i++) {
            ASSERT_STATUS(PKV_OK, case_fork(&c, &seqs[0], SPAN, &seqs[i]));
            case_row(&step, &seqs[i], 1);
        }
        CU_ASSERT_EQUAL(step_reads(&c, &step), (2 * SPAN + 6) * 16);
        case_close(&c);
    }
}

static void rows_of_continuous_storage_count_alike(void)
{
    struct runtime_case c;
    struct case_step step = {0};
    case_init(&c);
    c.config.max_seq_len = 600;
    c.config.max_step_tokens = 600;
    c.groups[0].storage = PKV_STORAGE_CONTINUOUS;
    c.groups[0].v_dtype = PKV_F16;
    case_open(&c);
    create_with(&c, &seqs[0], 5);
    create_with(&c, &seqs[1], 550);
    create_with(&c, &seqs[2], 550); /* nothing is shared */
    for (int i = 0; i < 3; i++) {
        case_row(&step, &seqs[i], 1);
    }
    CU_ASSERT_EQUAL(step_reads(&c, &step), (6 + 551 + 551) * (2 * 4 + 2 * 2));
    case_close(&c);
}

static void steps_count_the_layers_that_were_attended(void)
{
    struct runtime_case c;
    struct case_step step = {0};
    const int32_t none = 0;
    case_init(&c);
    case_add_layer(&c, 0);
    case_open(&c);
    create_with(&c, &seqs[0], 5);
    case_row(&step, &seqs[0], 2);
    const uint64_t before = bytes_read(&c);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 1));
    case_abort(&c, &step);
    CU_ASSERT_EQUAL(bytes_read(&c), before);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 1));
    CU_ASSERT(case_attend(&c, &step, 1));
    case_abort(&c, &step);
    CU_ASSERT_EQUAL(bytes_read(&c), before + 7 * 16);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 1));
    case_attend_all(&c, &step);
    case_commit(&c, &step, &none); /* what is not kept was read all the same */
    CU_ASSERT_EQUAL(bytes_read(&c), before + 3 * 7 * 16);
    case_close(&c);
}

static void a_step_without_tokens_reads_nothing(void)
{
    struct runtime_case c;
    struct case_step empty = {0};
    struct case_step idle = {0};
    struct case_step mixed = {0};
    case_init(&c);
    case_open(&c);
    create_with(&c, &seqs[0], 5); /* leaves a plan behind */
    create_with(&c, &seqs[1], 3);
    CU_ASSERT_EQUAL(step_reads(&c, &empty), 0);
    case_row(&idle, &seqs[0], 0);
    CU_ASSERT_EQUAL(step_reads(&c, &idle), 0);
    case_row(&mixed, &seqs[0], 0);
    case_row(&mixed, &seqs[1], 1);
    CU_ASSERT_EQUAL(step_reads(&c, &mixed), 4 * 16);
    case_close(&c);
}

/* --- evicted_age_ns */

static void set_clock(struct runtime_case *c, uint64_t now_ns)
{
    ASSERT_STATUS(PKV_OK, pkv_prefix_expire(c->cache, now_ns, NULL));
}

/* A cache of 8 blocks whose 3 first of `a` are held and indexed, and whose 5 others `b` takes. */
static void open_full(struct runtime_case *c)
{
    const struct pkv_seq_options options = {.size = sizeof options, .no_publish = true};
    prefix_init(c);
    c->groups[0].num_blocks = 8;
    case_open(c);
    prefix_run(c, &a, 0, 12);
    ASSERT_STATUS(PKV_OK, prefix_create(c, &b, 900000, &options));
    prefix_append(c, &b, 5 * 4);
}

static void close_full(struct runtime_case *c)
{
    prefix_destroy(c, &b);
    case_close(c);
}

/* `b` takes that many blocks, all of them cached ones; what that adds to the sum. */
static uint64_t age_of(struct runtime_case *c, int32_t num_blocks)
{
    const struct pkv_stats before = prefix_stats(c);
    prefix_append(c, &b, 4 * num_blocks);
    const struct pkv_stats after = prefix_stats(c);
    CU_ASSERT_EQUAL(after.evicted_blocks - before.evicted_blocks, (uint64_t)num_blocks);
    return after.evicted_age_ns - before.evicted_age_ns;
}

static void an_evicted_block_adds_the_time_since_it_was_freed(void)
{
    struct runtime_case c;
    open_full(&c);
    CU_ASSERT_EQUAL(prefix_stats(&c).evicted_blocks, 0);
    set_clock(&c, 1000);
    prefix_destroy(&c, &a);
    set_clock(&c, 5000);
    CU_ASSERT_EQUAL(prefix_stats(&c).evicted_age_ns, 0);
    CU_ASSERT_EQUAL(age_of(&c, 2), 2 * 4000);
    set_clock(&c, 7000);
    CU_ASSERT_EQUAL(age_of(&c, 1), 6000);
    CU_ASSERT_EQUAL(prefix_stats(&c).evicted_age_ns, 14000);
    close_full(&c);
}

static void a_block_that_was_held_again_counts_from_then(void)
{
    struct runtime_case c;
    open_full(&c);
    set_clock(&c, 1000);
    prefix_destroy(&c, &a);
    set_clock(&c, 2000);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    int32_t num_cached = 0;
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 9, 0, &num_cached));
    CU_ASSERT_EQUAL(num_cached, 8);
    prefix_append(&c, &a, 1);
    CU_ASSERT_EQUAL(prefix_stats(&c).evicted_age_ns, 1000); /* one, for the ninth token */
    set_clock(&c, 4000);
    prefix_destroy(&c, &a);
    prefix_append(&c, &b, 4); /* takes that one */
    CU_ASSERT_EQUAL(prefix_stats(&c).evicted_blocks, 1);
    set_clock(&c, 4500);
    CU_ASSERT_EQUAL(age_of(&c, 2), 2 * 500);
    close_full(&c);
}

/* A pin holds, until a call brings a time past its end. */
static void a_pinned_block_counts_from_the_end_of_the_pin(void)
{
    struct runtime_case c;
    pkv_pin pin = {0};
    int32_t num_pinned = 0;
    open_full(&c);
    ASSERT_STATUS(PKV_OK,
                  pkv_prefix_pin(c.cache, NULL, PROMPT(a.ids, 12), 100, 1000, &pin, &num_pinned));
    CU_ASSERT_EQUAL(num_pinned, 12);
    prefix_destroy(&c, &a);
    set_clock(&c, 3000);
    set_clock(&c, 3500);
    CU_ASSERT_EQUAL(age_of(&c, 3), 3 * 500);
    close_full(&c);
}

static void without_a_clock_evicted_blocks_have_no_age(void)
{
    struct runtime_case c;
    open_full(&c);
    prefix_destroy(&c, &a);
    CU_ASSERT_EQUAL(age_of(&c, 3), 0);
    close_full(&c);
}

static void blocks_freed_before_the_first_time_have_no_age(void)
{
    struct runtime_case c;
    open_full(&c);
    prefix_destroy(&c, &a);
    set_clock(&c, 1000000000000000000);
    CU_ASSERT_EQUAL(age_of(&c, 3), 0);
    close_full(&c);
}

static void a_clock_that_goes_back_is_ignored(void)
{
    struct runtime_case c;
    open_full(&c);
    set_clock(&c, 5000);
    set_clock(&c, 200);
    prefix_destroy(&c, &a);
    set_clock(&c, 100);
    CU_ASSERT_EQUAL(age_of(&c, 1), 0);
    set_clock(&c, 0);
    CU_ASSERT_EQUAL(age_of(&c, 1), 0);
    set_clock(&c, 5300);
    CU_ASSERT_EQUAL(age_of(&c, 1), 300);
    close_full(&c);
}

static void ending_all_pins_is_no_time(void)
{
    struct runtime_case c;
    open_full(&c);
    set_clock(&c, 1000);
    prefix_destroy(&c, &a);
    set_clock(&c, UINT64_MAX);
    CU_ASSERT_EQUAL(age_of(&c, 1), 0);
    set_clock(&c, 1700);
    CU_ASSERT_EQUAL(age_of(&c, 2), 2 * 700);
    close_full(&c);
}

/* Every call that takes a time brings it. */
static void each_call_with_a_time_moves_the_clock(void)
{
    for (int how = 0; how < 4; how++) {
        struct runtime_case c;
        struct pkv_shortage shortage = {.size = sizeof shortage};
        pkv_pin pin = {0};
        int32_t num_pinned = 0;
        open_full(&c);
        set_clock(&c, 1000);
        prefix_destroy(&c, &a);
        const struct pkv_batch batch = {.size = sizeof batch, .now_ns = 1900};
        pkv_step step = {0};
        if (how == 0) {
            ASSERT_STATUS(PKV_OK, pkv_step_fits(c.cache, &batch, &shortage));
        } else if (how == 1) {
            ASSERT_STATUS(PKV_OK, pkv_step_begin(c.cache, &batch, &step, &shortage));
            ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step));
        } else if (how == 2) {
            ASSERT_STATUS(PKV_OK, pkv_prefix_pin(c.cache, NULL, PROMPT(b.ids, 4), 0, 1900, &pin,
                                                 &num_pinned)); /* finds nothing */
        } else {
            ASSERT_STATUS(PKV_STALE_HANDLE, pkv_prefix_refresh(c.cache, pin, 0, 1900));
        }
        CU_ASSERT_EQUAL(age_of(&c, 3), 3 * 900);
        close_full(&c);
    }
}

/* --- the text */

struct text {
    char bytes[16384];
    size_t used;
};

static bool write_text(void *context, const char *bytes, size_t count)
{
    struct text *text = context;
    if (text->used + count >= sizeof text->bytes) {
        return false;
    }
    memcpy(text->bytes + text->used, bytes, count);
    text->used += count;
    text->bytes[text->used] = '\0';
    return true;
}

/* The value of a counter in the text; NaN without its line or its type. */
static double counter_in_text(struct runtime_case *c, const char *name)
{
    static struct text text;
    char line[128];
    text.used = 0;
    ASSERT_STATUS(PKV_OK, pkv_metrics_write(c->cache, write_text, &text));
    snprintf(line, sizeof line, "\n# TYPE %s counter\n%s ", name, name);
    const char *found = strstr(text.bytes, line);
    return found != NULL ? strtod(found + strlen(line), NULL) : (double)NAN;
}

static void the_text_has_both(void)
{
    struct runtime_case c;
    open_full(&c);
    CU_ASSERT_EQUAL(counter_in_text(&c, "pagedkv_evicted_age_seconds_total"), 0);
    set_clock(&c, 1000000000);
    prefix_destroy(&c, &a);
    set_clock(&c, 2250000000);
    (void)age_of(&c, 2);
    const double age = counter_in_text(&c, "pagedkv_evicted_age_seconds_total");
    CU_ASSERT(fabs(age - 2.5) <= 2.5 * 0x1p-51); /* two roundings: of 1e-9 and of the product */
    /* Steps of 12, of 5 * 4, then of 8 tokens past 20: each one chunk of queries. */
    CU_ASSERT_EQUAL(counter_in_text(&c, "pagedkv_attention_read_bytes_total"), (12 + 20 + 28) * 16);
    close_full(&c);
}

static const struct test_case cases[] = {
    TEST(a_decode_row_reads_its_keys_once_a_kv_head),
    TEST(each_layer_reads_and_a_sharing_one_reads_again),
    TEST(a_sharing_layer_may_read_several_times_in_a_step),
    TEST(values_that_lie_in_the_keys_are_not_read_twice),
    TEST(a_window_row_reads_what_it_sees),
    TEST(a_long_window_row_reads_what_it_sees),
    TEST(a_row_of_several_tokens_reads_once_a_block_of_queries),
    TEST(a_wide_group_reads_once_a_query),
    TEST(keys_that_rows_share_are_read_once_a_span),
    TEST(less_than_a_span_is_read_by_each),
    TEST(more_rows_than_a_task_takes_read_once_a_task),
    TEST(rows_of_continuous_storage_count_alike),
    TEST(steps_count_the_layers_that_were_attended),
    TEST(a_step_without_tokens_reads_nothing),
    TEST(an_evicted_block_adds_the_time_since_it_was_freed),
    TEST(a_block_that_was_held_again_counts_from_then),
    TEST(a_pinned_block_counts_from_the_end_of_the_pin),
    TEST(without_a_clock_evicted_blocks_have_no_age),
    TEST(blocks_freed_before_the_first_time_have_no_age),
    TEST(a_clock_that_goes_back_is_ignored),
    TEST(ending_all_pins_is_no_time),
    TEST(each_call_with_a_time_moves_the_clock),
    TEST(the_text_has_both),
    TEST_END,
};
const struct test_suite suite_runtime_metrics = {"runtime_metrics", cases};
