/* SPDX-License-Identifier: MIT
 *
 * A cache and its tiers, on the test's own thread: pkv_tier_work is called where the test wants it.
 * Keys and values follow from tokens (reuse_case.h), so a block that comes back as anything but
 * what it was gives wrong attention in the step behind it. */
#include <stdlib.h>
#include <string.h>

#include "reuse_case.h"
#include "support/memory_tier.h"

static struct memory_tier memory;
static struct prefix_seq x, y;

/* A case whose cache has the tier; both outlive it. */
static void open_case(struct runtime_case *c, int32_t num_blocks, pkv_tier *const *tiers)
{
    prefix_init(c);
    c->groups[0].num_blocks = num_blocks;
    c->config.tiers = tiers;
    c->config.num_tiers = 1;
    c->config.max_store_blocks = num_blocks;
    case_open(c);
}

static void work(struct runtime_case *c)
{
    int32_t num_moved = 1;
    while (num_moved > 0) {
        ASSERT_STATUS(PKV_OK, pkv_tier_work(c->cache, 0, &num_moved));
    }
}

static void work_and_poll(struct runtime_case *c)
{
    work(c);
    ASSERT_STATUS(PKV_OK, pkv_tier_poll(c->cache, NULL));
    CU_ASSERT_EQUAL(case_check(c), 0);
}

static pkv_ticket prefetch(struct runtime_case *c, const struct prefix_seq *seq, int32_t num_tokens)
{
    pkv_ticket ticket = {0};
    const struct pkv_prompt prompt = prefix_prompt(seq, num_tokens);
    ASSERT_STATUS(PKV_OK,
                  pkv_tier_prefetch(c->cache, &seq->options, &prompt, num_tokens, 0, &ticket));
    return ticket;
}

static struct pkv_ticket_info info_of(struct runtime_case *c, pkv_ticket ticket)
{
    struct pkv_ticket_info info = {.size = sizeof info};
    ASSERT_STATUS(PKV_OK, pkv_ticket_describe(c->cache, ticket, &info));
    return info;
}

static struct pkv_ticket_info wait_for(struct runtime_case *c, pkv_ticket ticket)
{
    struct pkv_ticket_info info = {.size = sizeof info};
    ASSERT_STATUS(PKV_OK, pkv_ticket_wait(c->cache, ticket, UINT64_MAX, &info));
    CU_ASSERT_EQUAL(case_check(c), 0);
    return info;
}

static void close_ticket(struct runtime_case *c, pkv_ticket ticket)
{
    ASSERT_STATUS(PKV_OK, pkv_ticket_close(c->cache, ticket));
    CU_ASSERT_EQUAL(case_check(c), 0);
}

static struct pkv_tier_stats tier_stats(struct runtime_case *c)
{
    struct pkv_tier_stats stats = {.size = sizeof stats};
    ASSERT_STATUS(PKV_OK, pkv_tier_read_stats(c->cache, 0, &stats));
    return stats;
}

/* Another process computes a prompt of so many tokens; what it stored is in the tier. */
static void compute_elsewhere(int32_t base, int32_t length)
{
    struct runtime_case a;
    open_case(&a, 32, &memory.tier);
    prefix_warm(&a, &x, base, length);
    work_and_poll(&a);
    CU_ASSERT_EQUAL(case_free(&a, 0), 32);
    case_close(&a);
}

static void what_one_cache_stored_is_a_hit_in_another(void)
{
    struct runtime_case b;
    int32_t num_cached = 0;
    memory_tier_open(&memory, "memory");
    compute_elsewhere(100, 14);
    CU_ASSERT_EQUAL(memory.num_values, 3);

    open_case(&b, 16, &memory.tier);
    ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
    CU_ASSERT_EQUAL(prefix_hit(&b, &y, 14), 0);
    const pkv_ticket ticket = prefetch(&b, &y, 14);
    const struct pkv_ticket_info info = wait_for(&b, ticket);
    CU_ASSERT_EQUAL(info.status, PKV_OK);
    CU_ASSERT_EQUAL(info.num_cached, 12);
    CU_ASSERT_EQUAL(info.num_loaded, 12);
    CU_ASSERT_EQUAL(info.tier_loaded[0], 12);
    ASSERT_STATUS(PKV_OK, prefix_admit(&b, &y, 14, 0, &num_cached));
    CU_ASSERT_EQUAL(num_cached, 12);
    prefix_append(&b, &y, 2); /* compared with dense attention over all 14 */
    close_ticket(&b, ticket);
    CU_ASSERT_EQUAL(tier_stats(&b).hit_tokens, 12);
    CU_ASSERT_EQUAL(tier_stats(&b).loaded_blocks, 3);
    prefix_destroy(&b, &y);
    work_and_poll(&b);
    case_close(&b);
    memory_tier_close(&memory);
}

