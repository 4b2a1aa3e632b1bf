/* SPDX-License-Identifier: MIT
 *
 * Random lives of requests on two caches that share a tier, which is smaller than what they store
 * and fails now and then. Every step is compared with dense attention (reuse_case.h), so a block
 * that comes back wrong shows; every call is followed by a check of all invariants. */

#include <string.h>

#include "reuse_case.h"
#include "support/memory_tier.h"

enum { NUM_SEQS = 4, NUM_TICKETS = 3, NUM_ROUNDS = 150, NUM_ACTS = 250, LENGTH = 40 };

/* One process: a cache, its requests and its tickets. */
struct side {
    struct runtime_case c;
    struct prefix_seq seqs[NUM_SEQS];
    bool is_alive[NUM_SEQS];
    int32_t promised[NUM_SEQS]; /* the length up to which no step may be refused */
    int32_t adopted[NUM_SEQS];
    int32_t high[NUM_SEQS]; /* the longest that it was */
    pkv_ticket tickets[NUM_TICKETS];
};

static struct memory_tier memory;
static struct side sides[2];
static struct test_random random_source;

static int32_t below(int32_t count)
{
    return random_between(&random_source, 0, count - 1);
}

static void open_side(struct side *side, int variant)
{
    struct runtime_case *c = &side->c;
    prefix_init(c);
    c->groups[0].num_blocks = 18;
    if (variant > 0) {
        struct pkv_group_config *window = case_add_group(c);
        window->sliding_window = 7;
        window->kept_prefix = variant == 2 ? 5 : 0;
        window->num_blocks = 14;
        (void)case_add_layer(c, 1);
    }
    c->config.no_partial_hits = below(2) == 0;
    c->config.tiers = &memory.tier;
    c->config.num_tiers = 1;
    c->config.max_tickets = NUM_TICKETS;
    c->config.max_store_blocks = 1 + below(6);
    c->config.watermark_blocks = below(2);
    c->config.no_write_behind = below(6) == 0;
    memset(side->is_alive, 0, sizeof side->is_alive);
    memset(side->tickets, 0, sizeof side->tickets);
    case_open(c);
}

/* Prompts of few families, which part at few places. */
static void choose_tokens(struct prefix_seq *seq)
{
    const int32_t family = below(2);
    const int32_t parts_at = 9 * below(4);
    for (int32_t i = 0; i < CASE_MAX_LENGTH; i++) {
        seq->ids[i] = 1000 * family + i + (i >= parts_at ? 100000 * below(2) : 0);
    }
}

static void arrive(struct side *side)
{
    const int32_t i = below(NUM_SEQS);
    struct prefix_seq *seq = &side->seqs[i];
    const struct pkv_namespace_field field = prefix_field_of(1, below(2) == 0 ? "a" : "b", 0);
    const struct pkv_seq_options options = {.size = sizeof options,
                                            .max_rewind = 3 * below(2),
                                            .namespace_fields = &field,
                                            .num_namespace_fields = below(3) == 0};
    if (side->is_alive[i]) {
        return;
    }
    ASSERT_STATUS(PKV_OK, prefix_create(&side->c, seq, 0, &options));
    choose_tokens(seq);
    const int32_t num_tokens = 1 + below(LENGTH - 8);
    const int32_t reserve = below(8);
    const enum pkv_status status =
        prefix_admit(&side->c, seq, num_tokens, reserve, &side->adopted[i]);
    side->promised[i] = num_tokens + reserve;
    side->high[i] = 0;
    CU_ASSERT(status == PKV_OK || status == PKV_NO_BLOCKS || status == PKV_NEVER_FITS);
    side->is_alive[i] = status == PKV_OK;
    if (status != PKV_OK) {
        prefix_destroy(&side->c, seq);
    }
}

/* An admitted row reaches its end, whatever stores and tickets hold. */
static void go_on(struct side *side)
{
    const int32_t i = below(NUM_SEQS);
    struct prefix_seq *seq = &side->seqs[i];
    struct case_step step = {0};
    if (!side->is_alive[i] || seq->seq.length >= LENGTH) {
        return;
    }
    const int32_t end = seq->seq.length + 1 + below(9);
    case_row(&step, &seq->seq, end - seq->seq.length);
    const enum pkv_status status = prefix_begin(&side->c, &step, 1);
    CU_ASSERT(status == PKV_OK || end > side->promised[i]);
    CU_ASSERT(status == PKV_OK || status == PKV_NO_BLOCKS || status == PKV_NEVER_FITS);
    if (status == PKV_OK) {
        case_attend_all(&side->c, &step);
        case_commit(&side->c, &step, NULL);
    }
}

