/* SPDX-License-Identifier: MIT
 *
 * admin.c: what the threads of a server call that serve no request: they look at sequences and at
 * the cache, flush, reset, and set quotas and priorities. With client.c and stepper.c all public
 * functions that take the mutex are called (scripts/check_stress.sh). */
#include "stress/world.h"

static bool take_text(void *context, const char *text, size_t bytes)
{
    (void)context, (void)text;
    return bytes > 0;
}

static bool take_block(void *context, const struct pkv_block_info *info)
{
    (void)context;
    return info->ref_count >= 0;
}

static bool take_seq(void *context, pkv_seq seq, const struct pkv_seq_info *info)
{
    (void)context;
    return seq.id != 0 && info->length >= 0;
}

/* A dry run of a step with one row, which another step may be in the way of. */
static void check_fits(struct client *client, const struct request *request)
{
    struct world *world = client->world;
    struct pkv_shortage shortage = {.size = sizeof shortage};
    struct pkv_batch batch = {.size = sizeof batch,
                              .seqs = &request->seq,
                              .token_ids = request->ids + request->length,
                              .num_rows = 1,
                              .num_required_rows = 1};
    if (request->state == REQUEST_IDLE && request->length < MAX_LENGTH) {
        const enum pkv_status status = pkv_step_fits(world->cache, &batch, &shortage);
        const bool is_lost = request->may_be_lost && status == PKV_NOT_RESIDENT;
        world_expect(world, "fits", is_lost ? PKV_OK : status, PKV_OK, PKV_NO_BLOCKS, PKV_BUSY);
    }
}

/* What a request is, whatever the stepper does with it meanwhile. */
static void look_at_request(struct client *client)
{
    struct world *world = client->world;
    struct request *request = client_pick(client, REQUEST_IDLE, true);
    struct pkv_seq_info info = {.size = sizeof info};
    int32_t blocks[MAX_GROUPS], entries[MAX_LENGTH / BLOCK_SIZE], num_entries = 0;
    if (request == NULL) {
        return;
    }
    const bool is_idle = request->state == REQUEST_IDLE;
    world_expect(world, "describe", pkv_seq_describe(world->cache, request->seq, &info, blocks),
                 PKV_OK, PKV_OK, PKV_OK);
    world_expect(world, "table",
                 pkv_seq_table(world->cache, request->seq, 0, entries, MAX_LENGTH / BLOCK_SIZE,
                               &num_entries),
                 PKV_OK, PKV_OK, PKV_OK);
    if (is_idle && (info.length != request->length || info.in_step)) {
        world_fault(&world->wrong_answers, "length described", info.length, request->length);
    }
    if (is_idle && num_entries != (info.length + BLOCK_SIZE - 1) / BLOCK_SIZE) {
        world_fault(&world->wrong_answers, "entries", num_entries, info.length);
    }
    check_fits(client, request);
    pthread_mutex_unlock(&request->lock);
}

/* Every call that reads the cache under its mutex: a lock that is left out is a race here. */
void client_look(struct client *client)
{
    struct world *world = client->world;
    const struct request request = {.tenant = random_between(&client->random, 0, NUM_TENANTS - 1)};
    struct pkv_namespace_field field;
    struct pkv_group_usage usage = {.size = sizeof usage};
    struct pkv_field_usage used = {.size = sizeof used};
    uint64_t next_event = 0;
    (void)request_options(&request, &field);
    world_expect(world, "usage", pkv_cache_usage(world->cache, 0, &usage), PKV_OK, PKV_OK, PKV_OK);
    world_expect(world, "usage of a field", pkv_namespace_usage(world->cache, &field, &used),
                 PKV_OK, PKV_NOT_FOUND, PKV_OK);
    world_expect(world, "visit", pkv_cache_visit(world->cache, take_block, NULL, &next_event),
                 PKV_OK, PKV_OK, PKV_OK);
    world_expect(world, "sequences", pkv_cache_visit_seqs(world->cache, take_seq, NULL), PKV_OK,
                 PKV_OK, PKV_OK);
    look_at_request(client);
    world_expect(world, "text", pkv_metrics_write(world->cache, take_text, NULL), PKV_OK, PKV_OK,
                 PKV_OK);
    world_expect(world, "texts", pkv_metrics_write_caches(&world->cache, 1, take_text, NULL),
                 PKV_OK, PKV_OK, PKV_OK);
}

/* Rarely with force, for then everything cached is gone. */
static void reset(struct client *client)
{
    struct world *world = client->world;
    struct pkv_flush_report report = {.size = sizeof report};
    const bool force = random_between(&client->random, 0, 31) == 0;
    world_expect(world, "reset", pkv_cache_reset(world->cache, force, &report), PKV_OK,
                 force ? PKV_OK : PKV_BUSY, PKV_OK);
}

static enum pkv_status drain(struct client *client)
{
    pkv_cache *cache = client->world->cache;
    struct pkv_event events[16];
    int32_t ids[16 * BLOCK_SIZE];
    int32_t count = 0;
    return random_between(&client->random, 0, 1) == 0
               ? pkv_events_drain(cache, events, sizeof *events, 16, &count, NULL)
               : pkv_events_drain_tokens(cache, events, sizeof *events, 16, ids, NULL, &count,
                                         NULL);
}

static enum pkv_status change_priority(struct client *client, const struct request *of)
{
    struct pkv_namespace_field field;
    struct request request = *of;
    int32_t num_changed = 0;
    const int32_t n = random_between(&client->random, 0, MAX_LENGTH);
    request_choose_tokens(&request, &client->random, 0);
    const struct pkv_seq_options options = request_options(&request, &field);
    return pkv_prefix_set_priority(
        client->world->cache, &options, PROMPT(request.ids, n), 0, n,
        random_between(&client->random, PKV_PRIORITY_EVICT_FIRST, PKV_NUM_PRIORITIES - 1),
        &num_changed);
}

/* What a server's other threads call now and then. */
void client_administer(struct client *client)
{
    struct world *world = client->world;
    const struct request request = {.tenant = random_between(&client->random, 0, NUM_TENANTS - 1)};
    struct pkv_namespace_field field;
    struct pkv_stats stats = {.size = sizeof stats};
    enum pkv_status status = PKV_OK;
    int32_t count = 0;
    (void)request_options(&request, &field);
    switch (random_between(&client->random, 0, 7)) {
    case 0: status = pkv_namespace_flush(world->cache, &field, NULL); break;
    case 1:
        status =
            pkv_namespace_quota(world->cache, &field, 30 * random_between(&client->random, 0, 2));
        break;
    case 2: status = drain(client); break;
    case 3: status = pkv_cache_stats(world->cache, &stats); break;
    case 4: status = pkv_cache_check(world->cache) == 0 ? PKV_OK : PKV_CORRUPT; break;
    case 5: status = change_priority(client, &request); break;
    case 6: reset(client); break;
    default: status = pkv_prefix_expire(world->cache, atomic_load(&world->now_ns), &count); break;
    }
    world_expect(world, "administration", status, PKV_OK, PKV_OK, PKV_OK);
}
