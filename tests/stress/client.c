/* SPDX-License-Identifier: MIT
 *
 * client.c: what request threads of a server do, at random: requests arrive, are admitted, forked,
 * cut, pinned, probed, and end, also in the middle of a step. */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "stress/world.h"

struct request *client_pick(struct client *client, enum request_state state, bool any_alive)
{
    const int32_t first = random_between(&client->random, 0, NUM_REQUESTS - 1);
    for (int32_t i = 0; i < NUM_REQUESTS; i++) {
        struct request *request = &client->world->requests[(first + i) % NUM_REQUESTS];
        if (pthread_mutex_trylock(&request->lock) != 0) {
            continue;
        }
        if (request->state == state ||
            (any_alive && request->state > state && request->state < REQUEST_GONE)) {
            return request;
        }
        pthread_mutex_unlock(&request->lock);
    }
    return NULL;
}

/* Not long: the client holds the request's lock, and quiet moments wait for it. */
static void wait_for_room(struct client *client, const struct request *request,
                          const struct pkv_shortage *shortage)
{
    const uint64_t timeout_ns = 100000 * (random_u64(&client->random) % 2);
    const enum pkv_status status =
        pkv_wait_free(client->world->cache, request->seq, shortage, timeout_ns);
    world_expect(client->world, "wait", status, PKV_OK, PKV_NO_BLOCKS, PKV_NEVER_FITS);
    atomic_fetch_add(&client->world->tally.waits, 1);
}

static void admit(struct client *client, struct request *request)
{
    struct world *world = client->world;
    const int32_t n = random_between(&client->random, 1, MAX_LENGTH - 8);
    const int32_t max_cached = random_between(&client->random, 0, 3) == 0 ? 0 : n;
    struct pkv_admission admission = {.size = sizeof admission};
    struct pkv_shortage shortage = {.size = sizeof shortage};
    const enum pkv_status status =
        pkv_seq_admit(world->cache, request->seq, PROMPT(request->ids, n),
                      random_between(&client->random, 0, 8), max_cached, &admission, &shortage);
    if (!world_expect(world, "admit", status, PKV_OK, PKV_NO_BLOCKS, PKV_NEVER_FITS)) {
        if (status == PKV_NO_BLOCKS) {
            wait_for_room(client, request, &shortage);
        }
        return;
    }
    const int32_t hit = admission.num_cached;
    if (hit % BLOCK_SIZE != admission.num_copied || hit > max_cached || (hit >= n && hit > 0) ||
        hit + admission.num_to_write != n || hit % world->hit_unit != 0) {
        world_fault(&world->wrong_answers, "tokens adopted", hit, admission.num_to_write);
    }
    request->length = request->high = request->first_state = hit;
    atomic_fetch_add(&world->tally.hits, hit > 0);
}

static void arrive(struct client *client)
{
    struct world *world = client->world;
    struct request *request = client_pick(client, REQUEST_ABSENT, false);
    struct pkv_namespace_field field;
    if (request == NULL) {
        return;
    }
    request->tenant = random_between(&client->random, -1, NUM_TENANTS - 1);
    request->max_rewind =
        random_between(&client->random, 0, 1) * random_between(&client->random, 1, MAX_REWIND);
    request_choose_tokens(request, &client->random, 0);
    const struct pkv_seq_options options = request_options(request, &field);
    const enum pkv_status status = pkv_seq_create(world->cache, &options, &request->seq);
    if (world_expect(world, "create", status, PKV_OK, PKV_NO_BLOCKS, PKV_OK)) {
        request->state = REQUEST_IDLE;
        admit(client, request);
    }
    pthread_mutex_unlock(&request->lock);
}

/* A request that comes and goes at once, known to nobody else. */
static void pass_by(struct client *client)
{
    struct world *world = client->world;
    struct pkv_namespace_field field;
    struct request request = {.tenant = 0};
    int32_t num_ended = 0;
    request_choose_tokens(&request, &client->random, 0);
    struct pkv_seq_options options = request_options(&request, &field);
    options.tag = (uint64_t)client->index + 1;
    const enum pkv_status status = pkv_seq_create(world->cache, &options, &request.seq);
    if (world_expect(world, "create", status, PKV_OK, PKV_NO_BLOCKS, PKV_OK)) {
        admit(client, &request);
        world_expect(world, "destroy tagged",
                     pkv_seq_destroy_tagged(world->cache, options.tag, &num_ended), PKV_OK, PKV_OK,
                     PKV_OK);
        if (num_ended != 1) {
            world_fault(&world->wrong_answers, "sequences of a tag", num_ended, 1);
        }
        world_expect(world, "truncate", pkv_seq_truncate(world->cache, request.seq, 0),
                     PKV_STALE_HANDLE, PKV_STALE_HANDLE, PKV_STALE_HANDLE);
    }
}