/* Within max_rewind, which loses no promise, unless it goes back into what was adopted. */
static void cut(struct side *side)
{
    const int32_t i = below(NUM_SEQS);
    struct prefix_seq *seq = &side->seqs[i];
    if (!side->is_alive[i]) {
        return;
    }
    side->high[i] = seq->seq.length > side->high[i] ? seq->seq.length : side->high[i];
    const int32_t length = side->high[i] - below(seq->options.max_rewind + 1);
    if (length > 0 && length < seq->seq.length) {
        side->promised[i] = length < side->adopted[i] ? 0 : side->promised[i];
        ASSERT_STATUS(PKV_OK, case_truncate(&side->c, &seq->seq, length));
    }
}

static void end(struct side *side)
{
    const int32_t i = below(NUM_SEQS);
    if (side->is_alive[i]) {
        prefix_destroy(&side->c, &side->seqs[i]);
        side->is_alive[i] = false;
    }
}

static void begin_ticket(struct side *side)
{
    static struct prefix_seq wanted;
    pkv_ticket *ticket = &side->tickets[below(NUM_TICKETS)];
    if (ticket->id != 0) {
        ASSERT_STATUS(PKV_OK, pkv_ticket_close(side->c.cache, *ticket));
        ticket->id = 0;
        return;
    }
    choose_tokens(&wanted);
    const struct pkv_namespace_field field = prefix_field_of(1, below(2) == 0 ? "a" : "b", 0);
    const struct pkv_seq_options options = {.size = sizeof options,
                                            .max_rewind = 3 * below(2),
                                            .namespace_fields = &field,
                                            .num_namespace_fields = below(3) == 0};
    const struct pkv_prompt prompt = prefix_prompt(&wanted, 1 + below(LENGTH));
    const enum pkv_status status =
        below(4) == 0
            ? pkv_tier_store(side->c.cache, &options, &prompt, 0, ticket)
            : pkv_tier_prefetch(side->c.cache, &options, &prompt, below(LENGTH), 0, ticket);
    CU_ASSERT(status == PKV_OK || status == PKV_NO_BLOCKS || status == PKV_NOT_FOUND);
}

static void wait_for_ticket(struct side *side)
{
    struct pkv_ticket_info info = {.size = sizeof info};
    const pkv_ticket ticket = side->tickets[below(NUM_TICKETS)];
    if (ticket.id != 0) {
        ASSERT_STATUS(PKV_OK, pkv_ticket_wait(side->c.cache, ticket, UINT64_MAX, &info));
        CU_ASSERT_EQUAL(info.state, PKV_TICKET_DONE);
    }
}

static void work(struct side *side)
{
    memory.is_down = below(10) == 0;
    memory.fails_put_at = below(8);
    memory.fails_get_at = below(8);
    ASSERT_STATUS(PKV_OK, pkv_tier_work(side->c.cache, 0, NULL));
    memory.is_down = false;
}

static void damage(void)
{
    if (memory.num_values > 0) {
        struct memory_value *value = &memory.values[below(memory.num_values)];
        value->bytes[below((int32_t)value->length)] ^= (unsigned char)(1 << below(8));
    }
}

static void flush(struct side *side)
{
    const struct pkv_namespace_field field = prefix_field_of(1, below(2) == 0 ? "a" : "b", 0);
    if (below(3) > 0) {
        ASSERT_STATUS(PKV_OK, pkv_namespace_flush(side->c.cache, &field, NULL));
    } else {
        ASSERT_STATUS(PKV_OK, pkv_cache_reset(side->c.cache, true, NULL));
    }
}

static void act(struct side *side)
{
    const int32_t draw = below(100);
    if (draw < 3) {
        cut(side);
    } else if (draw < 15) {
        arrive(side);
    } else if (draw < 40) {
        go_on(side);
    } else if (draw < 48) {
        end(side);
    } else if (draw < 60) {
        begin_ticket(side);
    } else if (draw < 63) {
        wait_for_ticket(side);
    } else if (draw < 85) {
        work(side);
    } else if (draw < 96) {
        ASSERT_STATUS(PKV_OK, pkv_tier_poll(side->c.cache, NULL));
    } else if (draw < 99) {
        damage();
    } else if (below(4) == 0) {
        flush(side);
    }
    CU_ASSERT_EQUAL_FATAL(case_check(&side->c), 0);
}

