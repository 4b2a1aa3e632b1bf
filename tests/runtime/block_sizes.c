/* SPDX-License-Identifier: MIT
 *
 * The prefix cache over groups that have different block sizes, or slots: what is hit can be served
 * by all, and what follows has the bits of a run that computed everything. */
#include <string.h>

#include "reuse_case.h"
#include "reuse_oracle.h"
#include "save_case.h"

static struct prefix_seq a, b;

/* A group of its own for each block size; windows [count], 0 = none. */
static void init_sizes(struct runtime_case *c, int32_t count, const int32_t *block_sizes,
                       const int64_t *windows)
{
    prefix_init(c);
    c->config.no_partial_hits = false; /* so it is taken back for different sizes */
    c->config.max_seq_len = 512;
    c->config.max_step_tokens = 512;
    for (int32_t g = 0; g < count; g++) {
        struct pkv_group_config *group = g > 0 ? case_add_group(c) : &c->groups[0];
        group->block_size = block_sizes[g];
        group->sliding_window = windows != NULL ? windows[g] : 0;
        group->num_blocks = 4 * c->config.max_seq_len / block_sizes[g];
        if (g > 0) {
            case_add_layer(c, g);
        }
    }
}

/* Ids base, base + 1 .. up to `length`: what was cached of them. The digest of the bits that the
 * last token got is added to *digest. */
static int32_t serve(struct runtime_case *c, int32_t base, int32_t length, uint64_t *digest)
{
    int32_t num_cached = -1;
    struct case_step step = {0};
    ASSERT_STATUS(PKV_OK, prefix_create(c, &a, base, NULL));
    const int32_t expected = reuse_reference_hit(c, &a, length, NULL);
    ASSERT_STATUS(PKV_OK, prefix_admit(c, &a, length, 0, &num_cached));
    CU_ASSERT_EQUAL(num_cached, expected);
    case_row(&step, &a.seq, length - a.seq.length);
    ASSERT_STATUS(PKV_OK, prefix_begin(c, &step, 1));
    case_attend_all(c, &step);
    *digest = step.rows[0].digest;
    case_commit(c, &step, NULL);
    prefix_destroy(c, &a);
    CU_ASSERT_EQUAL(case_check(c), 0);
    return num_cached;
}

/* K12: a full group of blocks of 32 tokens beside a window of 1024 in blocks of 16: one
 * prompt of 1464 tokens four times has the same bits, and its hits are multiples of 32. */
static void one_prompt_four_times_over_two_block_sizes_has_the_same_bits(void)
{
    static const int32_t sizes[] = {32, 16};
    static const int64_t windows[] = {0, 1024};
    struct runtime_case c;
    uint64_t first = 0;
    init_sizes(&c, 2, sizes, windows);
    c.config.max_seq_len = c.config.max_step_tokens = 1472;
    c.groups[0].num_blocks = 100;
    c.groups[1].num_blocks = 200;
    case_open(&c);
    CU_ASSERT_EQUAL(serve(&c, 0, 1464, &first), 0);
    for (int32_t run = 2; run <= 4; run++) {
        uint64_t digest = 0;
        CU_ASSERT_EQUAL(serve(&c, 0, 1464, &digest), 1440);
        CU_ASSERT_EQUAL(digest, first);
    }
    case_close(&c);
}

static void serve_around_multiples(int32_t count, const int32_t *sizes, const int64_t *windows,
                                   int32_t multiple)
{
    struct runtime_case c;
    init_sizes(&c, count, sizes, windows);
    case_open(&c);
    for (int32_t k = 1; k <= 4; k++) {
        for (int32_t n = k * multiple - 1; n <= k * multiple + 1; n++) {
            uint64_t first = 0;
            uint64_t digest = 0;
            CU_ASSERT_EQUAL(serve(&c, 1000 * n, n, &first), 0);
            for (int32_t run = 2; run <= 3; run++) {
                CU_ASSERT_EQUAL(serve(&c, 1000 * n, n, &digest), (n - 1) / multiple * multiple);
                CU_ASSERT_EQUAL(digest, first);
            }
        }
    }
    case_close(&c);
}

