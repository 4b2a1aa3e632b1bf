/* SPDX-License-Identifier: MIT
 *
 * A cache and its tiers. Keys and values follow from tokens (reuse_case.h), so a block that comes
 * back as anything but what it was gives wrong attention in the step that reads it. */
#include <stdlib.h>
#include <string.h>

#include "tier_case.h"

static struct prefix_seq x, y;

static void what_one_cache_stored_is_a_hit_in_another(void)
{
    struct runtime_case b;
    int32_t num_cached = 0;
    memory_tier_open(&tier_memory, "memory");
    tier_case_compute_elsewhere(100, 14);
    CU_ASSERT_EQUAL(tier_memory.num_values, 3);

    tier_case_open(&b, 16, &tier_memory.tier);
    ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
    CU_ASSERT_EQUAL(prefix_hit(&b, &y, 14), 0);
    const pkv_ticket ticket = tier_case_prefetch(&b, &y, 14);
    const struct pkv_ticket_info info = tier_case_wait(&b, ticket);
    CU_ASSERT_EQUAL(info.status, PKV_OK);
    CU_ASSERT_EQUAL(info.num_cached, 12);
    CU_ASSERT_EQUAL(info.num_loaded, 12);
    CU_ASSERT_EQUAL(info.tier_loaded[0], 12);
    ASSERT_STATUS(PKV_OK, prefix_admit(&b, &y, 14, 0, &num_cached));
    CU_ASSERT_EQUAL(num_cached, 12);
    prefix_append(&b, &y, 2); /* compared with dense attention over all 14 */
    tier_case_close_ticket(&b, ticket);
    CU_ASSERT_EQUAL(tier_case_stats(&b).hit_tokens, 12);
    CU_ASSERT_EQUAL(tier_case_stats(&b).loaded_blocks, 3);
    prefix_destroy(&b, &y);
    tier_case_work_and_poll(&b);
    case_close(&b);
    memory_tier_close(&tier_memory);
}

/* Nothing that a worker does is seen before a poll, whatever it has done: hits follow from the
 * order of the calls. */
static void what_was_done_takes_effect_at_a_poll(void)
{
    struct runtime_case b;
    memory_tier_open(&tier_memory, "memory");
    tier_case_compute_elsewhere(100, 13);
    tier_case_open(&b, 16, &tier_memory.tier);
    ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
    const pkv_ticket ticket = tier_case_prefetch(&b, &y, 13);
    tier_case_work(&b);
    CU_ASSERT_EQUAL(case_taken(&b, 0), 0); /* found, and nothing taken */
    ASSERT_STATUS(PKV_OK, pkv_tier_poll(b.cache, NULL));
    CU_ASSERT_EQUAL(case_taken(&b, 0), 3);
    tier_case_work(&b);
    CU_ASSERT_EQUAL(prefix_hit(&b, &y, 13), 0); /* read, and not indexed */
    int32_t num_done = 0;
    ASSERT_STATUS(PKV_OK, pkv_tier_poll(b.cache, &num_done));
    CU_ASSERT_EQUAL(num_done, 1);
    CU_ASSERT_EQUAL(prefix_hit(&b, &y, 13), 12);
    tier_case_close_ticket(&b, ticket);
    CU_ASSERT_EQUAL(case_free(&b, 0), 16);
    CU_ASSERT_EQUAL(prefix_hit(&b, &y, 13), 12);
    case_close(&b);
    memory_tier_close(&tier_memory);
}

/* H1: what a transfer reads is held until it has ended, whatever its owner does. Of 4 blocks two
 * are on their way to a tier when their sequence ends: 4 are refused, 2 are given, and the other 2
 * when the store has ended. */
static void a_block_on_its_way_to_a_tier_is_not_given_to_another(void)
{
    struct runtime_case c;
    memory_tier_open(&tier_memory, "memory");
    tier_case_open(&c, 4, &tier_memory.tier);
    prefix_warm(&c, &x, 100, 8);
    CU_ASSERT_EQUAL(case_free(&c, 0), 2);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &y, 500, NULL));
    ASSERT_STATUS(PKV_NO_BLOCKS, prefix_admit(&c, &y, 16, 0, NULL));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &y, 8, 0, NULL));
    tier_case_work(&c);
    CU_ASSERT_EQUAL(case_free(&c, 0), 0); /* two held, two promised */
    ASSERT_STATUS(PKV_OK, pkv_tier_poll(c.cache, NULL));
    CU_ASSERT_EQUAL(case_free(&c, 0), 2);
    prefix_append(&c, &y, 8);
    prefix_destroy(&c, &y);
    tier_case_work_and_poll(&c);
    case_close(&c);
    memory_tier_close(&tier_memory);
}