/* Nothing that a worker does is seen before a poll, whatever it has done: hits follow from the
 * order of the calls. */
static void what_was_done_takes_effect_at_a_poll(void)
{
    struct runtime_case b;
    memory_tier_open(&memory, "memory");
    compute_elsewhere(100, 13);
    open_case(&b, 16, &memory.tier);
    ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
    const pkv_ticket ticket = prefetch(&b, &y, 13);
    work(&b);
    CU_ASSERT_EQUAL(case_taken(&b, 0), 0); /* found, and nothing taken */
    ASSERT_STATUS(PKV_OK, pkv_tier_poll(b.cache, NULL));
    CU_ASSERT_EQUAL(case_taken(&b, 0), 3);
    work(&b);
    CU_ASSERT_EQUAL(prefix_hit(&b, &y, 13), 0); /* read, and not indexed */
    int32_t num_done = 0;
    ASSERT_STATUS(PKV_OK, pkv_tier_poll(b.cache, &num_done));
    CU_ASSERT_EQUAL(num_done, 1);
    CU_ASSERT_EQUAL(prefix_hit(&b, &y, 13), 12);
    close_ticket(&b, ticket);
    CU_ASSERT_EQUAL(case_free(&b, 0), 16);
    CU_ASSERT_EQUAL(prefix_hit(&b, &y, 13), 12);
    case_close(&b);
    memory_tier_close(&memory);
}

/* H1: what a transfer reads is held until it has ended, whatever its owner does. Of 4 blocks two
 * are on their way to a tier when their sequence ends: 4 are refused, 2 are given, and the other 2
 * when the store has ended. */
static void a_block_on_its_way_to_a_tier_is_not_given_to_another(void)
{
    struct runtime_case c;
    memory_tier_open(&memory, "memory");
    open_case(&c, 4, &memory.tier);
    prefix_warm(&c, &x, 100, 8);
    CU_ASSERT_EQUAL(case_free(&c, 0), 2);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &y, 500, NULL));
    ASSERT_STATUS(PKV_NO_BLOCKS, prefix_admit(&c, &y, 16, 0, NULL));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &y, 8, 0, NULL));
    work(&c);
    CU_ASSERT_EQUAL(case_free(&c, 0), 0); /* two held, two promised */
    ASSERT_STATUS(PKV_OK, pkv_tier_poll(c.cache, NULL));
    CU_ASSERT_EQUAL(case_free(&c, 0), 2);
    prefix_append(&c, &y, 8);
    prefix_destroy(&c, &y);
    work_and_poll(&c);
    case_close(&c);
    memory_tier_close(&memory);
}

/* The same of a load: its ticket is closed while a worker reads into its blocks. */
static void a_block_that_is_read_into_is_free_when_the_reader_has_ended(void)
{
    struct runtime_case b;
    memory_tier_open(&memory, "memory");
    compute_elsewhere(100, 13);
    open_case(&b, 3, &memory.tier);
    ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
    const pkv_ticket ticket = prefetch(&b, &y, 13);
    work(&b);
    ASSERT_STATUS(PKV_OK, pkv_tier_poll(b.cache, NULL));
    CU_ASSERT_EQUAL(case_free(&b, 0), 0);
    close_ticket(&b, ticket);
    CU_ASSERT_EQUAL(case_free(&b, 0), 3);
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_ticket_close(b.cache, ticket));
    work_and_poll(&b);
    CU_ASSERT_EQUAL(prefix_hit(&b, &y, 13), 0);
    case_close(&b);
    memory_tier_close(&memory);
}

/* H2: a second close of a ticket is stale and changes nothing, and old tickets are listed. */
static void a_closed_ticket_is_stale_and_old_ones_are_listed(void)
{
    struct runtime_case c;
    pkv_ticket found[4] = {{0}};
    int32_t count = -1;
    struct pkv_ticket_info info = {.size = sizeof info};
    memory_tier_open(&memory, "memory");
    open_case(&c, 8, &memory.tier);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &y, 100, NULL));
    const struct pkv_prompt prompt = prefix_prompt(&y, 13);
    pkv_ticket old = {0};
    pkv_ticket young = {0};
    ASSERT_STATUS(PKV_OK, pkv_tier_prefetch(c.cache, NULL, &prompt, 13, 10, &old));
    ASSERT_STATUS(PKV_OK, pkv_tier_prefetch(c.cache, NULL, &prompt, 13, 20, &young));
    ASSERT_STATUS(PKV_OK, pkv_ticket_list(c.cache, 15, found, 4, &count));
    CU_ASSERT_EQUAL(count, 1);
    CU_ASSERT_EQUAL(found[0].id, old.id);
    ASSERT_STATUS(PKV_OK, pkv_ticket_list(c.cache, 20, found, 1, &count));
    CU_ASSERT_EQUAL(count, 2);
    ASSERT_STATUS(PKV_BUSY, pkv_cache_destroy(c.cache, false));
    close_ticket(&c, old);
    ASSERT_REFUSED(PKV_STALE_HANDLE, "ticket", pkv_ticket_close(c.cache, old));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_ticket_describe(c.cache, old, &info));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_ticket_wait(c.cache, old, 0, NULL));
    CU_ASSERT_EQUAL(wait_for(&c, young).num_cached, 0);
    close_ticket(&c, young);
    case_close(&c);
    memory_tier_close(&memory);
}

