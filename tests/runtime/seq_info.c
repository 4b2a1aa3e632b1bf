/* SPDX-License-Identifier: MIT
 *
 * What a sequence says of itself, and which row a batch that cannot be one names. */
#include "reuse_case.h"

static struct prefix_seq a, b;

static struct pkv_seq_info info_of(struct runtime_case *c, pkv_seq seq, int32_t *num_blocks)
{
    struct pkv_seq_info info = {.size = sizeof info};
    ASSERT_STATUS(PKV_OK, pkv_seq_describe(c->cache, seq, &info, num_blocks));
    return info;
}

/* A full and a window group of 8 tokens, blocks of 4. */
static void open_two(struct runtime_case *c)
{
    prefix_init(c);
    case_add_group(c)->sliding_window = 8;
    case_add_layer(c, 1);
    case_open(c);
}

/* K11: a sequence tells its length, hit, blocks by group, tag and limits. */
static void a_sequence_describes_itself(void)
{
    const struct pkv_seq_options options = {
        .size = sizeof options, .tag = 77, .max_rewind = 2, .max_tokens = 40};
    struct runtime_case c;
    int32_t blocks[2];
    open_two(&c);
    prefix_run(&c, &a, 100, 20);
    struct pkv_seq_info info = info_of(&c, a.seq.handle, NULL);
    CU_ASSERT(info.tag == 0 && info.num_cached == 0 && info.max_tokens == 64 && !info.in_step);
    prefix_destroy(&c, &a);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 100, &options));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &b, 20, 0, NULL));
    info = info_of(&c, b.seq.handle, blocks);
    CU_ASSERT(info.tag == 77 && info.max_rewind == 2 && info.max_tokens == 40);
    CU_ASSERT(info.num_cached == 16 && info.length == 16);
    prefix_append(&c, &b, 7);
    info = info_of(&c, b.seq.handle, blocks);
    CU_ASSERT(info.length == 23 && blocks[0] == 6 && info.num_blocks == blocks[0] + blocks[1]);
    CU_ASSERT_EQUAL(blocks[1], case_resident_blocks(23, 4, 8, 0, 2));
    info.size = 1;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "size",
                   pkv_seq_describe(c.cache, b.seq.handle, &info, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "info",
                   pkv_seq_describe(c.cache, b.seq.handle, NULL, NULL));
    info.size = sizeof info;
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_seq_describe(c.cache, a.seq.handle, &info, NULL));
    prefix_destroy(&c, &b);
    case_close(&c);
}

#define MANY 600

/* Handles that a walk has shown, and what it is to do after so many. */
struct seen {
    struct runtime_case *c;
    pkv_seq seqs[MANY];
    int32_t count;
    int32_t stop_after;
    pkv_seq to_destroy; /* by the first visit */
};

/* What is shown is what the cache says of that handle, and the cache can be called. */
static bool see(void *context, pkv_seq seq, const struct pkv_seq_info *info)
{
    struct seen *seen = context;
    const struct pkv_seq_info said = info_of(seen->c, seq, NULL);
    CU_ASSERT(info->size == sizeof *info && info->tag == said.tag && info->length == said.length);
    CU_ASSERT(info->num_cached == said.num_cached && info->num_blocks == said.num_blocks);
    CU_ASSERT(info->max_tokens == said.max_tokens && info->max_rewind == said.max_rewind);
    CU_ASSERT(info->min_length == said.min_length && info->in_step == said.in_step);
    seen->seqs[seen->count++] = seq;
    if (seen->to_destroy.id != 0) {
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(seen->c->cache, seen->to_destroy));
        seen->to_destroy.id = 0;
    }
    return seen->count < seen->stop_after;
}

static int32_t walk(struct runtime_case *c, int32_t stop_after, pkv_seq to_destroy,
                    struct seen *seen)
{
    *seen = (struct seen){.c = c, .stop_after = stop_after, .to_destroy = to_destroy};
    ASSERT_STATUS(PKV_OK, pkv_cache_visit_seqs(c->cache, see, seen));
    return seen->count;
}