static void probe_groups(struct client *client, const struct pkv_seq_options *options,
                         const struct pkv_prompt *prompt, int32_t max_cached)
{
    struct world *world = client->world;
    int32_t cached[MAX_GROUPS];
    int32_t all = 0;
    const enum pkv_status status =
        pkv_cache_probe_groups(world->cache, options, prompt, max_cached, cached, &all);
    world_expect(world, "probe of groups", status, PKV_OK, PKV_OK, PKV_OK);
    for (int32_t g = 0; g < world->config.num_groups; g++) {
        if (cached[g] < all || (cached[g] % BLOCK_SIZE != 0 && cached[g] != all)) {
            world_fault(&world->wrong_answers, "tokens of a group", cached[g], all);
        }
    }
}

static void probe(struct client *client)
{
    struct world *world = client->world;
    struct pkv_namespace_field field;
    struct request request = {.tenant = random_between(&client->random, -1, NUM_TENANTS - 1)};
    struct pkv_probe answer = {.size = sizeof answer};
    const int32_t n = random_between(&client->random, 1, MAX_LENGTH);
    request_choose_tokens(&request, &client->random, 0);
    const struct pkv_seq_options options = request_options(&request, &field);
    const enum pkv_status status =
        pkv_cache_probe(world->cache, &options, PROMPT(request.ids, n), 0, n, &answer, NULL);
    world_expect(world, "probe", status, PKV_OK, PKV_OK, PKV_OK);
    probe_groups(client, &options, PROMPT(request.ids, n), n);
    world_expect(world, "probe's answer", answer.status, PKV_OK, PKV_NO_BLOCKS, PKV_NEVER_FITS);
    if (answer.num_cached % BLOCK_SIZE != answer.num_copied ||
        answer.num_cached + answer.num_pending >= n) {
        world_fault(&world->wrong_answers, "tokens probed", answer.num_cached, n);
    }
}

/* Whether a cut to `length`, or a fork there, succeeds for certain. The request is idle. */
static bool must_have(struct client *client, const struct request *request, int32_t length)
{
    struct world *world = client->world;
    struct pkv_seq_info info = {.size = sizeof info};
    int32_t least = request->high - request->max_rewind;
    if (world_has_states(world) && least < request->first_state) {
        least = request->first_state;
    }
    world_expect(world, "describe", pkv_seq_describe(world->cache, request->seq, &info, NULL),
                 PKV_OK, PKV_OK, PKV_OK);
    if (info.min_length > (least > 0 ? least : 0)) {
        world_fault(&world->wrong_answers, "shortest length", info.min_length, least);
    }
    return length == 0 || (length >= info.min_length && !request->may_be_lost);
}

static void fork_one(struct client *client)
{
    struct world *world = client->world;
    struct request *parent = client_pick(client, REQUEST_IDLE, true);
    struct request *child = parent == NULL ? NULL : client_pick(client, REQUEST_ABSENT, false);
    pkv_seq seq = {0};
    if (child != NULL && parent->state != REQUEST_RACING) {
        const bool is_open = parent->state == REQUEST_OPEN;
        const int32_t at = random_between(&client->random, 0, parent->length);
        const enum pkv_status other =
            is_open || must_have(client, parent, at) ? PKV_NO_BLOCKS : PKV_NOT_RESIDENT;
        const enum pkv_status status = pkv_seq_fork(world->cache, parent->seq, at, 1, &seq);
        const bool is_made =
            world_expect(world, "fork", status, is_open ? PKV_BUSY : PKV_OK,
                         is_open ? PKV_BUSY : PKV_NO_BLOCKS, is_open ? PKV_BUSY : other);
        atomic_fetch_add(&world->tally.busy, is_open);
        atomic_fetch_add(&world->tally.forks, is_made);
        if (is_made) {
            child->seq = seq;
            child->state = REQUEST_IDLE;
            child->tenant = parent->tenant;
            child->max_rewind = parent->max_rewind;
            child->length = at;
            child->high = parent->high;
            child->first_state = at;
            child->may_be_lost = false;
            memcpy(child->ids, parent->ids, sizeof child->ids);
            memcpy(child->digests, parent->digests, (size_t)at * sizeof child->digests[0]);
            request_choose_tokens(child, &client->random, at);
        }
    }
    if (child != NULL) {
        pthread_mutex_unlock(&child->lock);
    }
    if (parent != NULL) {
        pthread_mutex_unlock(&parent->lock);
    }
}