/* K12: prompts of k * bs - 1, k * bs and k * bs + 1 tokens, three runs each. */
static void prompts_around_multiples_of_a_block_have_the_same_bits(void)
{
    static const int32_t two[] = {32, 16};
    static const int32_t three[] = {16, 32, 48};
    static const int64_t windows[] = {0, 40, 70};
    serve_around_multiples(2, two, NULL, 32);
    serve_around_multiples(2, two, windows, 32);
    serve_around_multiples(3, three, NULL, 96);
    serve_around_multiples(3, three, windows, 96);
}

/* Requests whose beginnings are shared with some before, with and without a prefix cache; how many
 * of them hit. */
static int64_t serve_random(struct test_random *random, int32_t num_groups)
{
    static const int32_t sizes[][3] = {{16, 32, 48}, {32, 16, 48}, {48, 16, 32}};
    const int32_t *chosen = sizes[random_between(random, 0, 2)];
    struct runtime_case caches[2];
    int64_t windows[3];
    int32_t ids[8][400];
    int64_t num_hits = 0;
    for (int32_t g = 0; g < 3; g++) {
        windows[g] = random_between(random, 0, 1) * random_between(random, 1, 120);
    }
    if (num_groups == 2 && chosen[0] + chosen[1] != 48 && chosen[0] + chosen[1] != 64) {
        chosen = sizes[1];
    }
    for (int32_t i = 0; i < 2; i++) {
        init_sizes(&caches[i], num_groups, chosen, windows);
        caches[i].config.prefix_cache = i == 0;
    }
    for (int32_t g = 0; g < num_groups; g++) {
        const int32_t kept = random_between(random, 0, 1) * random_between(random, 1, 60);
        const int32_t num_tokens = random_between(random, 450, 1400);
        for (int32_t i = 0; i < 2; i++) {
            caches[i].groups[g].kept_prefix = kept;
            caches[i].groups[g].num_blocks = num_tokens / chosen[g] + 1;
        }
    }
    case_open(&caches[0]);
    case_open(&caches[1]);
    for (int32_t request = 0; request < 30; request++) {
        int32_t *own = ids[random_between(random, 0, 7)];
        const int32_t *other = ids[random_between(random, 0, 7)];
        const int32_t shared = request < 8 ? 0 : random_between(random, 0, 400);
        const int32_t length = random_between(random, 1, 400);
        uint64_t digests[2] = {0};
        for (int32_t i = 0; i < 400; i++) {
            own[i] = i < shared ? other[i] : random_between(random, 0, 99);
        }
        for (int32_t i = 0; i < 2; i++) {
            struct case_step step = {0};
            int32_t num_cached = 0;
            ASSERT_STATUS(PKV_OK, prefix_create(&caches[i], &a, 0, NULL));
            memcpy(a.ids, own, sizeof ids[0]);
            const int32_t expected = i == 0 ? reuse_reference_hit(&caches[i], &a, length, NULL) : 0;
            ASSERT_STATUS(PKV_OK, prefix_admit(&caches[i], &a, length, 0, &num_cached));
            CU_ASSERT_EQUAL(num_cached, expected);
            num_hits += num_cached > 0;
            case_row(&step, &a.seq, length - num_cached);
            ASSERT_STATUS(PKV_OK, prefix_begin(&caches[i], &step, 1));
            case_attend_all(&caches[i], &step);
            digests[i] = step.rows[0].digest;
            case_commit(&caches[i], &step, NULL);
            prefix_destroy(&caches[i], &a);
            CU_ASSERT_EQUAL(case_check(&caches[i]), 0);
        }
        CU_ASSERT_EQUAL(digests[0], digests[1]);
    }
    case_close(&caches[0]);
    case_close(&caches[1]);
    return num_hits;
}