/* The same of a load: its ticket is closed while a worker reads into its blocks. */
static void a_block_that_is_read_into_is_free_when_the_reader_has_ended(void)
{
    struct runtime_case b;
    memory_tier_open(&tier_memory, "memory");
    tier_case_compute_elsewhere(100, 13);
    tier_case_open(&b, 3, &tier_memory.tier);
    ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
    const pkv_ticket ticket = tier_case_prefetch(&b, &y, 13);
    tier_case_work(&b);
    ASSERT_STATUS(PKV_OK, pkv_tier_poll(b.cache, NULL));
    CU_ASSERT_EQUAL(case_free(&b, 0), 0);
    tier_case_close_ticket(&b, ticket);
    CU_ASSERT_EQUAL(case_free(&b, 0), 3);
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_ticket_close(b.cache, ticket));
    tier_case_work_and_poll(&b);
    CU_ASSERT_EQUAL(prefix_hit(&b, &y, 13), 0);
    case_close(&b);
    memory_tier_close(&tier_memory);
}

/* H2: a second close of a ticket is stale and changes nothing, and old tickets are listed. */
static void a_closed_ticket_is_stale_and_old_ones_are_listed(void)
{
    struct runtime_case c;
    pkv_ticket found[4] = {{0}};
    int32_t count = -1;
    struct pkv_ticket_info info = {.size = sizeof info};
    memory_tier_open(&tier_memory, "memory");
    tier_case_open(&c, 8, &tier_memory.tier);
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
    tier_case_close_ticket(&c, old);
    ASSERT_REFUSED(PKV_STALE_HANDLE, "ticket", pkv_ticket_close(c.cache, old));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_ticket_describe(c.cache, old, &info));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_ticket_wait(c.cache, old, 0, NULL));
    CU_ASSERT_EQUAL(tier_case_wait(&c, young).num_cached, 0);
    tier_case_close_ticket(&c, young);
    case_close(&c);
    memory_tier_close(&tier_memory);
}

/* J1: a store that failed at any block leaves a miss there, never a damaged hit. */
static void a_store_that_failed_is_a_miss(void)
{
    for (int32_t fail_at = 1; fail_at <= 4; fail_at++) {
        struct runtime_case a;
        struct runtime_case b;
        memory_tier_open(&tier_memory, "memory");
        tier_memory.fails_put_at = fail_at;
        tier_case_open(&a, 16, &tier_memory.tier);
        prefix_warm(&a, &x, 100, 14);
        tier_case_work_and_poll(&a);
        CU_ASSERT_EQUAL(tier_case_stats(&a).failed_stores, (uint64_t)(fail_at <= 3));
        case_close(&a);
        tier_case_open(&b, 16, &tier_memory.tier);
        ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
        const pkv_ticket ticket = tier_case_prefetch(&b, &y, 14);
        CU_ASSERT_EQUAL(tier_case_wait(&b, ticket).num_cached,
                        fail_at <= 3 ? 4 * (fail_at - 1) : 12);
        ASSERT_STATUS(PKV_OK, prefix_admit(&b, &y, 14, 0, NULL));
        prefix_append(&b, &y, 14 - y.seq.length);
        tier_case_close_ticket(&b, ticket);
        tier_case_work_and_poll(&b);
        case_close(&b);
        memory_tier_close(&tier_memory);
    }
}