/* J1: a store that failed at any block leaves a miss there, never a damaged hit. */
static void a_store_that_failed_is_a_miss(void)
{
    for (int32_t fail_at = 1; fail_at <= 4; fail_at++) {
        struct runtime_case a;
        struct runtime_case b;
        memory_tier_open(&memory, "memory");
        memory.fails_put_at = fail_at;
        open_case(&a, 16, &memory.tier);
        prefix_warm(&a, &x, 100, 14);
        work_and_poll(&a);
        CU_ASSERT_EQUAL(tier_stats(&a).failed_stores, (uint64_t)(fail_at <= 3));
        case_close(&a);
        open_case(&b, 16, &memory.tier);
        ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
        const pkv_ticket ticket = prefetch(&b, &y, 14);
        CU_ASSERT_EQUAL(wait_for(&b, ticket).num_cached, fail_at <= 3 ? 4 * (fail_at - 1) : 12);
        ASSERT_STATUS(PKV_OK, prefix_admit(&b, &y, 14, 0, NULL));
        prefix_append(&b, &y, 14 - y.seq.length);
        close_ticket(&b, ticket);
        work_and_poll(&b);
        case_close(&b);
        memory_tier_close(&memory);
    }
}

/* J2: a damaged value is told once, removed, and a miss from then on. */
static void a_damaged_value_is_told_once_and_removed(void)
{
    memory_tier_open(&memory, "memory");
    compute_elsewhere(100, 14);
    struct memory_value *value = &memory.values[1];
    for (size_t at = 0; at < value->length; at++) {
        struct runtime_case b;
        struct memory_value kept = memory.values[1];
        unsigned char *copy = malloc(kept.length);
        memcpy(copy, kept.bytes, kept.length);
        memory.values[1].bytes[at] ^= 0x10;
        open_case(&b, 16, &memory.tier);
        b.config.no_write_behind = true;
        ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
        pkv_ticket ticket = prefetch(&b, &y, 14);
        struct pkv_ticket_info info = wait_for(&b, ticket);
        CU_ASSERT_EQUAL(info.status, PKV_CORRUPT);
        CU_ASSERT_EQUAL(info.num_cached, 4);
        CU_ASSERT_EQUAL(memory.num_values, 2);
        close_ticket(&b, ticket);
        ticket = prefetch(&b, &y, 14);
        info = wait_for(&b, ticket);
        CU_ASSERT_EQUAL(info.status, PKV_OK);
        CU_ASSERT_EQUAL(info.num_cached, 4);
        close_ticket(&b, ticket);
        CU_ASSERT_EQUAL(tier_stats(&b).corrupt_blocks, 1);
        case_close(&b);
        memory.values[2] = memory.values[1]; /* where removal has moved the last one */
        memory.values[1] = (struct memory_value){.bytes = copy, .length = kept.length};
        memcpy(memory.values[1].name, kept.name, sizeof kept.name);
        memory.num_values = 3;
        value = &memory.values[1];
    }
    memory_tier_close(&memory);
}

static void a_value_of_another_length_is_corrupt(void)
{
    for (int32_t cut = 1; cut < 60; cut += 7) {
        struct runtime_case b;
        memory_tier_open(&memory, "memory");
        compute_elsewhere(100, 14);
        memory.values[0].length -= (size_t)cut;
        open_case(&b, 16, &memory.tier);
        ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
        const pkv_ticket ticket = prefetch(&b, &y, 14);
        const struct pkv_ticket_info info = wait_for(&b, ticket);
        CU_ASSERT_EQUAL(info.status, PKV_CORRUPT);
        CU_ASSERT_EQUAL(info.num_cached, 0);
        close_ticket(&b, ticket);
        CU_ASSERT_EQUAL(case_free(&b, 0), 16);
        case_close(&b);
        memory_tier_close(&memory);
    }
}