/* K12: whatever block sizes, windows and kept prefixes: hits are those of an oracle, and bits
 * are those of a cache without them. */
static void random_requests_have_the_bits_of_a_cache_without_hits(void)
{
    struct test_random random = {.state = test_seed()};
    int64_t num_hits = 0;
    for (int32_t round = 0; round < 12; round++) {
        num_hits += serve_random(&random, 2 + round % 2);
    }
    CU_ASSERT(num_hits > 0);
}

/* Of two prompts that alternate, the hits when one group has blocks for little more than one. */
static void serve_short_of(int32_t short_group, bool has_window)
{
    static const int32_t sizes[] = {32, 16, 48};
    const int64_t windows[] = {0, has_window ? 50 : 0, 0};
    struct runtime_case c;
    uint64_t digests[2] = {0};
    uint64_t digest = 0;
    init_sizes(&c, 3, sizes, windows);
    c.config.poison_freed = true;
    c.groups[short_group].num_blocks = 330 / sizes[short_group];
    case_open(&c);
    for (int32_t run = 0; run < 8; run++) {
        serve(&c, 1000 * (run % 2), 200, &digest);
        digests[run % 2] = run < 2 ? digest : digests[run % 2];
        CU_ASSERT_EQUAL(digest, digests[run % 2]);
    }
    CU_ASSERT(prefix_stats(&c).evicted_blocks > 0);
    case_close(&c);
}

/* Evicting in one group makes hits shorter in all, and never shows in what is computed. */
static void eviction_in_one_group_shortens_hits_in_all(void)
{
    for (int32_t g = 0; g < 3; g++) {
        serve_short_of(g, false);
        serve_short_of(g, true);
    }
}

/* Six requests, in steps of 16 tokens, that share 112 tokens, behind which no block of 48 ends. */
static void serve_branches(int32_t num_window_blocks)
{
    static const int32_t sizes[] = {48, 16};
    static const int64_t windows[] = {0, 40};
    struct runtime_case c;
    init_sizes(&c, 2, sizes, windows);
    c.config.max_step_tokens = 16;
    c.config.max_seqs = 2;
    c.groups[1].num_blocks = num_window_blocks;
    case_open(&c);
    for (int32_t request = 0; request < 6; request++) {
        int32_t num_cached = -1;
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
        for (int32_t i = 112; i < 350; i++) {
            a.ids[i] = 1000 * (request + 1) + i;
        }
        ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 350, 0, &num_cached));
        CU_ASSERT(request < 2 || num_cached == 96);
        while (a.seq.length < 350) {
            prefix_append(&c, &a, 350 - a.seq.length < 16 ? 350 - a.seq.length : 16);
        }
        prefix_destroy(&c, &a);
        CU_ASSERT_EQUAL(case_check(&c), 0);
    }
    case_close(&c);
}

/* K1: the window in front of a branch stays cached also where the hit before it ends earlier. */
static void a_window_stays_in_front_of_the_last_common_block_of_a_branch(void)
{
    for (int32_t num_blocks = 12; num_blocks <= 30; num_blocks++) {
        serve_branches(num_blocks);
    }
}