/* J2: a damaged value is told once, removed, and a miss from then on. */
static void a_damaged_value_is_told_once_and_removed(void)
{
    memory_tier_open(&tier_memory, "memory");
    tier_case_compute_elsewhere(100, 14);
    struct memory_value *value = &tier_memory.values[1];
    for (size_t at = 0; at < value->length; at++) {
        struct runtime_case b;
        struct memory_value kept = tier_memory.values[1];
        unsigned char *copy = malloc(kept.length);
        memcpy(copy, kept.bytes, kept.length);
        tier_memory.values[1].bytes[at] ^= 0x10;
        tier_case_open(&b, 16, &tier_memory.tier);
        b.config.no_write_behind = true;
        ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
        pkv_ticket ticket = tier_case_prefetch(&b, &y, 14);
        struct pkv_ticket_info info = tier_case_wait(&b, ticket);
        CU_ASSERT_EQUAL(info.status, PKV_CORRUPT);
        CU_ASSERT_EQUAL(info.num_cached, 4);
        CU_ASSERT_EQUAL(tier_memory.num_values, 2);
        tier_case_close_ticket(&b, ticket);
        ticket = tier_case_prefetch(&b, &y, 14);
        info = tier_case_wait(&b, ticket);
        CU_ASSERT_EQUAL(info.status, PKV_OK);
        CU_ASSERT_EQUAL(info.num_cached, 4);
        tier_case_close_ticket(&b, ticket);
        CU_ASSERT_EQUAL(tier_case_stats(&b).corrupt_blocks, 1);
        case_close(&b);
        tier_memory.values[2] = tier_memory.values[1]; /* where removal has moved the last one */
        tier_memory.values[1] = (struct memory_value){.bytes = copy, .length = kept.length};
        memcpy(tier_memory.values[1].name, kept.name, sizeof kept.name);
        tier_memory.num_values = 3;
        value = &tier_memory.values[1];
    }
    memory_tier_close(&tier_memory);
}

static void a_value_of_another_length_is_corrupt(void)
{
    for (int32_t cut = 1; cut < 60; cut += 7) {
        struct runtime_case b;
        memory_tier_open(&tier_memory, "memory");
        tier_case_compute_elsewhere(100, 14);
        tier_memory.values[0].length -= (size_t)cut;
        tier_case_open(&b, 16, &tier_memory.tier);
        ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
        const pkv_ticket ticket = tier_case_prefetch(&b, &y, 14);
        const struct pkv_ticket_info info = tier_case_wait(&b, ticket);
        CU_ASSERT_EQUAL(info.status, PKV_CORRUPT);
        CU_ASSERT_EQUAL(info.num_cached, 0);
        tier_case_close_ticket(&b, ticket);
        CU_ASSERT_EQUAL(case_free(&b, 0), 16);
        case_close(&b);
        memory_tier_close(&tier_memory);
    }
}

/* J4: what was prefetched is held until its ticket is closed, and a probe prefetches nothing. */
static void what_was_prefetched_stays_until_its_ticket_is_closed(void)
{
    struct runtime_case b;
    memory_tier_open(&tier_memory, "memory");
    tier_memory.lists = true;
    tier_case_compute_elsewhere(100, 13);
    tier_case_open(&b, 5, &tier_memory.tier);
    ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
    CU_ASSERT_EQUAL(prefix_probe(&b, &y, 13, 0).tier_cached[0], 12);
    CU_ASSERT_EQUAL(tier_memory.num_gets, 0);
    const pkv_ticket ticket = tier_case_prefetch(&b, &y, 13);
    (void)tier_case_wait(&b, ticket);
    CU_ASSERT_EQUAL(prefix_probe(&b, &y, 13, 0).tier_cached[0], 0);
    prefix_warm(&b, &x, 900, 8); /* takes what is free, again and again */
    tier_case_work_and_poll(&b);
    prefix_warm(&b, &x, 700, 8);
    tier_case_work_and_poll(&b);
    CU_ASSERT_EQUAL(prefix_hit(&b, &y, 13), 12);
    tier_case_close_ticket(&b, ticket);
    prefix_warm(&b, &x, 300, 16);
    tier_case_work_and_poll(&b);
    CU_ASSERT(prefix_hit(&b, &y, 13) < 12);
    case_close(&b);
    memory_tier_close(&tier_memory);
}

/* J5: a restored range begins behind what is resident, in whole blocks: of 8 resident tokens and 11
 * in the tier nothing is read, of 12 one block. */
static void a_prefetch_reads_whole_blocks_behind_what_is_cached(void)
{
    for (int32_t length = 11; length <= 12; length++) {
        struct runtime_case b;
        memory_tier_open(&tier_memory, "memory");
        tier_case_compute_elsewhere(100, length);
        tier_case_open(&b, 16, &tier_memory.tier);
        prefix_warm(&b, &x, 100, 8);
        tier_case_work_and_poll(&b);
        tier_memory.num_gets = 0;
        ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
        const pkv_ticket ticket = tier_case_prefetch(&b, &y, 16);
        const struct pkv_ticket_info info = tier_case_wait(&b, ticket);
        CU_ASSERT_EQUAL(info.num_cached, length == 12 ? 12 : 8);
        CU_ASSERT_EQUAL(info.num_loaded, length == 12 ? 4 : 0);
        CU_ASSERT_EQUAL(tier_memory.num_gets, length == 12 ? 1 : 0);
        tier_case_close_ticket(&b, ticket);
        case_close(&b);
        memory_tier_close(&tier_memory);
    }
}