/* J4: what was prefetched is held until its ticket is closed, and a probe prefetches nothing. */
static void what_was_prefetched_stays_until_its_ticket_is_closed(void)
{
    struct runtime_case b;
    memory_tier_open(&memory, "memory");
    memory.lists = true;
    compute_elsewhere(100, 13);
    open_case(&b, 5, &memory.tier);
    ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
    CU_ASSERT_EQUAL(prefix_probe(&b, &y, 13, 0).tier_cached[0], 12);
    CU_ASSERT_EQUAL(memory.num_gets, 0);
    const pkv_ticket ticket = prefetch(&b, &y, 13);
    (void)wait_for(&b, ticket);
    CU_ASSERT_EQUAL(prefix_probe(&b, &y, 13, 0).tier_cached[0], 0);
    prefix_warm(&b, &x, 900, 8); /* takes what is free, again and again */
    work_and_poll(&b);
    prefix_warm(&b, &x, 700, 8);
    work_and_poll(&b);
    CU_ASSERT_EQUAL(prefix_hit(&b, &y, 13), 12);
    close_ticket(&b, ticket);
    prefix_warm(&b, &x, 300, 16);
    work_and_poll(&b);
    CU_ASSERT(prefix_hit(&b, &y, 13) < 12);
    case_close(&b);
    memory_tier_close(&memory);
}

/* J5: a restored range begins behind what is resident, in whole blocks: of 8 resident tokens and 11
 * in the tier nothing is read, of 12 one block. */
static void a_prefetch_reads_whole_blocks_behind_what_is_cached(void)
{
    for (int32_t length = 11; length <= 12; length++) {
        struct runtime_case b;
        memory_tier_open(&memory, "memory");
        compute_elsewhere(100, length);
        open_case(&b, 16, &memory.tier);
        prefix_warm(&b, &x, 100, 8);
        work_and_poll(&b);
        memory.num_gets = 0;
        ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
        const pkv_ticket ticket = prefetch(&b, &y, 16);
        const struct pkv_ticket_info info = wait_for(&b, ticket);
        CU_ASSERT_EQUAL(info.num_cached, length == 12 ? 12 : 8);
        CU_ASSERT_EQUAL(info.num_loaded, length == 12 ? 4 : 0);
        CU_ASSERT_EQUAL(memory.num_gets, length == 12 ? 1 : 0);
        close_ticket(&b, ticket);
        case_close(&b);
        memory_tier_close(&memory);
    }
}

/* J7, J8: model, weights and format are part of a stored block's key, and its tokens are compared:
 * neither another model nor another request's value under the same name is a hit. */
static void another_model_and_other_tokens_find_nothing(void)
{
    struct runtime_case b;
    memory_tier_open(&memory, "memory");
    compute_elsewhere(100, 13);
    open_case(&b, 16, &memory.tier);
    case_close(&b);
    prefix_init(&b);
    b.config.tiers = &memory.tier;
    b.config.num_tiers = 1;
    b.config.fingerprint = "other";
    b.config.fingerprint_bytes = 5;
    case_open(&b);
    ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
    pkv_ticket ticket = prefetch(&b, &y, 13);
    CU_ASSERT_EQUAL(wait_for(&b, ticket).num_cached, 0);
    close_ticket(&b, ticket);
    case_close(&b);

    /* the value of one block under the name of another: sound, and not what is wanted */
    struct memory_value swapped = memory.values[0];
    memory.values[0].bytes = memory.values[1].bytes;
    memory.values[1].bytes = swapped.bytes;
    open_case(&b, 16, &memory.tier);
    ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
    ticket = prefetch(&b, &y, 13);
    CU_ASSERT_EQUAL(wait_for(&b, ticket).num_cached, 0);
    CU_ASSERT(tier_stats(&b).collisions > 0);
    CU_ASSERT_EQUAL(memory.num_values, 3); /* sound values are not removed */
    close_ticket(&b, ticket);
    case_close(&b);
    memory_tier_close(&memory);
}