/* What a cut request has appended since may differ from what it had. */
static void was_cut(struct client *client, struct request *request, int32_t length)
{
    memset(request->digests + length, 0,
           (size_t)(MAX_LENGTH - length) * sizeof request->digests[0]);
    request->length = length;
    if (length == 0) {
        request_empty(request);
    }
    if (random_between(&client->random, 0, 1) == 0) {
        request_choose_tokens(request, &client->random, length);
    }
}

static void cut(struct client *client)
{
    struct world *world = client->world;
    struct request *request = client_pick(client, REQUEST_IDLE, true);
    if (request == NULL) {
        return;
    }
    const bool is_open = request->state == REQUEST_OPEN;
    const int32_t max_cut = random_between(&client->random, 0, 1) == 0 ? 4 : request->length;
    int32_t length = request->length - random_between(&client->random, 0, max_cut);
    length = length < 0 ? 0 : length;
    if (request->state != REQUEST_RACING) {
        const bool must = is_open || must_have(client, request, length);
        const enum pkv_status status = pkv_seq_truncate(world->cache, request->seq, length);
        const bool is_cut = world_expect(world, "truncate", status, is_open ? PKV_BUSY : PKV_OK,
                                         is_open ? PKV_BUSY : PKV_OK,
                                         is_open ? PKV_BUSY : (must ? PKV_OK : PKV_NOT_RESIDENT));
        atomic_fetch_add(&world->tally.busy, is_open);
        atomic_fetch_add(&world->tally.cuts, is_cut);
        if (is_cut) {
            was_cut(client, request, length);
        }
    }
    pthread_mutex_unlock(&request->lock);
}

/* Only an empty sequence is admitted; one of the open step is busy before it is anything else. */
static void admit_again(struct client *client)
{
    struct world *world = client->world;
    struct request *request = client_pick(client, REQUEST_IDLE, true);
    struct pkv_admission admission = {.size = sizeof admission};
    if (request == NULL) {
        return;
    }
    if (request->state == REQUEST_OPEN) {
        world_expect(world, "admit of a row",
                     pkv_seq_admit(world->cache, request->seq, PROMPT(request->ids, 8), 0, 8,
                                   &admission, NULL),
                     PKV_BUSY, PKV_BUSY, PKV_BUSY);
        atomic_fetch_add(&world->tally.busy, 1);
    } else if (request->state == REQUEST_IDLE && request->length == 0) {
        admit(client, request);
    }
    pthread_mutex_unlock(&request->lock);
}

static void end(struct client *client)
{
    struct world *world = client->world;
    struct request *request = client_pick(client, REQUEST_IDLE, true);
    int32_t length = 0;
    if (request == NULL) {
        return;
    }
    const enum request_state state = request->state;
    world_expect(world, "destroy", pkv_seq_destroy(world->cache, request->seq), PKV_OK, PKV_OK,
                 PKV_OK);
    world_expect(world, "length", pkv_seq_length(world->cache, request->seq, &length),
                 PKV_STALE_HANDLE, PKV_STALE_HANDLE, PKV_STALE_HANDLE);
    request->state = REQUEST_GONE;
    replay_check(&client->replay, request, request->length);
    if (state == REQUEST_IDLE) {
        request_drop(request);
    }
    atomic_fetch_add(&world->tally.in_step_destroys, state == REQUEST_OPEN);
    atomic_fetch_add(&world->tally.raced_destroys, state == REQUEST_RACING);
    pthread_mutex_unlock(&request->lock);
}

/* Another request may have the room by then: the one that is out is preempted after all. */
static void come_back(struct client *client, struct request *request)
{
    struct world *world = client->world;
    struct pkv_shortage shortage = {.size = sizeof shortage};
    bool is_back = false;
    for (int i = 0; i < 3 && !is_back; i++) {
        const enum pkv_status status = pkv_seq_swap_in(world->cache, request->seq, &shortage);
        is_back = world_expect(world, "swap in", status, PKV_OK, PKV_NO_BLOCKS, PKV_NEVER_FITS);
        if (status == PKV_NO_BLOCKS) {
            wait_for_room(client, request, &shortage);
        }
    }
    atomic_fetch_add(&world->tally.swaps, is_back);
    if (!is_back) {
        world_expect(world, "truncate", pkv_seq_truncate(world->cache, request->seq, 0), PKV_OK,
                     PKV_OK, PKV_OK);
        was_cut(client, request, 0);
    }
}