/* J7, J8: model, weights and format are part of a stored block's key, and its tokens are compared:
 * neither another model nor another request's value under the same name is a hit. */
static void another_model_and_other_tokens_find_nothing(void)
{
    struct runtime_case b;
    memory_tier_open(&tier_memory, "memory");
    tier_case_compute_elsewhere(100, 13);
    tier_case_open(&b, 16, &tier_memory.tier);
    case_close(&b);
    prefix_init(&b);
    b.config.tiers = &tier_memory.tier;
    b.config.num_tiers = 1;
    b.config.fingerprint = "other";
    b.config.fingerprint_bytes = 5;
    case_open(&b);
    ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
    pkv_ticket ticket = tier_case_prefetch(&b, &y, 13);
    CU_ASSERT_EQUAL(tier_case_wait(&b, ticket).num_cached, 0);
    tier_case_close_ticket(&b, ticket);
    case_close(&b);

    /* the value of one block under the name of another: sound, and not what is wanted */
    struct memory_value swapped = tier_memory.values[0];
    tier_memory.values[0].bytes = tier_memory.values[1].bytes;
    tier_memory.values[1].bytes = swapped.bytes;
    tier_case_open(&b, 16, &tier_memory.tier);
    ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
    ticket = tier_case_prefetch(&b, &y, 13);
    CU_ASSERT_EQUAL(tier_case_wait(&b, ticket).num_cached, 0);
    CU_ASSERT(tier_case_stats(&b).collisions > 0);
    CU_ASSERT_EQUAL(tier_memory.num_values, 3); /* sound values are not removed */
    tier_case_close_ticket(&b, ticket);
    case_close(&b);
    memory_tier_close(&tier_memory);
}

static void a_flush_reaches_what_other_processes_stored(void)
{
    struct runtime_case a;
    struct runtime_case b;
    memory_tier_open(&tier_memory, "memory");
    tier_case_compute_elsewhere(100, 13);
    tier_case_open(&a, 16, &tier_memory.tier);
    ASSERT_STATUS(PKV_OK, pkv_cache_reset(a.cache, false, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(&a, &y, 100, NULL));
    pkv_ticket ticket = tier_case_prefetch(&a, &y, 13); /* the flush goes to the tier before it */
    CU_ASSERT_EQUAL(tier_case_wait(&a, ticket).num_cached, 0);
    CU_ASSERT_EQUAL(tier_case_stats(&a).void_blocks, 3);
    CU_ASSERT_EQUAL(tier_memory.num_values, 0);
    tier_case_close_ticket(&a, ticket);
    ASSERT_STATUS(PKV_OK, pkv_tier_flush(a.cache, UINT64_MAX, NULL));
    case_close(&a);
    tier_case_open(&b, 16, &tier_memory.tier);
    ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
    ticket = tier_case_prefetch(&b, &y, 13);
    CU_ASSERT_EQUAL(tier_case_wait(&b, ticket).num_cached, 0);
    tier_case_close_ticket(&b, ticket);
    prefix_destroy(&b, &y);
    prefix_warm(&b, &y, 100, 13); /* and under the new count it is stored anew */
    tier_case_work_and_poll(&b);
    case_close(&b);
    tier_case_open(&b, 16, &tier_memory.tier);
    ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
    ticket = tier_case_prefetch(&b, &y, 13);
    CU_ASSERT_EQUAL(tier_case_wait(&b, ticket).num_cached, 12);
    tier_case_close_ticket(&b, ticket);
    case_close(&b);
    memory_tier_close(&tier_memory);
}

static void a_flush_of_one_tenant_leaves_the_others(void)
{
    struct runtime_case a;
    const struct pkv_namespace_field fields[2] = {prefix_field_of(1, "acme", 0),
                                                  prefix_field_of(1, "other", 0)};
    memory_tier_open(&tier_memory, "memory");
    tier_case_open(&a, 32, &tier_memory.tier);
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
        tier_case_open(&a, 32, &tier_memory.tier);
        ASSERT_STATUS(PKV_OK, prefix_create(&a, &y, 100, &options));
        const pkv_ticket ticket = tier_case_prefetch(&a, &y, 13);
        CU_ASSERT_EQUAL(tier_case_wait(&a, ticket).num_cached, i == 0 ? 0 : 12);
        tier_case_close_ticket(&a, ticket);
        case_close(&a);
    }
    memory_tier_close(&tier_memory);
}