static void a_flush_reaches_what_other_processes_stored(void)
{
    struct runtime_case a;
    struct runtime_case b;
    memory_tier_open(&memory, "memory");
    compute_elsewhere(100, 13);
    open_case(&a, 16, &memory.tier);
    ASSERT_STATUS(PKV_OK, pkv_cache_reset(a.cache, false, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(&a, &y, 100, NULL));
    pkv_ticket ticket = prefetch(&a, &y, 13); /* the flush goes to the tier before it */
    CU_ASSERT_EQUAL(wait_for(&a, ticket).num_cached, 0);
    CU_ASSERT_EQUAL(tier_stats(&a).void_blocks, 3);
    CU_ASSERT_EQUAL(memory.num_values, 0);
    close_ticket(&a, ticket);
    ASSERT_STATUS(PKV_OK, pkv_tier_flush(a.cache, UINT64_MAX, NULL));
    case_close(&a);
    open_case(&b, 16, &memory.tier);
    ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
    ticket = prefetch(&b, &y, 13);
    CU_ASSERT_EQUAL(wait_for(&b, ticket).num_cached, 0);
    close_ticket(&b, ticket);
    prefix_destroy(&b, &y);
    prefix_warm(&b, &y, 100, 13); /* and under the new count it is stored anew */
    work_and_poll(&b);
    case_close(&b);
    open_case(&b, 16, &memory.tier);
    ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
    ticket = prefetch(&b, &y, 13);
    CU_ASSERT_EQUAL(wait_for(&b, ticket).num_cached, 12);
    close_ticket(&b, ticket);
    case_close(&b);
    memory_tier_close(&memory);
}

static void a_flush_of_one_tenant_leaves_the_others(void)
{
    struct runtime_case a;
    const struct pkv_namespace_field fields[2] = {prefix_field_of(1, "acme", 0),
                                                  prefix_field_of(1, "other", 0)};
    memory_tier_open(&memory, "memory");
    open_case(&a, 32, &memory.tier);
    for (int i = 0; i < 2; i++) {
        const struct pkv_seq_options options = {
            .size = sizeof options, .namespace_fields = &fields[i], .num_namespace_fields = 1};
        ASSERT_STATUS(PKV_OK, prefix_create(&a, &x, 100, &options));
        ASSERT_STATUS(PKV_OK, prefix_admit(&a, &x, 13, 0, NULL));
        prefix_append(&a, &x, 13);
        prefix_destroy(&a, &x);
    }
    ASSERT_STATUS(PKV_OK, pkv_tier_flush(a.cache, UINT64_MAX, NULL));
    ASSERT_STATUS(PKV_OK, pkv_namespace_flush(a.cache, &fields[0], NULL));
    ASSERT_STATUS(PKV_OK, pkv_tier_flush(a.cache, UINT64_MAX, NULL));
    case_close(&a);
    for (int i = 0; i < 2; i++) {
        const struct pkv_seq_options options = {
            .size = sizeof options, .namespace_fields = &fields[i], .num_namespace_fields = 1};
        open_case(&a, 32, &memory.tier);
        ASSERT_STATUS(PKV_OK, prefix_create(&a, &y, 100, &options));
        const pkv_ticket ticket = prefetch(&a, &y, 13);
        CU_ASSERT_EQUAL(wait_for(&a, ticket).num_cached, i == 0 ? 0 : 12);
        close_ticket(&a, ticket);
        case_close(&a);
    }
    memory_tier_close(&memory);
}

static void a_dead_tier_means_misses_and_counts(void)
{
    struct runtime_case b;
    for (int kind = 0; kind < 2; kind++) {
        memory_tier_open(&memory, "memory");
        compute_elsewhere(100, 13);
        memory.is_down = kind == 0;
        memory.answers_nothing = kind == 1;
        open_case(&b, 16, &memory.tier);
        ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
        const pkv_ticket ticket = prefetch(&b, &y, 13);
        const struct pkv_ticket_info info = wait_for(&b, ticket);
        CU_ASSERT_EQUAL(info.status, PKV_IO);
        CU_ASSERT_EQUAL(info.num_cached, 0);
        close_ticket(&b, ticket);
        ASSERT_STATUS(PKV_OK, prefix_admit(&b, &y, 13, 0, NULL));
        prefix_append(&b, &y, 13);
        prefix_destroy(&b, &y);
        work_and_poll(&b);
        CU_ASSERT_EQUAL(tier_stats(&b).failed_stores, 3);
        CU_ASSERT_EQUAL(case_free(&b, 0), 16);
        case_close(&b);
        memory_tier_close(&memory);
    }
}

static void a_queue_that_is_full_skips_and_a_hit_stores_later(void)
{
    struct runtime_case a;
    memory_tier_open(&memory, "memory");
    prefix_init(&a);
    a.config.tiers = &memory.tier;
    a.config.num_tiers = 1;
    a.config.max_store_blocks = 2;
    case_open(&a);
    prefix_warm(&a, &x, 100, 16);
    CU_ASSERT_EQUAL(tier_stats(&a).waiting_stores, 2);
    CU_ASSERT_EQUAL(tier_stats(&a).skipped_stores, 2);
    work_and_poll(&a);
    CU_ASSERT_EQUAL(memory.num_values, 2);
    prefix_warm(&a, &y, 100, 17);
    work_and_poll(&a);
    CU_ASSERT_EQUAL(memory.num_values, 4);
    case_close(&a);
    memory_tier_close(&memory);
}

static void a_requested_store_is_all_or_none(void)
{
    struct runtime_case a;
    memory_tier_open(&memory, "memory");
    prefix_init(&a);
    a.config.tiers = &memory.tier;
    a.config.num_tiers = 1;
    a.config.max_store_blocks = 3;
    a.config.no_write_behind = true;
    case_open(&a);
    prefix_warm(&a, &x, 100, 16);
    CU_ASSERT_EQUAL(tier_stats(&a).waiting_stores, 0);
    pkv_ticket ticket = {7};
    struct pkv_prompt prompt = prefix_prompt(&x, 16);
    ASSERT_REFUSED(PKV_NO_BLOCKS, "max_store_blocks",
                   pkv_tier_store(a.cache, NULL, &prompt, 0, &ticket));
    CU_ASSERT_EQUAL(ticket.id, 7);
    prompt.num_tokens = 12;
    ASSERT_STATUS(PKV_OK, pkv_tier_store(a.cache, NULL, &prompt, 0, &ticket));
    CU_ASSERT_EQUAL(info_of(&a, ticket).state, PKV_TICKET_STORING);
    CU_ASSERT_EQUAL(info_of(&a, ticket).num_left, 3);
    const struct pkv_ticket_info info = wait_for(&a, ticket);
    CU_ASSERT_EQUAL(info.num_stored, 3);
    CU_ASSERT_EQUAL(info.num_left, 0);
    close_ticket(&a, ticket);
    prompt.token_ids = y.ids;
    ASSERT_STATUS(PKV_OK, prefix_create(&a, &y, 40, NULL));
    ASSERT_STATUS(PKV_NOT_FOUND, pkv_tier_store(a.cache, NULL, &prompt, 0, &ticket));
    case_close(&a);
    memory_tier_close(&memory);
}

/* Windows: a hit needs the kept prefix and the last window of one group, and all of the other. */
static void groups_with_windows_come_back_as_far_as_a_hit_needs_them(void)
{
    for (int32_t length = 9; length <= 41; length += 4) {
        struct runtime_case c;
        memory_tier_open(&memory, "memory");
        for (int turn = 0; turn < 2; turn++) {
            prefix_init(&c);
            struct pkv_group_config *window = case_add_group(&c);
            window->sliding_window = 6;
            window->kept_prefix = 3;
            (void)case_add_layer(&c, 1);
            c.config.tiers = &memory.tier;
            c.config.num_tiers = 1;
            c.config.max_store_blocks = 16;
            case_open(&c);
            if (turn == 0) {
                prefix_warm(&c, &x, 100, length);
                work_and_poll(&c);
            } else {
                memory.num_gets = 0;
                ASSERT_STATUS(PKV_OK, prefix_create(&c, &y, 100, NULL));
                const pkv_ticket ticket = prefetch(&c, &y, length);
                const struct pkv_ticket_info info = wait_for(&c, ticket);
                CU_ASSERT_EQUAL(info.num_cached, (length - 1) / 4 * 4);
                CU_ASSERT(memory.num_gets <= (length - 1) / 4 + 1 + 3);
                ASSERT_STATUS(PKV_OK, prefix_admit(&c, &y, length, 0, NULL));
                CU_ASSERT_EQUAL(y.seq.length, (length - 1) / 4 * 4);
                close_ticket(&c, ticket);
                prefix_append(&c, &y, length - y.seq.length);
                prefix_append(&c, &y, 9);
                prefix_destroy(&c, &y);
                work_and_poll(&c);
            }
            case_close(&c);
        }
        memory_tier_close(&memory);
    }
}

static void a_prefetch_without_room_brings_what_fits(void)
{
    struct runtime_case b;
    memory_tier_open(&memory, "memory");
    compute_elsewhere(100, 33);
    open_case(&b, 8, &memory.tier);
    ASSERT_STATUS(PKV_OK, prefix_create(&b, &x, 900, NULL));
    ASSERT_STATUS(PKV_OK, prefix_admit(&b, &x, 12, 0, NULL)); /* 3 of 8 promised */
    ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
    const pkv_ticket ticket = prefetch(&b, &y, 33);
    const struct pkv_ticket_info info = wait_for(&b, ticket);
    CU_ASSERT_EQUAL(info.status, PKV_NO_BLOCKS);
    CU_ASSERT_EQUAL(info.num_cached, 20);
    prefix_append(&b, &x, 12); /* within its promise */
    close_ticket(&b, ticket);
    prefix_destroy(&b, &x);
    work_and_poll(&b);
    case_close(&b);
    memory_tier_close(&memory);
}

/* What was computed meanwhile is not read over, and the ticket holds that instead. */
static void a_prefetch_and_a_sequence_that_computes_the_same_agree(void)
{
    struct runtime_case b;
    memory_tier_open(&memory, "memory");
    compute_elsewhere(100, 13);
    for (int when = 0; when < 3; when++) {
        open_case(&b, 16, &memory.tier);
        ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
        const pkv_ticket ticket = prefetch(&b, &y, 13);
        for (int i = 0; i < when; i++) {
            work_and_poll(&b);
        }
        prefix_warm(&b, &x, 100, 13);
        const struct pkv_ticket_info info = wait_for(&b, ticket);
        CU_ASSERT_EQUAL(info.num_cached, 12);
        CU_ASSERT_EQUAL(case_taken(&b, 0), 3);
        ASSERT_STATUS(PKV_OK, prefix_admit(&b, &y, 13, 0, NULL));
        prefix_append(&b, &y, 13 - y.seq.length);
        close_ticket(&b, ticket);
        prefix_destroy(&b, &y);
        work_and_poll(&b);
        CU_ASSERT_EQUAL(case_free(&b, 0), 16);
        case_close(&b);
    }
    memory_tier_close(&memory);
}

static void threads_of_the_cache_do_the_work_and_end_with_it(void)
{
    struct runtime_case c;
    memory_tier_open(&memory, "memory");
    for (int turn = 0; turn < 2; turn++) {
        prefix_init(&c);
        c.config.tiers = &memory.tier;
        c.config.num_tiers = 1;
        c.config.num_tier_threads = 2;
        c.config.max_store_blocks = 16;
        case_open(&c);
        if (turn == 0) {
            prefix_warm(&c, &x, 100, 41);
            int32_t num_left = -1;
            ASSERT_STATUS(PKV_OK, pkv_tier_flush(c.cache, UINT64_MAX, &num_left));
            CU_ASSERT_EQUAL(num_left, 0);
        } else {
            ASSERT_STATUS(PKV_OK, prefix_create(&c, &y, 100, NULL));
            const pkv_ticket ticket = prefetch(&c, &y, 41);
            CU_ASSERT_EQUAL(wait_for(&c, ticket).num_cached, 40);
            ASSERT_STATUS(PKV_OK, prefix_admit(&c, &y, 41, 0, NULL));
            prefix_append(&c, &y, 1);
            close_ticket(&c, ticket);
        }
        case_close(&c);
    }
    memory_tier_close(&memory);
}

static bool take_text(void *context, const char *text, size_t bytes)
{
    char *all = context;
    strncat(all, text, bytes);
    return true;
}

static void the_text_of_the_metrics_has_a_sample_for_each_tier(void)
{
    static char text[65536];
    static struct memory_tier other;
    struct runtime_case c;
    memory_tier_open(&memory, "near");
    memory_tier_open(&other, "a \"far\" one");
    pkv_tier *const tiers[2] = {memory.tier, other.tier};
    prefix_init(&c);
    c.config.tiers = tiers;
    c.config.num_tiers = 2;
    c.config.max_store_blocks = 16;
    c.config.metrics_label = "one";
    case_open(&c);
    prefix_warm(&c, &x, 100, 13);
    work_and_poll(&c);
    text[0] = '\0';
    ASSERT_STATUS(PKV_OK, pkv_metrics_write(c.cache, take_text, text));
    const char *metric = strstr(text, "# TYPE pagedkv_tier_stored_blocks_total counter\n");
    CU_ASSERT_PTR_NOT_NULL_FATAL(metric);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(metric,
               "\npagedkv_tier_stored_blocks_total{cache=\"one\",tier=\"0\",tier_name=\"near\"} 3\n"
               "pagedkv_tier_stored_blocks_total{cache=\"one\",tier=\"1\",tier_name=\"a "
               "\\\"far\\\" one\"} 3\n# HELP"));
    case_close(&c);
    memory_tier_close(&memory);
    memory_tier_close(&other);
}