/* Events name each block by the key of the tokens that end it. */
static void a_large_block_is_told_with_the_key_that_ends_it(void)
{
    static const int32_t sizes[] = {32, 16};
    struct runtime_case c;
    struct pkv_event events[8];
    struct pkv_block_key keys[6];
    static int32_t tokens[8 * 16];
    int32_t count = 0;
    uint64_t digest = 0;
    init_sizes(&c, 2, sizes, NULL);
    c.config.event_tokens = true;
    case_open(&c);
    serve(&c, 7, 90, &digest);
    ASSERT_STATUS(PKV_OK, pkv_events_drain_tokens(c.cache, events, sizeof events[0], 8, tokens,
                                                  NULL, &count, NULL));
    CU_ASSERT_EQUAL(count, 5);
    int32_t num_keys = 0;
    const struct pkv_prompt prompt = prefix_prompt(&a, 90);
    ASSERT_STATUS(PKV_OK, pkv_prefix_keys(&c.config, NULL, &prompt, 6, keys, &num_keys));
    CU_ASSERT_EQUAL(num_keys, 5);
    for (int32_t i = 0; i < count; i++) {
        CU_ASSERT(events[i].kind == PKV_EVENT_STORED && events[i].depth == i);
        CU_ASSERT_EQUAL(events[i].groups, i % 2 == 1 ? 3 : 2);
        CU_ASSERT(events[i].key.low == keys[i].low && events[i].key.high == keys[i].high);
        CU_ASSERT(tokens[16 * i] == 7 + 16 * i && tokens[16 * i + 15] == 7 + 16 * i + 15);
    }
    case_close(&c);
}

/* The parts that hold blocks by their nodes: pins, forks, cuts inside a large block, preemption,
 * flush. */
static void pins_forks_cuts_and_flushes_end_at_common_blocks(void)
{
    static const int32_t sizes[] = {16, 32, 48};
    struct runtime_case c;
    pkv_pin pin = {0};
    int32_t count = 0;
    uint64_t digest = 0;
    init_sizes(&c, 3, sizes, NULL);
    c.config.max_pinned_blocks = 6;
    case_open(&c);
    serve(&c, 0, 300, &digest);
    const struct pkv_prompt prompt = prefix_prompt(&a, 300);
    ASSERT_STATUS(PKV_OK, pkv_prefix_pin(c.cache, NULL, &prompt, 0, 0, &pin, &count));
    CU_ASSERT_EQUAL(count, 96); /* max_pinned_blocks blocks of 16 */
    CU_ASSERT_EQUAL(case_held(&c, 0), 6);
    CU_ASSERT_EQUAL(case_held(&c, 1), 3);
    CU_ASSERT_EQUAL(case_held(&c, 2), 2);
    CU_ASSERT_EQUAL(case_check(&c), 0);
    CU_ASSERT_EQUAL(prefix_run(&c, &a, 0, 200), 192);
    b = a;
    prefix_own_options(&b, &a.options);
    ASSERT_STATUS(PKV_OK, case_fork(&c, &a.seq, 152, &b.seq)); /* inside a block of each */
    b.ids[152] = 9;
    prefix_append(&c, &b, 60);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, 112)); /* ends a block of 16 alone */
    prefix_append(&c, &a, 90);
    CU_ASSERT_EQUAL(case_check(&c), 0);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &b.seq, 0));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &b, 212, 0, &count));
    CU_ASSERT_EQUAL(count, 192);
    prefix_append(&c, &b, 10);
    CU_ASSERT_EQUAL(case_check(&c), 0);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    ASSERT_STATUS(PKV_OK, pkv_prefix_unpin(c.cache, pin));
    ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, true, NULL));
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 212), 0);
    CU_ASSERT_EQUAL(case_held(&c, 0) + case_held(&c, 1) + case_held(&c, 2), 0);
    case_close(&c);
}

