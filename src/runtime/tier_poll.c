/* SPDX-License-Identifier: MIT
 *
 * Tickets go on in the order in which they were begun, so that of two that want the last free
 * blocks the same one gets them in every run. */
#include "runtime/tier_poll.h"

#include <string.h>

#include "prefix/prefix_blocks.h"
#include "prefix/prefix_claim.h"
#include "runtime/gather.h"
#include "runtime/namespace.h"
#include "runtime/prefetch.h"

/* A block has become free after others before it in its prompt, whose stores were done at an
 * earlier poll: these are moved behind it in the order of eviction, or a prefix would lose its
 * beginning first. */
static void keep_behind(pkv_cache *cache, const struct store *store)
{
    struct prefix_index *index = cache->reuse.index;
    const struct prefix_node *node = prefix_index_node(index, store->node);
    const struct block_set *blocks = &cache->groups[store->group].blocks;
    if (node == NULL || node->depth == 0 || pkv_pool_ref_count(blocks->pool, store->block) > 0) {
        return;
    }
    const int32_t above = prefix_index_block(index, node->parent, store->group);
    if (above == NO_BLOCK || pkv_pool_ref_count(blocks->pool, above) > 0) {
        return;
    }
    const int32_t count = node->depth;
    struct prefix_ref ref = node->parent;
    for (int32_t i = count - 1; i >= 0; i--) {
        cache->reuse.matched[i] = ref;
        ref = prefix_index_node(index, ref)->parent;
    }
    prefix_index_touch(index, cache->reuse.matched, count);
}

static void finish_store(pkv_cache *cache, const struct store *store)
{
    struct offload *offload = &cache->offload;
    if (store->stored != 0 && prefix_index_is_live(cache->reuse.index, store->node)) {
        const struct prefix_node *node = prefix_index_node(cache->reuse.index, store->node);
        tier_known_add(&offload->known, node->key, store->group, store->stored);
        events_offload(&cache->events, store->node);
    }
    if (store->ticket == NO_TICKET) {
        return;
    }
    struct ticket *ticket = &offload->tickets.at[store->ticket];
    ticket->num_left--;
    ticket->num_stored += store->stored == store->tiers;
    if (store->stored != store->tiers && ticket->status == PKV_OK) {
        ticket->status = PKV_IO;
    }
    if (ticket->num_left == 0) {
        ticket->state = PKV_TICKET_DONE;
        offload->num_done_tickets += ticket->is_open;
    }
}

static void end(pkv_cache *cache, int32_t index)
{
    prefetch_drop(cache, index);
    namespace_leave(cache, &cache->offload.tickets.at[index].prototype);
    ticket_release(&cache->offload.tickets, index);
}

/* Nobody is working for it, and nothing of it is on its way. */
static bool may_end(const struct ticket *ticket)
{
    return ticket->is_used && !ticket->is_open && ticket->num_workers == 0 && ticket->num_left == 0;
}

/* The ready ticket that was begun first. */
static int32_t next_ready(const struct ticket_records *tickets)
{
    int32_t best = NO_TICKET;
    for (int32_t i = 0; i < tickets->capacity; i++) {
        const struct ticket *ticket = &tickets->at[i];
        if (ticket->is_used && ticket->is_open && ticket->is_ready &&
            (best == NO_TICKET || ticket->number < tickets->at[best].number)) {
            best = i;
        }
    }
    return best;
}

static void go_on(pkv_cache *cache, int32_t index)
{
    struct ticket *ticket = &cache->offload.tickets.at[index];
    ticket->is_ready = false;
    if (ticket->state == PKV_TICKET_FINDING) {
        prefetch_take(cache, index);
        pthread_cond_broadcast(&cache->offload.has_work); /* several may load it */
    } else if (ticket->state == PKV_TICKET_LOADING) {
        prefetch_publish(cache, index);
    }
}

void tier_poll(pkv_cache *cache)
{
    struct offload *offload = &cache->offload;
    struct store done;
    while (store_queue_release(&offload->stores, &done)) {
        keep_behind(cache, &done);
        finish_store(cache, &done);
    }
    if (offload->tickets.num_used == 0) {
        return;
    }
    for (int32_t i = 0; i < offload->tickets.capacity; i++) {
        if (may_end(&offload->tickets.at[i])) {
            end(cache, i);
        }
    }
    for (int32_t i = next_ready(&offload->tickets); i != NO_TICKET;
         i = next_ready(&offload->tickets)) {
        go_on(cache, i);
    }
}

void tier_close_ticket(pkv_cache *cache, int32_t index)
{
    struct ticket *ticket = &cache->offload.tickets.at[index];
    ticket->is_open = false;
    cache->offload.tickets.num_open--;
    if (may_end(ticket)) {
        end(cache, index);
    }
}

enum pkv_status tier_read_ticket(const pkv_cache *cache, pkv_ticket handle,
                                 struct pkv_ticket_info *info)
{
    const int32_t index = ticket_find(&cache->offload.tickets, handle);
    if (index == NO_TICKET) {
        return refuse(PKV_STALE_HANDLE, "ticket %016llx is stale", (unsigned long long)handle.id);
    }
    const struct ticket *ticket = &cache->offload.tickets.at[index];
    *info = (struct pkv_ticket_info){
        .state = ticket->state,
        .status = ticket->status,
        .num_cached = ticket->num_cached,
        .num_loaded = ticket->num_loaded,
        .num_stored = ticket->num_stored,
        .num_left = ticket->num_left,
        .begun_ns = ticket->begun_ns,
    };
    memcpy(info->tier_loaded, ticket->tier_loaded, sizeof info->tier_loaded);
    return PKV_OK;
}
