/* SPDX-License-Identifier: MIT
 *
 * One thread steps while another creates, admits, forks, truncates and destroys. Run it under the
 * thread sanitiser too. */
#include <pthread.h>
#include <stdatomic.h>

#include "support/runtime_case.h"

static const int32_t tokens[CASE_MAX_LENGTH];

struct meddler {
    pkv_cache *cache;
    pkv_seq fixed; /* the sequence that the other thread decodes */
    uint64_t seed;
    atomic_bool is_done;
    atomic_long num_lives; /* that it has led so far */
    long num_faults;       /* answers that no order of events explains */
};

static void count_answer(struct meddler *m, enum pkv_status status, enum pkv_status a,
                         enum pkv_status b, enum pkv_status c)
{
    if (status != a && status != b && status != c) {
        m->num_faults++;
    }
}

/* A life beside the step: never part of it, so busy only where the fixed sequence is touched. */
static void meddle_once(struct meddler *m, struct test_random *random)
{
    struct pkv_seq_options options = {.size = sizeof options, .tag = random_u64(random) % 2 + 1};
    struct pkv_admission admission = {.size = sizeof admission};
    pkv_seq seq = {0};
    pkv_seq children[2] = {{0}, {0}};
    int32_t length = 0;
    count_answer(m, pkv_seq_create(m->cache, &options, &seq), PKV_OK, PKV_NO_BLOCKS, PKV_OK);
    count_answer(m,
                 pkv_seq_admit(m->cache, seq, PROMPT(tokens, random_between(random, 0, 9)), 3, 0,
                               &admission, NULL),
                 PKV_OK, PKV_NO_BLOCKS, PKV_STALE_HANDLE);
    count_answer(m, pkv_seq_fork(m->cache, seq, 0, 2, children), PKV_OK, PKV_NO_BLOCKS,
                 PKV_STALE_HANDLE);
    count_answer(m, pkv_seq_truncate(m->cache, children[0], 0), PKV_OK, PKV_STALE_HANDLE, PKV_OK);
    count_answer(m, pkv_seq_length(m->cache, m->fixed, &length), PKV_OK, PKV_OK, PKV_OK);
    count_answer(m, length == 23 ? PKV_OK : PKV_CORRUPT, PKV_OK, PKV_OK, PKV_OK);
    count_answer(m,
                 pkv_seq_fork(m->cache, m->fixed, random_between(random, 0, 23), 1, &children[1]),
                 PKV_OK, PKV_BUSY, PKV_NO_BLOCKS);
    if (random_u64(random) % 8 == 0) {
        count_answer(m, pkv_cache_check(m->cache) == 0 ? PKV_OK : PKV_CORRUPT, PKV_OK, PKV_OK,
                     PKV_OK);
    }
    count_answer(m, pkv_seq_destroy(m->cache, children[1]), PKV_OK, PKV_STALE_HANDLE, PKV_OK);
    count_answer(m, pkv_seq_destroy(m->cache, seq), PKV_OK, PKV_STALE_HANDLE, PKV_OK);
    count_answer(m, pkv_seq_destroy_tagged(m->cache, options.tag, NULL), PKV_OK, PKV_OK, PKV_OK);
}

static void *meddle(void *argument)
{
    struct meddler *m = argument;
    struct test_random random = {m->seed};
    while (!atomic_load(&m->is_done)) {
        meddle_once(m, &random);
        atomic_fetch_add(&m->num_lives, 1);
    }
    return NULL;
}

/* H3: the tables of an open step are constant: the same query on the same keys gives the same bits
 * while the rest of the cache changes. */