/* A range cuts what every group has, and then again what is left of it to a common end. */
static void a_hit_ends_at_a_common_block_before_a_bidirectional_range(void)
{
    static const int32_t sizes[] = {32, 16};
    static const struct pkv_token_range ranges[] = {{100, 130}, {180, 199}};
    struct runtime_case c;
    struct pkv_probe probe = {.size = sizeof probe};
    init_sizes(&c, 2, sizes, NULL);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    a.has_extra = true;
    for (int32_t i = 0; i < 300; i++) {
        a.extra[i] = i >= 180 && i < 199 ? 7 : i >= 100 && i < 130 ? 8 : 0;
    }
    prefix_append(&c, &a, 250);
    prefix_destroy(&c, &a);
    struct pkv_prompt prompt = prefix_prompt(&a, 200);
    prompt.bidirectional = ranges;
    for (prompt.num_bidirectional = 0; prompt.num_bidirectional <= 2; prompt.num_bidirectional++) {
        static const int32_t expected[] = {192, 192, 160};
        ASSERT_STATUS(PKV_OK, pkv_cache_probe(c.cache, NULL, &prompt, 0, 200, &probe, NULL));
        CU_ASSERT_EQUAL(probe.num_cached, expected[prompt.num_bidirectional]);
    }
    prompt.num_tokens = 150; /* 128 ends inside the first range, and 96 is both sizes' */
    prompt.num_bidirectional = 1;
    ASSERT_STATUS(PKV_OK, pkv_cache_probe(c.cache, NULL, &prompt, 0, 200, &probe, NULL));
    CU_ASSERT_EQUAL(probe.num_cached, 96);
    case_close(&c);
}

/* A sequence that was saved and loaded is hit as it would have been where it comes from. */
static void a_loaded_sequence_is_hit_up_to_a_common_block(void)
{
    static const int32_t sizes[] = {16, 32};
    struct runtime_case c;
    struct save_bytes bytes = {0};
    pkv_seq loaded = {0};
    init_sizes(&c, 2, sizes, NULL);
    case_open(&c);
    CU_ASSERT_EQUAL(prefix_run(&c, &a, 0, 120), 0);
    ASSERT_STATUS(PKV_OK, save_to(&c, a.seq.handle, &bytes));
    prefix_destroy(&c, &a);
    ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, true, NULL));
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 120), 0);
    ASSERT_STATUS(PKV_OK, save_load(&c, &bytes, &loaded, NULL));
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 120), 96);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, loaded));
    CU_ASSERT_EQUAL(prefix_run(&c, &b, 0, 120), 96);
    prefix_destroy(&c, &b);
    save_bytes_free(&bytes);
    case_close(&c);
}

/* Beside slots, which nobody shares, every hit is 0, unless the config says to refuse. */
static void beside_a_continuous_group_nothing_is_hit(void)
{
    struct runtime_case c;
    struct pkv_cache_config got = {.size = sizeof got};
    pkv_pin pin;
    int32_t count = 0;
    prefix_init(&c);
    case_add_group(&c)->storage = PKV_STORAGE_CONTINUOUS;
    case_add_layer(&c, 1);
    c.config.required = PKV_REQUIRE_HITS;
    ASSERT_REFUSED(PKV_UNSUPPORTED, "groups[1] is continuous",
                   pkv_cache_create(&c.config, &c.cache));
    c.config.required = 0;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, pkv_cache_describe(c.cache, &got));
    CU_ASSERT(!got.prefix_cache);
    for (int32_t run = 0; run < 3; run++) {
        CU_ASSERT_EQUAL(prefix_run(&c, &a, 0, 30), 0);
        CU_ASSERT_EQUAL(prefix_hit(&c, &a, 30), 0);
        prefix_destroy(&c, &a);
    }
    CU_ASSERT_EQUAL(case_free(&c, 0), c.groups[0].num_blocks);
    ASSERT_STATUS(PKV_UNSUPPORTED,
                  pkv_prefix_pin(c.cache, NULL, PROMPT(a.ids, 8), 0, 0, &pin, &count));
    case_close(&c);
}

