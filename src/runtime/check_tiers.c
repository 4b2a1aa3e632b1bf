/* SPDX-License-Identifier: MIT
 *
 * A store holds one block, a ticket those of its row. */
#include "runtime/check_tiers.h"

static int32_t length_of(const struct store_queue *stores, const struct store_list *list,
                         enum store_state state)
{
    int32_t length = 0;
    for (int32_t i = list->first; i >= 0 && i < stores->capacity && length <= stores->capacity;
         i = stores->at[i].next) {
        length += stores->at[i].state == state;
    }
    return length;
}

static void check_stores(const struct store_queue *stores, struct report *report)
{
    int32_t counts[STORE_DONE + 1] = {0};
    for (int32_t i = 0; i < stores->capacity; i++) {
        counts[stores->at[i].state]++;
    }
    const int32_t num_used = stores->capacity - counts[STORE_FREE];
    report_expect(report, num_used == stores->num_used, "stores in use (%d found, %d kept)",
                  num_used, stores->num_used);
    report_expect(report, counts[STORE_WAITING] + counts[STORE_RUNNING] == stores->num_waiting,
                  "stores that wait (%d found, %d kept)",
                  counts[STORE_WAITING] + counts[STORE_RUNNING], stores->num_waiting);
    report_expect(report,
                  length_of(stores, &stores->free, STORE_FREE) == counts[STORE_FREE] &&
                      length_of(stores, &stores->waiting, STORE_WAITING) == counts[STORE_WAITING] &&
                      length_of(stores, &stores->done, STORE_DONE) == counts[STORE_DONE],
                  "the lists of stores (%d in use of %d)", num_used, stores->capacity);
}

static void check_tickets(const struct ticket_records *tickets, struct report *report)
{
    int32_t num_used = 0;
    int32_t num_open = 0;
    for (int32_t i = 0; i < tickets->capacity; i++) {
        num_used += tickets->at[i].is_used;
        num_open += tickets->at[i].is_open;
        report_expect(report, tickets->at[i].is_used || !tickets->at[i].is_open,
                      "an open ticket that is free (ticket %d, state %d)", i,
                      (int)tickets->at[i].state);
    }
    report_expect(report, num_used == tickets->num_used && num_open == tickets->num_open,
                  "the number of tickets (%d used, %d open)", num_used, num_open);
    int32_t length = 0;
    int32_t i = tickets->first_free;
    while (i >= 0 && i < tickets->capacity && length < tickets->capacity &&
           !tickets->at[i].is_used) {
        length++;
        i = tickets->at[i].next_free;
    }
    report_expect(report, i == NO_TICKET && length == tickets->capacity - num_used,
                  "the list of free tickets (at %d after %d)", i, length);
}

void check_tiers(const pkv_cache *cache, struct report *report)
{
    if (cache->offload.num_tiers > 0) {
        check_stores(&cache->offload.stores, report);
        check_tickets(&cache->offload.tickets, report);
    }
}

static void count_stores(pkv_cache *cache, int32_t g, struct report *report)
{
    const struct store_queue *stores = &cache->offload.stores;
    int32_t num_held = 0;
    for (int32_t i = 0; i < stores->capacity; i++) {
        const struct store *store = &stores->at[i];
        if (store->state != STORE_FREE && store->group == g) {
            num_held++;
            cache->tallies[store->block].count++;
            report_expect(report, stores->records[g][store->block] == i + 1,
                          "a store whose block is not its (group %d, store %d, block %d)", g, i,
                          store->block);
        }
    }
    report_expect(report, num_held == stores->num_held[g] && num_held <= stores->max_held[g],
                  "the blocks that stores hold (group %d, %d found)", g, num_held);
}

static void count_ticket(pkv_cache *cache, int32_t g, int32_t index, struct report *report)
{
    const struct ticket *ticket = &cache->offload.tickets.at[index];
    const struct ticket_rows rows = ticket_rows(&cache->offload.tickets, index);
    for (int32_t i = 0; i < ticket->num_held; i++) {
        const int32_t block = rows.held[i * cache->config.num_groups + g];
        if (block == NO_BLOCK) {
            continue;
        }
        if (report_expect(report, block >= 0 && block < cache->groups[g].config->num_blocks,
                          "a ticket's block outside the pool (group %d, ticket %d, block %d)", g,
                          index, block)) {
            cache->tallies[block].count++;
        }
    }
}

void check_tiers_count(pkv_cache *cache, int32_t g, struct report *report)
{
    if (cache->offload.num_tiers == 0) {
        return;
    }
    count_stores(cache, g, report);
    for (int32_t i = 0; i < cache->offload.tickets.capacity; i++) {
        if (cache->offload.tickets.at[i].is_used) {
            count_ticket(cache, g, i, report);
        }
    }
}