static void decode_is_bitwise_constant_while_others_come_and_go(void)
{
    static struct case_seq fixed;
    struct runtime_case c;
    struct meddler meddler = {.seed = test_seed()};
    pthread_t thread;
    const int32_t keep = 0;
    uint64_t expected = 0;
    case_init(&c);
    case_add_layer(&c, 0);
    c.groups[0].num_blocks = 20;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &fixed, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &fixed, 23));
    meddler.cache = c.cache;
    meddler.fixed = fixed.handle;
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, meddle, &meddler), 0);
    const uint32_t tag = c.next_tag;
    enum pkv_status status = PKV_OK;
    /* On a busy machine the other thread may begin late: there are more rounds then. */
    for (int round = 0; status == PKV_OK && (round < 3000 || atomic_load(&meddler.num_lives) == 0);
         round++) {
        struct case_step step = {0};
        c.next_tag = tag; /* the very same token */
        case_row(&step, &fixed, 1);
        status = case_begin(&c, &step, 1);
        if (status != PKV_OK) {
            break;
        }
        case_attend_all(&c, &step);
        case_commit(&c, &step, &keep);
        expected = round == 0 ? step.rows[0].digest : expected;
        CU_ASSERT_EQUAL(step.rows[0].digest, expected);
    }
    atomic_store(&meddler.is_done, true);
    pthread_join(thread, NULL);
    ASSERT_STATUS(PKV_OK, status);
    CU_ASSERT_EQUAL(meddler.num_faults, 0);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, fixed.handle));
    CU_ASSERT_EQUAL(case_held(&c, 0), 0);
    case_close(&c);
}

struct destroyer {
    pkv_cache *cache;
    pkv_seq seqs[4];
    enum pkv_status statuses[4];
};

static void *destroy_all(void *argument)
{
    struct destroyer *d = argument;
    for (int i = 0; i < 4; i++) {
        d->statuses[i] = pkv_seq_destroy(d->cache, d->seqs[i]);
    }
    return NULL;
}

/* Every row of a step is destroyed by another thread at some moment of it. */
static void rows_may_be_destroyed_from_another_thread_at_any_moment(void)
{
    static struct case_seq seqs[4];
    struct runtime_case c;
    case_init(&c);
    case_add_layer(&c, 0);
    case_open(&c);
    for (int round = 0; round < 200; round++) {
        struct destroyer destroyer = {.cache = c.cache};
        struct case_step step = {0};
        pthread_t thread;
        for (int i = 0; i < 4; i++) {
            ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[i], NULL));
            ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[i], 5));
            destroyer.seqs[i] = seqs[i].handle;
            case_row(&step, &seqs[i], 3);
        }
        ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 4));
        CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, destroy_all, &destroyer), 0);
        case_attend_all(&c, &step);
        case_commit(&c, &step, NULL);
        pthread_join(thread, NULL);
        for (int i = 0; i < 4; i++) {
            CU_ASSERT_EQUAL(destroyer.statuses[i], PKV_OK);
        }
        CU_ASSERT_EQUAL(case_held(&c, 0), 0);
    }
    case_close(&c);
}

/* The bits do not tell how many threads attended, nor the storage, nor the block size. */
static void bits_do_not_depend_on_threads_storage_or_block_size(void)
{
    static struct case_seq seqs[3];
    static const int32_t block_sizes[] = {1, 2, 3, 4, 7, 16, 64};
    uint64_t expected[3] = {0, 0, 0};
    for (int variant = 0; variant < 24; variant++) {
        struct runtime_case c;
        case_init(&c);
        c.config.num_threads = 1 + variant / 8;
        c.groups[0].storage = variant % 8 == 7 ? PKV_STORAGE_CONTINUOUS : PKV_STORAGE_PAGED;
        c.groups[0].block_size = variant % 8 == 7 ? 1 : block_sizes[variant % 8];
        c.groups[0].num_blocks = 192;
        c.groups[0].kv_heads = 2;
        c.groups[0].k_width = 8;
        c.layers[0].num_heads = 4;
        c.config.max_step_tokens = 128;
        c.fused = variant % 2 == 1;
        case_open(&c);
        struct case_step step = {0};
        for (int i = 0; i < 3; i++) {
            ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[i], NULL));
            ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[i], 20 + 11 * i));
            case_row(&step, &seqs[i], 1 + 7 * i);
        }
        ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 3));
        case_attend_all(&c, &step);
        case_commit(&c, &step, NULL);
        for (int i = 0; i < 3; i++) {
            expected[i] = variant == 0 ? step.rows[i].digest : expected[i];
            CU_ASSERT_EQUAL(step.rows[i].digest, expected[i]);
        }
        case_close(&c);
    }
}

static const struct test_case cases[] = {
    TEST(decode_is_bitwise_constant_while_others_come_and_go),
    TEST(rows_may_be_destroyed_from_another_thread_at_any_moment),
    TEST(bits_do_not_depend_on_threads_storage_or_block_size),
    TEST_END,
};
const struct test_suite suite_runtime_thread = {"runtime_thread", cases};
