/* SPDX-License-Identifier: MIT
 *
 * The public calls on tickets, and the counters of tiers. A prefetch begins as a prototype of the
 * sequence that it is for: what that would adopt is what is brought. */
#include "base/error.h"
#include "base/minmax.h"
#include "base/sized.h"
#include "prefix/prefix_blocks.h"
#include "runtime/match.h"
#include "runtime/namespace.h"
#include "runtime/prefetch.h"
#include "runtime/prompt.h"
#include "runtime/seq_options.h"
#include "runtime/tier_poll.h"

/* What a ticket is to be: options and prompt, checked. */
struct wanted {
    struct seq prototype;
    struct namespace_fields fields;
    struct pkv_prompt prompt;
    int32_t max_cached;
    uint64_t now_ns;
};

static enum pkv_status take_wanted(const pkv_cache *cache, const struct pkv_seq_options *options,
                                   const struct pkv_prompt *prompt, const pkv_ticket *ticket,
                                   struct wanted *wanted)
{
    enum pkv_status status = cache_check_tiers(cache);
    if (status == PKV_OK && ticket == NULL) {
        status = INVALID("ticket is NULL");
    }
    if (status == PKV_OK) {
        status = prompt_take(prompt, true, &wanted->prompt);
    }
    return status == PKV_OK
               ? seq_options_check(&cache->config, options, &wanted->prototype, &wanted->fields)
               : status;
}

/* A ticket in this state, which has joined its namespaces. */
static enum pkv_status open_ticket(pkv_cache *cache, struct wanted *wanted,
                                   enum pkv_ticket_state state, int32_t *index)
{
    struct ticket_records *tickets = &cache->offload.tickets;
    if (cache->is_closed) {
        return refuse(PKV_BUSY, "the cache is closed");
    }
    if (tickets->first_free == NO_TICKET) {
        return refuse(PKV_NO_BLOCKS, "%d tickets are open, as many as max_tickets",
                      tickets->capacity);
    }
    const enum pkv_status status = namespace_join(cache, &wanted->fields, &wanted->prototype);
    if (status == PKV_OK) {
        *index = ticket_claim(tickets, state);
        tickets->at[*index].prototype = wanted->prototype;
        tickets->at[*index].begun_ns = wanted->now_ns;
    }
    return status;
}

enum pkv_status pkv_tier_prefetch(pkv_cache *cache, const struct pkv_seq_options *options,
                                  const struct pkv_prompt *prompt, int32_t max_cached,
                                  uint64_t now_ns, pkv_ticket *ticket)
{
    struct wanted wanted = {.max_cached = max_cached, .now_ns = now_ns};
    int32_t index = NO_TICKET;
    enum pkv_status status = take_wanted(cache, options, prompt, ticket, &wanted);
    if (status == PKV_OK && max_cached < 0) {
        status = INVALID("max_cached = %d, below 0", max_cached);
    }
    if (status != PKV_OK) {
        return status;
    }
    cache_lock(cache);
    status = open_ticket(cache, &wanted, PKV_TICKET_FINDING, &index);
    if (status == PKV_OK) {
        prefetch_begin(cache, index, &wanted.fields, &wanted.prompt,
                       match_max_blocks(cache, &wanted.prompt, max_cached));
        *ticket = ticket_handle(&cache->offload.tickets, index);
        pthread_cond_signal(&cache->offload.has_work);
    }
    cache_unlock(cache);
    return status;
}

/* ---- stores */

/* Does a sequence that adopts num_blocks have this entry, and with which block? */
static int32_t adopted_block(const pkv_cache *cache, const struct seq *prototype, int32_t g,
                             int32_t num_blocks, int32_t i)
{
    const struct group *group = &cache->groups[g];
    const struct seq_table table =
        seq_table_adopted(&group->tables, group_kept_prefix(group, prototype),
                          num_blocks * cache->reuse.block_size, prototype->max_rewind);
    return seq_table_maps(&table, i)
               ? prefix_index_block(cache->reuse.index, cache->reuse.matched[i], g)
               : NO_BLOCK;
}