/* What is in the farther tier alone comes to the nearer one when it was loaded. */
static void two_tiers_are_searched_in_order_and_the_nearer_one_is_filled(void)
{
    static struct memory_tier far;
    struct runtime_case c;
    memory_tier_open(&memory, "near");
    memory_tier_open(&far, "far");
    pkv_tier *const tiers[2] = {memory.tier, far.tier};
    open_case(&c, 16, &far.tier);
    prefix_warm(&c, &x, 100, 13);
    work_and_poll(&c);
    case_close(&c);
    prefix_init(&c);
    c.config.tiers = tiers;
    c.config.num_tiers = 2;
    c.config.max_store_blocks = 16;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &y, 100, NULL));
    pkv_ticket ticket = prefetch(&c, &y, 13);
    struct pkv_ticket_info info = wait_for(&c, ticket);
    CU_ASSERT_EQUAL(info.tier_loaded[0], 0);
    CU_ASSERT_EQUAL(info.tier_loaded[1], 12);
    close_ticket(&c, ticket);
    work_and_poll(&c);
    CU_ASSERT_EQUAL(memory.num_values, 3);
    case_close(&c);
    far.num_gets = 0;
    far.is_down = true;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &y, 100, NULL));
    ticket = prefetch(&c, &y, 13);
    info = wait_for(&c, ticket);
    CU_ASSERT_EQUAL(info.tier_loaded[0], 12);
    CU_ASSERT_EQUAL(far.num_gets, 0);
    close_ticket(&c, ticket);
    case_close(&c);
    memory_tier_close(&memory);
    memory_tier_close(&far);
}