static void sizes_that_cannot_be_served_are_refused(void)
{
    static const int32_t sizes[] = {16, 32};
    struct runtime_case c;
    struct pkv_cache_config got = {.size = sizeof got};
    struct pkv_cache_sizes of = {.size = sizeof of};
    struct pkv_tier *tier = (struct pkv_tier *)(void *)&c; /* is not looked into */
    init_sizes(&c, 2, sizes, NULL);
    c.groups[1].block_size = 40;
    ASSERT_REFUSED(PKV_UNSUPPORTED, "groups[1].block_size = 40", pkv_cache_size(&c.config, &of));
    c.groups[1].block_size = 8;
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.config, &of));
    c.config.tiers = &tier;
    c.config.num_tiers = 1;
    ASSERT_REFUSED(PKV_UNSUPPORTED, "tiers", pkv_cache_size(&c.config, &of));
    c.groups[1].storage = PKV_STORAGE_CONTINUOUS;
    ASSERT_REFUSED(PKV_UNSUPPORTED, "tiers", pkv_cache_size(&c.config, &of));
    c.groups[1].storage = PKV_STORAGE_PAGED;
    c.config.num_tiers = 0;
    c.config.required = 2;
    ASSERT_REFUSED(PKV_UNSUPPORTED, "required = 2", pkv_cache_size(&c.config, &of));
    c.config.required = PKV_REQUIRE_HITS;
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.config, &of));
    c.config.prefix_cache = false;
    ASSERT_REFUSED(PKV_UNSUPPORTED, "PKV_REQUIRE_HITS", pkv_cache_size(&c.config, &of));
    c.config.prefix_cache = true;
    const int32_t spanned = 2 * c.groups[0].num_blocks + c.groups[1].num_blocks;
    c.config.num_index_nodes = spanned - 1;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "num_index_nodes", pkv_cache_size(&c.config, &of));
    c.config.num_index_nodes = 0;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, pkv_cache_describe(c.cache, &got));
    CU_ASSERT(got.num_index_nodes == 2 * spanned && got.no_partial_hits && got.prefix_cache);
    case_close(&c);
}

/* What create takes beside what pkv_cache_size says: scratch of attention. */
static size_t unsaid_bytes(struct runtime_case *c)
{
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c->config, &sizes));
    case_open(c);
    CU_ASSERT_EQUAL(c->memory.map_bytes, sizes.payload_bytes + sizes.table_bytes);
    const size_t unsaid = c->memory.alloc_bytes - sizes.metadata_bytes;
    case_close(c);
    return unsaid;
}

static void sizes_are_exact_with_nodes_of_the_smallest_block_size(void)
{
    static const int32_t sizes[] = {48, 16, 32};
    struct runtime_case c;
    size_t unsaid[3];
    for (int32_t variant = 0; variant < 3; variant++) {
        init_sizes(&c, 3, sizes, NULL);
        c.config.event_tokens = true;
        c.config.prefix_cache = variant > 0;
        c.groups[2].storage = variant == 1 ? PKV_STORAGE_PAGED : PKV_STORAGE_CONTINUOUS;
        unsaid[variant] = unsaid_bytes(&c);
    }
    CU_ASSERT(unsaid[1] == unsaid[0] && unsaid[2] == unsaid[0]);
}

static const struct test_case cases[] = {
    TEST(one_prompt_four_times_over_two_block_sizes_has_the_same_bits),
    TEST(prompts_around_multiples_of_a_block_have_the_same_bits),
    TEST(random_requests_have_the_bits_of_a_cache_without_hits),
    TEST(eviction_in_one_group_shortens_hits_in_all),
    TEST(a_window_stays_in_front_of_the_last_common_block_of_a_branch),
    TEST(a_large_block_is_told_with_the_key_that_ends_it),
    TEST(pins_forks_cuts_and_flushes_end_at_common_blocks),
    TEST(a_hit_ends_at_a_common_block_before_a_bidirectional_range),
    TEST(a_loaded_sequence_is_hit_up_to_a_common_block),
    TEST(beside_a_continuous_group_nothing_is_hit),
    TEST(sizes_that_cannot_be_served_are_refused),
    TEST(sizes_are_exact_with_nodes_of_the_smallest_block_size),
    TEST_END,
};
const struct test_suite suite_runtime_block_sizes = {"runtime_block_sizes", cases};