/* Everything ends, and nothing is held. */
static void close_side(struct side *side)
{
    for (int32_t i = 0; i < NUM_SEQS; i++) {
        if (side->is_alive[i]) {
            prefix_destroy(&side->c, &side->seqs[i]);
        }
    }
    for (int32_t i = 0; i < NUM_TICKETS; i++) {
        if (side->tickets[i].id != 0) {
            ASSERT_STATUS(PKV_OK, pkv_ticket_close(side->c.cache, side->tickets[i]));
        }
    }
    ASSERT_STATUS(PKV_OK, pkv_tier_flush(side->c.cache, UINT64_MAX, NULL));
    for (int32_t g = 0; g < side->c.config.num_groups; g++) {
        CU_ASSERT_EQUAL(case_taken(&side->c, g), 0);
    }
    case_close(&side->c);
}

static uint64_t loaded_blocks(struct side *side)
{
    struct pkv_tier_stats stats = {.size = sizeof stats};
    ASSERT_STATUS(PKV_OK, pkv_tier_read_stats(side->c.cache, 0, &stats));
    return stats.loaded_blocks;
}

static void random_requests_on_two_caches_and_a_poor_tier_stay_exact(void)
{
    uint64_t num_loaded = 0;
    random_source.state = test_seed();
    memory_tier_open(&memory, "memory");
    memory.capacity = 60;
    for (int round = 0; round < NUM_ROUNDS; round++) {
        memory.lists = below(2) == 0;
        for (int s = 0; s < 2; s++) {
            open_side(&sides[s], 3 * round / NUM_ROUNDS);
        }
        for (int i = 0; i < NUM_ACTS; i++) {
            act(&sides[below(2)]);
        }
        for (int s = 0; s < 2; s++) {
            num_loaded += loaded_blocks(&sides[s]);
            close_side(&sides[s]);
        }
    }
    CU_ASSERT(num_loaded > 200); /* or it was no test */
    memory_tier_close(&memory);
}

/* A cache whose create, or whose worker, finds no memory is as if it had not been asked. */
static void every_allocation_that_fails_leaves_nothing(void)
{
    struct runtime_case c;
    memory_tier_open(&memory, "memory");
    prefix_init(&c);
    c.config.tiers = &memory.tier;
    c.config.num_tiers = 1;
    c.config.num_tier_threads = 1;
    pkv_cache *cache = NULL;
    enum pkv_status status = PKV_NO_MEMORY;
    for (long fail_at = 1; status != PKV_OK && fail_at < 200; fail_at++) {
        c.memory.calls = 0;
        c.memory.fail_at = fail_at;
        status = pkv_cache_create(&c.config, &cache);
        CU_ASSERT(status == PKV_OK || status == PKV_NO_MEMORY);
        CU_ASSERT(status == PKV_OK || c.memory.live == 0);
    }
    c.memory.fail_at = 0;
    CU_ASSERT_EQUAL(status, PKV_OK);
    ASSERT_STATUS(PKV_OK, pkv_cache_destroy(cache, false));
    CU_ASSERT_EQUAL(c.memory.live, 0);

    c.config.num_tier_threads = 0;
    case_open(&c);
    prefix_warm(&c, &sides[0].seqs[0], 100, 9);
    c.memory.calls = 0;
    c.memory.fail_at = 1;
    ASSERT_STATUS(PKV_NO_MEMORY, pkv_tier_work(c.cache, 0, NULL));
    ASSERT_STATUS(PKV_NO_MEMORY, pkv_tier_flush(c.cache, 0, NULL));
    c.memory.fail_at = 0;
    CU_ASSERT_EQUAL(memory.num_values, 0);
    ASSERT_STATUS(PKV_OK, pkv_tier_flush(c.cache, UINT64_MAX, NULL));
    CU_ASSERT_EQUAL(memory.num_values, 2);
    case_close(&c);
    memory_tier_close(&memory);
}

static const struct test_case cases[] = {
    TEST(random_requests_on_two_caches_and_a_poor_tier_stay_exact),
    TEST(every_allocation_that_fails_leaves_nothing),
    TEST_END,
};

const struct test_suite suite_runtime_tiers_model = {"runtime_tiers_model", cases};