static void a_closed_cache_still_stores_and_takes_no_tickets(void)
{
    struct runtime_case c;
    pkv_ticket ticket = {0};
    memory_tier_open(&memory, "memory");
    open_case(&c, 16, &memory.tier);
    prefix_warm(&c, &x, 100, 13);
    pkv_cache_close(c.cache);
    const struct pkv_prompt prompt = prefix_prompt(&x, 13);
    ASSERT_STATUS(PKV_BUSY, pkv_tier_prefetch(c.cache, NULL, &prompt, 13, 0, &ticket));
    ASSERT_STATUS(PKV_BUSY, pkv_tier_store(c.cache, NULL, &prompt, 0, &ticket));
    ASSERT_STATUS(PKV_OK, pkv_tier_work(c.cache, UINT64_MAX, NULL));
    ASSERT_STATUS(PKV_BUSY, pkv_tier_work(c.cache, UINT64_MAX, NULL));
    ASSERT_STATUS(PKV_OK, pkv_tier_flush(c.cache, 0, NULL));
    CU_ASSERT_EQUAL(memory.num_values, 3);
    case_close(&c);
    memory_tier_close(&memory);
}

static void bad_arguments_are_refused(void)
{
    struct runtime_case c;
    pkv_ticket ticket = {0};
    int32_t count = 0;
    struct pkv_tier_stats stats = {.size = sizeof stats};
    struct pkv_ticket_info info = {.size = sizeof info};
    prefix_open(&c, 8);
    const struct pkv_prompt prompt = prefix_prompt(&x, 4);
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_tier_prefetch(c.cache, NULL, &prompt, 4, 0, &ticket));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_tier_store(c.cache, NULL, &prompt, 0, &ticket));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_tier_poll(c.cache, NULL));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_tier_work(c.cache, 0, NULL));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_tier_flush(c.cache, 0, NULL));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_ticket_describe(c.cache, ticket, &info));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_ticket_close(c.cache, ticket));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_ticket_list(c.cache, 0, NULL, 0, &count));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_tier_read_stats(c.cache, 0, &stats));
    case_close(&c);
    memory_tier_open(&memory, "memory");
    open_case(&c, 8, &memory.tier);
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "ticket",
                   pkv_tier_prefetch(c.cache, NULL, &prompt, 4, 0, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "max_cached",
                   pkv_tier_prefetch(c.cache, NULL, &prompt, -1, 0, &ticket));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "tier = 1", pkv_tier_read_stats(c.cache, 1, &stats));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "count", pkv_ticket_list(c.cache, 0, NULL, 0, NULL));
    case_close(&c);
    pkv_tier *none[2] = {memory.tier, NULL};
    prefix_init(&c);
    c.config.tiers = none;
    c.config.num_tiers = 2;
    pkv_cache *cache = NULL;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "tiers[1]", pkv_cache_create(&c.config, &cache));
    c.config.num_tiers = 5;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "num_tiers = 5", pkv_cache_create(&c.config, &cache));
    c.config.num_tiers = 1;
    c.config.num_tier_threads = 65;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "num_tier_threads", pkv_cache_create(&c.config, &cache));
    c.config.num_tier_threads = 0;
    c.config.prefix_cache = false;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "prefix_cache", pkv_cache_create(&c.config, &cache));
    CU_ASSERT_PTR_NULL(cache);
    memory_tier_close(&memory);
}