static int32_t times_seen(const struct seen *seen, pkv_seq seq)
{
    int32_t times = 0;
    for (int32_t i = 0; i < seen->count; i++) {
        times += seen->seqs[i].id == seq.id;
    }
    return times;
}

/* K11: a walk shows every sequence once, whatever lies between them, and may change the cache. */
static void a_walk_shows_every_sequence_once(void)
{
    static pkv_seq all[MANY];
    static struct seen seen;
    struct runtime_case c;
    prefix_init(&c);
    c.config.max_seqs = 2 * MANY;
    case_open(&c);
    CU_ASSERT_EQUAL(walk(&c, MANY, (pkv_seq){0}, &seen), 0);
    prefix_run(&c, &a, 100, 20);
    for (int32_t i = 0; i < MANY; i++) {
        const struct pkv_seq_options options = {.size = sizeof options, .tag = (uint64_t)i + 1};
        ASSERT_STATUS(PKV_OK, pkv_seq_create(c.cache, &options, &all[i]));
    }
    for (int32_t i = 0; i < MANY; i++) {
        if (i % 7 != 3 && i < MANY - 40) {
            ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, all[i]));
            all[i].id = 0;
        }
    }
    int32_t num_live = 1;
    CU_ASSERT(walk(&c, MANY, (pkv_seq){0}, &seen) > 3 * 32 && times_seen(&seen, a.seq.handle) == 1);
    for (int32_t i = 0; i < MANY; i++) {
        num_live += all[i].id != 0;
        CU_ASSERT(all[i].id == 0 || times_seen(&seen, all[i]) == 1);
    }
    CU_ASSERT_EQUAL(seen.count, num_live);
    CU_ASSERT_EQUAL(walk(&c, 5, (pkv_seq){0}, &seen), 5);
    const pkv_seq last = all[MANY - 1]; /* in a later slice than the first */
    CU_ASSERT_EQUAL(walk(&c, MANY, last, &seen), num_live - 1);
    CU_ASSERT_EQUAL(times_seen(&seen, last), 0);
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "visit", pkv_cache_visit_seqs(c.cache, NULL, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "cache", pkv_cache_visit_seqs(NULL, see, NULL));
    prefix_destroy(&c, &a);
    case_close(&c);
}

/* What the open step holds is shown as in it, and no more once it is destroyed. */
static void a_walk_knows_the_open_step(void)
{
    static struct seen seen;
    struct runtime_case c;
    struct case_step step = {0};
    open_two(&c);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 100, NULL));
    case_row(&step, &a.seq, 3);
    ASSERT_STATUS(PKV_OK, prefix_begin(&c, &step, 1));
    CU_ASSERT(walk(&c, 9, (pkv_seq){0}, &seen) == 1 && info_of(&c, a.seq.handle, NULL).in_step);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, a.seq.handle));
    CU_ASSERT_EQUAL(walk(&c, 9, (pkv_seq){0}, &seen), 0);
    case_abort(&c, &step);
    case_close(&c);
}

/* The shortest possible length is: one less refuses, and it succeeds. */
static void the_shortest_possible_length_is_exact(void)
{
    for (int32_t length = 1; length <= 40; length++) {
        struct runtime_case c;
        open_two(&c);
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 100, NULL));
        for (int32_t n = 0; n < length; n++) {
            prefix_append(&c, &a, 1);
        }
        const int32_t shortest = info_of(&c, a.seq.handle, NULL).min_length;
        CU_ASSERT(shortest <= length && (shortest > 0) == (length >= 11));
        if (shortest > 1) {
            ASSERT_STATUS(PKV_NOT_RESIDENT, pkv_seq_truncate(c.cache, a.seq.handle, shortest - 1));
        }
        ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, shortest));
        prefix_destroy(&c, &a);
        case_close(&c);
    }
}

