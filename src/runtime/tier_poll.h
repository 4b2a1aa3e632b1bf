/* SPDX-License-Identifier: MIT
 *
 * tier_poll.h: what workers have done takes effect. The mutex is held. Takes no memory. */
#ifndef PKV_RUNTIME_TIER_POLL_H
#define PKV_RUNTIME_TIER_POLL_H

#include "pagedkv/offload.h"
#include "runtime/cache.h"

/* Stores that are done are released, prefetches go on or are done, closed tickets end. O(tickets +
 * what changes). */
void tier_poll(pkv_cache *cache);

/* Describes an open ticket: PKV_STALE_HANDLE. */
enum pkv_status tier_read_ticket(const pkv_cache *cache, pkv_ticket ticket,
                                 struct pkv_ticket_info *info);

/* A ticket's handle is stale from now on; it ends as soon as no worker has it. O(its blocks). */
void tier_close_ticket(pkv_cache *cache, int32_t ticket);

#endif