/* Counts the blocks of a group that are to join the queue; with ticket not NO_TICKET they join, and
 * those that have joined before are the ticket's too, and counted. */
static int32_t store_group(pkv_cache *cache, const struct seq *prototype, int32_t g,
                           int32_t num_blocks, int32_t *num_spare, int32_t ticket)
{
    struct store_queue *stores = &cache->offload.stores;
    const uint32_t tiers = offload_tiers(&cache->offload);
    int32_t count = 0;
    for (int32_t i = 0; i < num_blocks; i++) {
        const int32_t block = adopted_block(cache, prototype, g, num_blocks, i);
        if (block == NO_BLOCK) {
            continue;
        }
        if (store_queue_has(stores, g, block)) {
            count += ticket != NO_TICKET && store_queue_claim(stores, g, block, tiers, ticket);
            continue;
        }
        count++;
        *num_spare += block_costs_spare(&cache->groups[g].blocks, block);
        if (ticket != NO_TICKET) {
            store_queue_add(stores, cache->reuse.matched[i], g, block, tiers, ticket);
        }
    }
    return count;
}

/* Is there room for all of it? */
static enum pkv_status judge_store(pkv_cache *cache, const struct seq *prototype,
                                   int32_t num_blocks)
{
    const struct store_queue *stores = &cache->offload.stores;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        int32_t num_spare = 0;
        const int32_t count = store_group(cache, prototype, g, num_blocks, &num_spare, NO_TICKET);
        if (count > stores->max_held[g] - stores->num_held[g]) {
            return refuse(PKV_NO_BLOCKS,
                          "%d blocks of group %d to store, %d wait of max_store_blocks %d", count,
                          g, stores->num_held[g], stores->max_held[g]);
        }
        if (num_spare > seq_table_num_spare(&cache->groups[g].tables)) {
            return refuse(PKV_NO_BLOCKS, "%d free blocks of group %d to hold, %d are not promised",
                          num_spare, g, seq_table_num_spare(&cache->groups[g].tables));
        }
    }
    return PKV_OK;
}

static enum pkv_status store_found(pkv_cache *cache, struct wanted *wanted, pkv_ticket *ticket)
{
    const struct seq *prototype = &wanted->prototype;
    const int32_t max_blocks =
        min_i32(wanted->prompt.num_tokens, cache->config.max_seq_len) / cache->reuse.block_size;
    int32_t index = NO_TICKET;
    enum pkv_status status = namespace_look_up(cache, &wanted->fields, &wanted->prototype);
    const int32_t num_blocks =
        status == PKV_OK ? match_prefix(cache, prototype, &wanted->prompt, max_blocks) : 0;
    if (status == PKV_OK && num_blocks == 0) {
        status = refuse(PKV_NOT_FOUND, "nothing of the prompt is cached");
    }
    if (status == PKV_OK) {
        status = judge_store(cache, prototype, num_blocks);
    }
    if (status == PKV_OK) {
        status = open_ticket(cache, wanted, PKV_TICKET_STORING, &index);
    }
    if (status != PKV_OK) {
        return status;
    }
    struct ticket *opened = &cache->offload.tickets.at[index];
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        int32_t num_spare = 0;
        opened->num_left += store_group(cache, prototype, g, num_blocks, &num_spare, index);
    }
    if (opened->num_left == 0) { /* all of it is what other tickets store */
        opened->state = PKV_TICKET_DONE;
        cache->offload.num_done_tickets++;
    }
    *ticket = ticket_handle(&cache->offload.tickets, index);
    pthread_cond_signal(&cache->offload.has_work);
    return PKV_OK;
}

enum pkv_status pkv_tier_store(pkv_cache *cache, const struct pkv_seq_options *options,
                               const struct pkv_prompt *prompt, uint64_t now_ns, pkv_ticket *ticket)
{
    struct wanted wanted = {.now_ns = now_ns};
    enum pkv_status status = take_wanted(cache, options, prompt, ticket, &wanted);
    if (status != PKV_OK) {
        return status;
    }
    cache_lock(cache);
    status = cache->is_closed ? refuse(PKV_BUSY, "the cache is closed")
                              : store_found(cache, &wanted, ticket);
    cache_unlock(cache);
    return status;
}