static const struct test_case cases[] = {
    TEST(what_one_cache_stored_is_a_hit_in_another),
    TEST(what_was_done_takes_effect_at_a_poll),
    TEST(a_block_on_its_way_to_a_tier_is_not_given_to_another),
    TEST(a_block_that_is_read_into_is_free_when_the_reader_has_ended),
    TEST(a_closed_ticket_is_stale_and_old_ones_are_listed),
    TEST(a_store_that_failed_is_a_miss),
    TEST(a_damaged_value_is_told_once_and_removed),
    TEST(a_value_of_another_length_is_corrupt),
    TEST(what_was_prefetched_stays_until_its_ticket_is_closed),
    TEST(a_prefetch_reads_whole_blocks_behind_what_is_cached),
    TEST(another_model_and_other_tokens_find_nothing),
    TEST(a_flush_reaches_what_other_processes_stored),
    TEST(a_flush_of_one_tenant_leaves_the_others),
    TEST(a_dead_tier_means_misses_and_counts),
    TEST(a_queue_that_is_full_skips_and_a_hit_stores_later),
    TEST(a_requested_store_is_all_or_none),
    TEST(groups_with_windows_come_back_as_far_as_a_hit_needs_them),
    TEST(a_prefetch_without_room_brings_what_fits),
    TEST(a_prefetch_and_a_sequence_that_computes_the_same_agree),
    TEST(threads_of_the_cache_do_the_work_and_end_with_it),
    TEST(the_text_of_the_metrics_has_a_sample_for_each_tier),
    TEST(two_tiers_are_searched_in_order_and_the_nearer_one_is_filled),
    TEST(a_closed_cache_still_stores_and_takes_no_tickets),
    TEST(bad_arguments_are_refused),
    TEST_END,
};

const struct test_suite suite_runtime_tiers = {"runtime_tiers", cases};
