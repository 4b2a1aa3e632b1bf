/* SPDX-License-Identifier: MIT */
#include "tier_case.h"

struct memory_tier tier_memory;

/* A case whose cache has the tier; both outlive it. */
void tier_case_open(struct runtime_case *c, int32_t num_blocks, pkv_tier *const *tiers)
{
    prefix_init(c);
    c->groups[0].num_blocks = num_blocks;
    c->config.tiers = tiers;
    c->config.num_tiers = 1;
    c->config.max_store_blocks = num_blocks;
    case_open(c);
}

void tier_case_work(struct runtime_case *c)
{
    int32_t num_moved = 1;
    while (num_moved > 0) {
        ASSERT_STATUS(PKV_OK, pkv_tier_work(c->cache, 0, &num_moved));
    }
}

void tier_case_work_and_poll(struct runtime_case *c)
{
    tier_case_work(c);
    ASSERT_STATUS(PKV_OK, pkv_tier_poll(c->cache, NULL));
    CU_ASSERT_EQUAL(case_check(c), 0);
}

pkv_ticket tier_case_prefetch(struct runtime_case *c, const struct prefix_seq *seq,
                              int32_t num_tokens)
{
    pkv_ticket ticket = {0};
    const struct pkv_prompt prompt = prefix_prompt(seq, num_tokens);
    ASSERT_STATUS(PKV_OK,
                  pkv_tier_prefetch(c->cache, &seq->options, &prompt, num_tokens, 0, &ticket));
    return ticket;
}

struct pkv_ticket_info tier_case_info(struct runtime_case *c, pkv_ticket ticket)
{
    struct pkv_ticket_info info = {.size = sizeof info};
    ASSERT_STATUS(PKV_OK, pkv_ticket_describe(c->cache, ticket, &info));
    return info;
}

struct pkv_ticket_info tier_case_wait(struct runtime_case *c, pkv_ticket ticket)
{
    struct pkv_ticket_info info = {.size = sizeof info};
    ASSERT_STATUS(PKV_OK, pkv_ticket_wait(c->cache, ticket, UINT64_MAX, &info));
    CU_ASSERT_EQUAL(case_check(c), 0);
    return info;
}

void tier_case_close_ticket(struct runtime_case *c, pkv_ticket ticket)
{
    ASSERT_STATUS(PKV_OK, pkv_ticket_close(c->cache, ticket));
    CU_ASSERT_EQUAL(case_check(c), 0);
}

struct pkv_tier_stats tier_case_stats(struct runtime_case *c)
{
    struct pkv_tier_stats stats = {.size = sizeof stats};
    ASSERT_STATUS(PKV_OK, pkv_tier_read_stats(c->cache, 0, &stats));
    return stats;
}

/* Another process computes a prompt of so many tokens; what it stored is in the tier. */
void tier_case_compute_elsewhere(int32_t base, int32_t length)
{
    static struct prefix_seq seq;
    struct runtime_case a;
    tier_case_open(&a, 32, &tier_memory.tier);
    prefix_warm(&a, &seq, base, length);
    tier_case_work_and_poll(&a);
    CU_ASSERT_EQUAL(case_free(&a, 0), 32);
    case_close(&a);
}