static void a_dead_tier_means_misses_and_counts(void)
{
    struct runtime_case b;
    for (int kind = 0; kind < 2; kind++) {
        memory_tier_open(&tier_memory, "memory");
        tier_case_compute_elsewhere(100, 13);
        tier_memory.is_down = kind == 0;
        tier_memory.answers_nothing = kind == 1;
        tier_case_open(&b, 16, &tier_memory.tier);
        ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
        const pkv_ticket ticket = tier_case_prefetch(&b, &y, 13);
        const struct pkv_ticket_info info = tier_case_wait(&b, ticket);
        CU_ASSERT_EQUAL(info.status, PKV_IO);
        CU_ASSERT_EQUAL(info.num_cached, 0);
        tier_case_close_ticket(&b, ticket);
        ASSERT_STATUS(PKV_OK, prefix_admit(&b, &y, 13, 0, NULL));
        prefix_append(&b, &y, 13);
        prefix_destroy(&b, &y);
        tier_case_work_and_poll(&b);
        CU_ASSERT_EQUAL(tier_case_stats(&b).failed_stores, 3);
        CU_ASSERT_EQUAL(case_free(&b, 0), 16);
        case_close(&b);
        memory_tier_close(&tier_memory);
    }
}

static void a_queue_that_is_full_skips_and_a_hit_stores_later(void)
{
    struct runtime_case a;
    memory_tier_open(&tier_memory, "memory");
    prefix_init(&a);
    a.config.tiers = &tier_memory.tier;
    a.config.num_tiers = 1;
    a.config.max_store_blocks = 2;
    case_open(&a);
    prefix_warm(&a, &x, 100, 16);
    CU_ASSERT_EQUAL(tier_case_stats(&a).waiting_stores, 2);
    CU_ASSERT_EQUAL(tier_case_stats(&a).skipped_stores, 2);
    tier_case_work_and_poll(&a);
    CU_ASSERT_EQUAL(tier_memory.num_values, 2);
    prefix_warm(&a, &y, 100, 17);
    tier_case_work_and_poll(&a);
    CU_ASSERT_EQUAL(tier_memory.num_values, 4);
    case_close(&a);
    memory_tier_close(&tier_memory);
}

static void a_requested_store_is_all_or_none(void)
{
    struct runtime_case a;
    memory_tier_open(&tier_memory, "memory");
    prefix_init(&a);
    a.config.tiers = &tier_memory.tier;
    a.config.num_tiers = 1;
    a.config.max_store_blocks = 3;
    a.config.no_write_behind = true;
    case_open(&a);
    prefix_warm(&a, &x, 100, 16);
    CU_ASSERT_EQUAL(tier_case_stats(&a).waiting_stores, 0);
    pkv_ticket ticket = {7};
    struct pkv_prompt prompt = prefix_prompt(&x, 16);
    ASSERT_REFUSED(PKV_NO_BLOCKS, "max_store_blocks",
                   pkv_tier_store(a.cache, NULL, &prompt, 0, &ticket));
    CU_ASSERT_EQUAL(ticket.id, 7);
    prompt.num_tokens = 12;
    ASSERT_STATUS(PKV_OK, pkv_tier_store(a.cache, NULL, &prompt, 0, &ticket));
    CU_ASSERT_EQUAL(tier_case_info(&a, ticket).state, PKV_TICKET_STORING);
    CU_ASSERT_EQUAL(tier_case_info(&a, ticket).num_left, 3);
    const struct pkv_ticket_info info = tier_case_wait(&a, ticket);
    CU_ASSERT_EQUAL(info.num_stored, 3);
    CU_ASSERT_EQUAL(info.num_left, 0);
    tier_case_close_ticket(&a, ticket);
    prompt.token_ids = y.ids;
    ASSERT_STATUS(PKV_OK, prefix_create(&a, &y, 40, NULL));
    ASSERT_STATUS(PKV_NOT_FOUND, pkv_tier_store(a.cache, NULL, &prompt, 0, &ticket));
    case_close(&a);
    memory_tier_close(&tier_memory);
}

