/* SPDX-License-Identifier: MIT
 *
 * tier_case.h: a cache with a tier in memory, on the test's own thread: pkv_tier_work is called
 * where the test wants it. Each call checks all invariants of the cache where it changes something.
 */
#ifndef PKV_TEST_RUNTIME_TIER_CASE_H
#define PKV_TEST_RUNTIME_TIER_CASE_H

#include "reuse_case.h"
#include "support/memory_tier.h"

/* The tier of the test at hand, which opens and closes it. */
extern struct memory_tier tier_memory;

/* prefix_open with these tiers and room for every block in the queue of stores. */
void tier_case_open(struct runtime_case *c, int32_t num_blocks, pkv_tier *const *tiers);

/* Works until nothing is waiting; the second lets it take effect. */
void tier_case_work(struct runtime_case *c);
void tier_case_work_and_poll(struct runtime_case *c);

/* A prefetch of the sequence's first num_tokens ids; what its ticket says, now and when it is done.
 */
pkv_ticket tier_case_prefetch(struct runtime_case *c, const struct prefix_seq *seq,
                              int32_t num_tokens);
struct pkv_ticket_info tier_case_info(struct runtime_case *c, pkv_ticket ticket);
struct pkv_ticket_info tier_case_wait(struct runtime_case *c, pkv_ticket ticket);
void tier_case_close_ticket(struct runtime_case *c, pkv_ticket ticket);

struct pkv_tier_stats tier_case_stats(struct runtime_case *c);

/* Another process, with a cache of its own, computes so many tokens; their blocks are in the tier.
 */
void tier_case_compute_elsewhere(int32_t base, int32_t length);

#endif