/* ---- tickets */

enum pkv_status pkv_tier_poll(pkv_cache *cache, int32_t *num_done)
{
    const enum pkv_status status = cache_check_tiers(cache);
    if (status != PKV_OK) {
        return status;
    }
    cache_lock(cache);
    tier_poll(cache);
    const int32_t count = cache->offload.num_done_tickets;
    cache->offload.num_done_tickets = num_done != NULL ? 0 : count;
    cache_unlock(cache);
    if (num_done != NULL) {
        *num_done = count;
    }
    return PKV_OK;
}

enum pkv_status pkv_ticket_describe(pkv_cache *cache, pkv_ticket ticket,
                                    struct pkv_ticket_info *info)
{
    struct pkv_ticket_info found;
    enum pkv_status status = cache_check_tiers(cache);
    if (status == PKV_OK) {
        status = sized_check("info", info, struct pkv_ticket_info, begun_ns);
    }
    if (status != PKV_OK) {
        return status;
    }
    cache_lock(cache);
    tier_poll(cache);
    status = tier_read_ticket(cache, ticket, &found);
    cache_unlock(cache);
    if (status == PKV_OK) {
        sized_fill(info, &found);
    }
    return status;
}

enum pkv_status pkv_ticket_close(pkv_cache *cache, pkv_ticket ticket)
{
    enum pkv_status status = cache_check_tiers(cache);
    if (status != PKV_OK) {
        return status;
    }
    cache_lock(cache);
    const int32_t index = ticket_find(&cache->offload.tickets, ticket);
    if (index != NO_TICKET) {
        tier_close_ticket(cache, index);
    }
    cache_unlock(cache);
    return index != NO_TICKET
               ? PKV_OK
               : refuse(PKV_STALE_HANDLE, "ticket %016llx is stale", (unsigned long long)ticket.id);
}

enum pkv_status pkv_ticket_list(pkv_cache *cache, uint64_t begun_until_ns, pkv_ticket *tickets,
                                int32_t max_tickets, int32_t *count)
{
    const enum pkv_status status = cache_check_tiers(cache);
    if (status != PKV_OK) {
        return status;
    }
    if (count == NULL || max_tickets < 0 || (tickets == NULL && max_tickets > 0)) {
        return INVALID("max_tickets = %d, tickets %s, count %s", max_tickets,
                       tickets == NULL ? "NULL" : "given", count == NULL ? "NULL" : "given");
    }
    int32_t found = 0;
    cache_lock(cache);
    const struct ticket_records *records = &cache->offload.tickets;
    for (int32_t i = 0; i < records->capacity; i++) {
        if (records->at[i].is_open && records->at[i].begun_ns <= begun_until_ns) {
            if (found < max_tickets) {
                tickets[found] = ticket_handle(records, i);
            }
            found++;
        }
    }
    cache_unlock(cache);
    *count = found;
    return PKV_OK;
}

/* ---- counters */

enum pkv_status pkv_tier_read_stats(pkv_cache *cache, int32_t tier, struct pkv_tier_stats *stats)
{
    enum pkv_status status = cache_check_tiers(cache);
    if (status == PKV_OK && (tier < 0 || tier >= cache->config.num_tiers)) {
        status = INVALID("tier = %d, outside [0, %d)", tier, cache->config.num_tiers);
    }
    if (status == PKV_OK) {
        status = sized_check("stats", stats, struct pkv_tier_stats, num_tickets);
    }
    if (status != PKV_OK) {
        return status;
    }
    cache_lock(cache);
    const struct pkv_tier_stats found = offload_stats(&cache->offload, tier);
    cache_unlock(cache);
    sized_fill(stats, &found);
    return PKV_OK;
}