/* Windows: a hit needs the kept prefix and the last window of one group, and all of the other. */
static void groups_with_windows_come_back_as_far_as_a_hit_needs_them(void)
{
    for (int32_t length = 9; length <= 41; length += 4) {
        struct runtime_case c;
        memory_tier_open(&tier_memory, "memory");
        for (int turn = 0; turn < 2; turn++) {
            prefix_init(&c);
            struct pkv_group_config *window = case_add_group(&c);
            window->sliding_window = 6;
            window->kept_prefix = 3;
            (void)case_add_layer(&c, 1);
            c.config.tiers = &tier_memory.tier;
            c.config.num_tiers = 1;
            c.config.max_store_blocks = 16;
            case_open(&c);
            if (turn == 0) {
                prefix_warm(&c, &x, 100, length);
                tier_case_work_and_poll(&c);
            } else {
                tier_memory.num_gets = 0;
                ASSERT_STATUS(PKV_OK, prefix_create(&c, &y, 100, NULL));
                const pkv_ticket ticket = tier_case_prefetch(&c, &y, length);
                const struct pkv_ticket_info info = tier_case_wait(&c, ticket);
                CU_ASSERT_EQUAL(info.num_cached, (length - 1) / 4 * 4);
                CU_ASSERT(tier_memory.num_gets <= (length - 1) / 4 + 1 + 3);
                ASSERT_STATUS(PKV_OK, prefix_admit(&c, &y, length, 0, NULL));
                CU_ASSERT_EQUAL(y.seq.length, (length - 1) / 4 * 4);
                tier_case_close_ticket(&c, ticket);
                prefix_append(&c, &y, length - y.seq.length);
                prefix_append(&c, &y, 9);
                prefix_destroy(&c, &y);
                tier_case_work_and_poll(&c);
            }
            case_close(&c);
        }
        memory_tier_close(&tier_memory);
    }
}

static void a_prefetch_without_room_brings_what_fits(void)
{
    struct runtime_case b;
    memory_tier_open(&tier_memory, "memory");
    tier_case_compute_elsewhere(100, 33);
    tier_case_open(&b, 8, &tier_memory.tier);
    ASSERT_STATUS(PKV_OK, prefix_create(&b, &x, 900, NULL));
    ASSERT_STATUS(PKV_OK, prefix_admit(&b, &x, 12, 0, NULL)); /* 3 of 8 promised */
    ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
    const pkv_ticket ticket = tier_case_prefetch(&b, &y, 33);
    const struct pkv_ticket_info info = tier_case_wait(&b, ticket);
    CU_ASSERT_EQUAL(info.status, PKV_NO_BLOCKS);
    CU_ASSERT_EQUAL(info.num_cached, 20);
    prefix_append(&b, &x, 12); /* within its promise */
    tier_case_close_ticket(&b, ticket);
    prefix_destroy(&b, &x);
    tier_case_work_and_poll(&b);
    case_close(&b);
    memory_tier_close(&tier_memory);
}

/* What was computed meanwhile is not read over, and the ticket holds that instead. */
static void a_prefetch_and_a_sequence_that_computes_the_same_agree(void)
{
    struct runtime_case b;
    memory_tier_open(&tier_memory, "memory");
    tier_case_compute_elsewhere(100, 13);
    for (int when = 0; when < 3; when++) {
        tier_case_open(&b, 16, &tier_memory.tier);
        ASSERT_STATUS(PKV_OK, prefix_create(&b, &y, 100, NULL));
        const pkv_ticket ticket = tier_case_prefetch(&b, &y, 13);
        for (int i = 0; i < when; i++) {
            tier_case_work_and_poll(&b);
        }
        prefix_warm(&b, &x, 100, 13);
        const struct pkv_ticket_info info = tier_case_wait(&b, ticket);
        CU_ASSERT_EQUAL(info.num_cached, 12);
        CU_ASSERT_EQUAL(case_taken(&b, 0), 3);
        ASSERT_STATUS(PKV_OK, prefix_admit(&b, &y, 13, 0, NULL));
        prefix_append(&b, &y, 13 - y.seq.length);
        tier_case_close_ticket(&b, ticket);
        prefix_destroy(&b, &y);
        tier_case_work_and_poll(&b);
        CU_ASSERT_EQUAL(case_free(&b, 0), 16);
        case_close(&b);
    }
    memory_tier_close(&tier_memory);
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
    TEST_END,
};

const struct test_suite suite_runtime_tiers = {"runtime_tiers", cases};
