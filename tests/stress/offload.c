/* SPDX-License-Identifier: MIT
 *
 * offload.c: what request threads of a server do with tiers, at random: prompts are prefetched and
 * stored, tickets polled, waited for and closed, also while a thread reads for them. What comes
 * back is compared with the model by those that adopt it. */
#include "stress/world.h"

enum { WAIT_NS = 200000 };

static void close_ticket(struct client *client, pkv_ticket *ticket)
{
    if (ticket->id != 0) {
        world_expect(client->world, "close ticket", pkv_ticket_close(client->world->cache, *ticket),
                     PKV_OK, PKV_OK, PKV_OK);
    }
    ticket->id = 0;
}

void client_close_tickets(struct client *client)
{
    for (int32_t i = 0; i < TICKETS_A_CLIENT; i++) {
        close_ticket(client, &client->tickets[i]);
    }
}

static void begin_one(struct client *client, pkv_ticket *ticket)
{
    struct world *world = client->world;
    struct pkv_namespace_field field;
    struct request request = {.tenant = random_between(&client->random, -1, NUM_TENANTS - 1)};
    const int32_t n = random_between(&client->random, 1, MAX_LENGTH);
    const uint64_t now_ns = atomic_load(&world->now_ns);
    request_choose_tokens(&request, &client->random, 0);
    const struct pkv_seq_options options = request_options(&request, &field);
    if (random_between(&client->random, 0, 5) == 0) {
        world_expect(world, "store",
                     pkv_tier_store(world->cache, &options, PROMPT(request.ids, n), now_ns, ticket),
                     PKV_OK, PKV_NO_BLOCKS, PKV_NOT_FOUND);
        return;
    }
    const bool is_begun = world_expect(
        world, "prefetch",
        pkv_tier_prefetch(world->cache, &options, PROMPT(request.ids, n), n, now_ns, ticket),
        PKV_OK, PKV_NO_BLOCKS, PKV_OK);
    atomic_fetch_add(&world->tally.prefetches, is_begun);
}

static void look_at(struct client *client, pkv_ticket ticket)
{
    struct world *world = client->world;
    struct pkv_ticket_info info = {.size = sizeof info};
    const bool waits = random_between(&client->random, 0, 1) == 0;
    const bool is_done = waits ? world_expect(world, "wait for a ticket",
                                              pkv_ticket_wait(world->cache, ticket, WAIT_NS, &info),
                                              PKV_OK, PKV_BUSY, PKV_OK)
                               : world_expect(world, "describe a ticket",
                                              pkv_ticket_describe(world->cache, ticket, &info),
                                              PKV_OK, PKV_OK, PKV_OK) &&
                                     info.state == PKV_TICKET_DONE;
    if (is_done && info.num_cached % BLOCK_SIZE != 0) {
        world_fault(&world->wrong_answers, "tokens prefetched", info.num_cached, 0);
    }
    atomic_fetch_add(&world->tally.loaded_tokens, is_done ? info.num_loaded : 0);
}

void client_offload(struct client *client)
{
    struct world *world = client->world;
    pkv_ticket *ticket = &client->tickets[random_between(&client->random, 0, TICKETS_A_CLIENT - 1)];
    struct pkv_tier_stats stats = {.size = sizeof stats};
    int32_t count = 0;
    if (world->config.num_tiers == 0) {
        return;
    }
    if (ticket->id == 0) {
        begin_one(client, ticket);
    } else if (random_between(&client->random, 0, 2) > 0) {
        look_at(client, *ticket);
    } else {
        close_ticket(client, ticket);
    }
    world_expect(world, "work", pkv_tier_work(world->cache, 0, NULL), PKV_OK, PKV_OK, PKV_OK);
    world_expect(world, "poll", pkv_tier_poll(world->cache, &count), PKV_OK, PKV_OK, PKV_OK);
    world_expect(world, "list tickets", pkv_ticket_list(world->cache, UINT64_MAX, NULL, 0, &count),
                 PKV_OK, PKV_OK, PKV_OK);
    world_expect(world, "tier stats", pkv_tier_read_stats(world->cache, 0, &stats), PKV_OK, PKV_OK,
                 PKV_OK);
    if (count > NUM_CLIENTS || stats.corrupt_blocks > 0) {
        world_fault(&world->wrong_answers, "open tickets", count, NUM_CLIENTS);
    }
}