static void a_table_is_that_of_the_steps(void)
{
    struct runtime_case c;
    open_two(&c);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 100, NULL));
    prefix_append(&c, &a, 22);
    for (int32_t g = 0; g < 2; g++) {
        int32_t expected[6], entries[8] = {-7, -7, -7, -7, -7, -7, -7, -7};
        int32_t count = -1;
        case_table(&c, &a.seq, g, expected, 6);
        ASSERT_STATUS(PKV_OK, pkv_seq_table(c.cache, a.seq.handle, g, entries, 8, &count));
        CU_ASSERT(count == 6 && entries[6] == -7);
        for (int32_t i = 0; i < 6; i++) {
            CU_ASSERT_EQUAL(entries[i], expected[i]);
        }
        ASSERT_STATUS(PKV_OK, pkv_seq_table(c.cache, a.seq.handle, g, NULL, 0, &count));
        CU_ASSERT_EQUAL(count, 6);
    }
    int32_t count;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_seq_table(c.cache, a.seq.handle, 2, NULL, 0, &count));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_seq_table(c.cache, a.seq.handle, 0, NULL, 1, &count));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_seq_table(c.cache, (pkv_seq){0}, 0, NULL, 0, &count));
    prefix_destroy(&c, &a);
    case_close(&c);
}

/* K11: a refused batch names the row that is wrong where the program can read it. */
static void a_batch_names_the_row_that_is_wrong(void)
{
    static const int32_t ids[8];
    struct runtime_case c;
    pkv_step step;
    open_two(&c);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 100, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 200, NULL));
    pkv_seq seqs[2] = {a.seq.handle, {0}};
    int32_t q_lens[2] = {1, 1};
    struct pkv_batch batch = {.size = sizeof batch, .seqs = seqs, .q_lens = q_lens};
    batch.num_rows = batch.num_required_rows = 2;
    batch.token_ids = ids;
    struct pkv_shortage shortage = {.size = sizeof shortage, .row = 9, .group = 9};
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_step_begin(c.cache, &batch, &step, &shortage));
    CU_ASSERT(shortage.row == 1 && shortage.group == -1);
    seqs[1] = seqs[0];
    shortage.row = 9;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_fits(c.cache, &batch, &shortage));
    CU_ASSERT_EQUAL(shortage.row, 1);
    seqs[1] = b.seq.handle;
    q_lens[1] = -1;
    shortage.row = 9;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_begin(c.cache, &batch, &step, &shortage));
    CU_ASSERT_EQUAL(shortage.row, 1);
    batch.token_ids = NULL;
    q_lens[1] = 1;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_begin(c.cache, &batch, &step, &shortage));
    CU_ASSERT_EQUAL(shortage.row, -1);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* K11: an admission counts as one after preemption only if there was a preemption. */
static void readmission_is_counted_after_a_cut_alone(void)
{
    struct runtime_case c;
    open_two(&c);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 100, NULL));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 12, 0, NULL));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 12, 8, NULL));
    CU_ASSERT_EQUAL(prefix_stats(&c).queried_tokens, 12);
    CU_ASSERT_EQUAL(prefix_stats(&c).readmitted_tokens, 0);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, 0));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 12, 0, NULL));
    CU_ASSERT_EQUAL(prefix_stats(&c).queried_tokens, 12);
    CU_ASSERT_EQUAL(prefix_stats(&c).readmitted_tokens, 12);
    CU_ASSERT_EQUAL(prefix_stats(&c).num_admissions, 3);
    prefix_destroy(&c, &a);
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(a_sequence_describes_itself),
    TEST(a_walk_shows_every_sequence_once),
    TEST(a_walk_knows_the_open_step),
    TEST(the_shortest_possible_length_is_exact),
    TEST(a_table_is_that_of_the_steps),
    TEST(a_batch_names_the_row_that_is_wrong),
    TEST(readmission_is_counted_after_a_cut_alone),
    TEST_END,
};
const struct test_suite suite_runtime_seq_info = {"runtime_seq_info", cases};