static void swap(struct client *client)
{
    struct world *world = client->world;
    struct request *request = client_pick(client, REQUEST_IDLE, false);
    pkv_seq child = {0};
    if (request == NULL) {
        return;
    }
    const enum pkv_status status = pkv_seq_swap_out(world->cache, request->seq, NULL);
    if (world_expect(world, "swap out", status, PKV_OK, PKV_NO_BLOCKS, PKV_NEVER_FITS)) {
        world_expect(world, "fork of a swapped one",
                     pkv_seq_fork(world->cache, request->seq, request->length, 1, &child),
                     PKV_NOT_RESIDENT, PKV_NOT_RESIDENT, PKV_NOT_RESIDENT);
        sched_yield();
        come_back(client, request);
    }
    pthread_mutex_unlock(&request->lock);
}

static void unpin(struct client *client, pkv_pin *pin)
{
    if (pin->id != 0) {
        world_expect(client->world, "unpin", pkv_prefix_unpin(client->world->cache, *pin), PKV_OK,
                     PKV_STALE_HANDLE, PKV_OK);
    }
    pin->id = 0;
}

static void pin(struct client *client)
{
    struct world *world = client->world;
    pkv_pin *pin = &client->pins[random_between(&client->random, 0, PINS_A_CLIENT - 1)];
    struct request *request = client_pick(client, REQUEST_IDLE, true);
    struct pkv_namespace_field field;
    int32_t num_pinned = 0;
    if (pin->id != 0 && random_between(&client->random, 0, 2) == 0) {
        world_expect(world, "refresh",
                     pkv_prefix_refresh(world->cache, *pin, random_u64(&client->random) % 20,
                                        atomic_load(&world->now_ns)),
                     PKV_OK, PKV_STALE_HANDLE, PKV_OK);
    }
    unpin(client, pin);
    if (request == NULL) {
        return;
    }
    const struct pkv_seq_options options = request_options(request, &field);
    const uint64_t ttl = random_u64(&client->random) % 20; /* 0: for ever */
    const enum pkv_status status =
        pkv_prefix_pin(world->cache, &options, PROMPT(request->ids, request->length), ttl,
                       atomic_load(&world->now_ns), pin, &num_pinned);
    world_expect(world, "pin", status, PKV_OK, PKV_NO_BLOCKS, PKV_OK);
    if (num_pinned % BLOCK_SIZE != 0 || num_pinned > request->length) {
        world_fault(&world->wrong_answers, "tokens pinned", num_pinned, request->length);
    }
    atomic_fetch_add(&world->tally.pins, num_pinned > 0);
    pthread_mutex_unlock(&request->lock);
}

static const struct {
    const char *name;
    void (*run)(struct client *client);
    int32_t weight;
} acts[] = {
    {"arrive", arrive, 24},
    {"pass by", pass_by, 12},
    {"probe", probe, 12},
    {"fork", fork_one, 8},
    {"cut", cut, 8},
    {"admit again", admit_again, 8},
    {"end", end, 6},
    {"pin", pin, 6},
    {"administer", client_administer, 1},
    {"look", client_look, 1},
    {"offload", client_offload, 8},
    {"swap", swap, 8},
    {"save", client_save, 4},
};
enum { NUM_ACTS = sizeof acts / sizeof acts[0] };

/* Requests live for several steps, so clients do less than they could. */
static void pause_between(struct client *client)
{
    const struct timespec time = {0, random_between(&client->random, 0, 400) * 1000};
    if (random_between(&client->random, 0, 1) == 0) {
        nanosleep(&time, NULL);
    }
}

void *client_live(void *argument)
{
    struct client *client = argument;
    struct world *world = client->world;
    int32_t sum = 0;
    for (int32_t i = 0; i < NUM_ACTS; i++) {
        sum += acts[i].weight;
    }
    while (!atomic_load(&world->is_over)) {
        int32_t at = 0;
        for (int32_t draw = random_between(&client->random, 0, sum - 1); draw >= acts[at].weight;) {
            draw -= acts[at++].weight;
        }
        atomic_store(&world->doing[client->index], acts[at].name);
        gate_enter(&world->gate);
        acts[at].run(client);
        gate_leave(&world->gate);
        atomic_fetch_add(&world->progress[client->index], 1);
        pause_between(client);
    }
    for (int32_t i = 0; i < PINS_A_CLIENT; i++) {
        unpin(client, &client->pins[i]);
    }
    client_close_tickets(client);
    return NULL;
}
