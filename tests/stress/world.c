/* SPDX-License-Identifier: MIT
 *
 * world.c: the cache's geometry, faults, the gate, and what must hold when nothing moves. */
#include "stress/world.h"

#include <stdio.h>
#include <string.h>

#include "runtime/cache.h"

enum { FAULTS_SHOWN = 10 };

static struct pkv_group_config *add_group(struct world *world, enum pkv_dtype dtype,
                                          int32_t num_blocks)
{
    struct pkv_group_config *group = &world->groups[world->config.num_groups++];
    world->num_attention_groups++;
    group->kv_heads = KV_HEADS;
    group->k_width = WIDTH;
    group->k_dtype = group->v_dtype = dtype;
    group->block_size = BLOCK_SIZE;
    group->num_blocks = num_blocks;
    return group;
}

static void add_states(struct world *world, int32_t num_states, int32_t snapshot_interval,
                       int64_t segment_tokens)
{
    world->groups[world->config.num_groups++] =
        (struct pkv_group_config){.kind = PKV_GROUP_STATE,
                                  .state_bytes = STATE_WORDS * sizeof(uint64_t),
                                  .num_blocks = num_states,
                                  .snapshot_interval = snapshot_interval,
                                  .max_rewind = MAX_REWIND,
                                  .segment_tokens = segment_tokens};
}

static void add_layer(struct world *world, int32_t group)
{
    world->layers[world->config.num_layers++] =
        (struct pkv_layer_config){.group = group, .num_heads = HEADS};
}

static struct pkv_group_config *add_window(struct world *world, int32_t block_size,
                                           int32_t num_blocks)
{
    struct pkv_group_config *group = add_group(world, PKV_BF16, num_blocks);
    group->block_size = block_size;
    group->sliding_window = 9;
    group->kept_prefix = 3;
    add_layer(world, 1);
    return group;
}

static void add_state_layers(struct world *world)
{
    const int32_t unit = world->hit_unit;
    const int32_t group = world->config.num_groups;
    add_states(world, MAX_STATES, unit, 0);
    add_states(world, MAX_STATES * 3 / 4, 2 * unit, 4 * (int64_t)unit);
    add_layer(world, group);
    add_layer(world, group + 1);
    add_layer(world, group);
}

void world_configure(struct world *world, enum world_variant variant)
{
    struct pkv_cache_config *config = &world->config;
    *config = (struct pkv_cache_config){.size = sizeof *config,
                                        .groups = world->groups,
                                        .layers = world->layers,
                                        .dtype = PKV_F32,
                                        .max_seqs = NUM_REQUESTS + NUM_CLIENTS,
                                        .max_seq_len = MAX_LENGTH,
                                        .max_step_rows = MAX_ROWS,
                                        .max_step_tokens = MAX_BATCH,
                                        .num_threads = 1 + (int)variant % 2,
                                        .isa = test_isa(),
                                        .prefix_cache = true,
                                        .watermark_blocks = 2,
                                        .min_blank_percent = variant == WORLD_TWO_GROUPS ? 15 : 0,
                                        .max_pinned_blocks = 12,
                                        .num_events = 64,
                                        .event_tokens = true,
                                        .swap_bytes = 48 << 10,
                                        .poison_freed = true};
    config->hooks = test_hooks(&world->memory);
    world->hit_unit = 1;
    add_group(world, PKV_F32, 80);
    add_layer(world, 0);
    if (variant == WORLD_TWO_GROUPS) {
        add_window(world, BLOCK_SIZE, 64);
    } else if (variant >= WORLD_MIXED_SIZES) {
        world->hit_unit = 2 * BLOCK_SIZE;
        add_window(world, world->hit_unit, 40)->segment_tokens = 2 * world->hit_unit;
    }
    if (variant == WORLD_STATES) {
        add_state_layers(world);
    }
    add_layer(world, 0);
    if (variant < WORLD_MIXED_SIZES) {
        config->tiers = &world->tier.tier;
        config->num_tiers = 1;
        config->num_tier_threads =
            variant == WORLD_TWO_GROUPS ? 1 : 0; /* or the clients do the work */
        config->max_tickets = NUM_CLIENTS;
    }
}

void world_open(struct world *world)
{
    pthread_mutex_init(&world->gate.lock, NULL);
    pthread_cond_init(&world->gate.changed, NULL);
    for (int32_t i = 0; i < NUM_REQUESTS; i++) {
        pthread_mutex_init(&world->requests[i].lock, NULL);
    }
    memory_tier_open(&world->tier, "memory");
    world->tier.capacity = TIER_VALUES;
    ASSERT_STATUS(PKV_OK, pkv_cache_create(&world->config, &world->cache));
    test_eager_threads(world->cache->workspace);
}

bool world_has_states(const struct world *world)
{
    return world->config.num_groups > world->num_attention_groups;
}

void world_fault(atomic_llong *kind, const char *what, long long got, long long expected)
{
    if (atomic_fetch_add(kind, 1) < FAULTS_SHOWN) {
        printf("\n    %s: %lld, expected %lld; last error: %s\n", what, got, expected,
               pkv_last_error());
    }
}

bool world_expect(struct world *world, const char *call, enum pkv_status status,
                  enum pkv_status first, enum pkv_status second, enum pkv_status third)
{
    atomic_fetch_add(&world->tally.calls, 1);
    if (status != first && status != second && status != third) {
        world_fault(&world->wrong_answers, call, status, first);
    }
    return status == PKV_OK;
}

void gate_enter(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    while (gate->is_closed) {
        pthread_cond_wait(&gate->changed, &gate->lock);
    }
    gate->num_inside++;
    pthread_mutex_unlock(&gate->lock);
}

void gate_leave(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    if (--gate->num_inside == 0) {
        pthread_cond_broadcast(&gate->changed);
    }
    pthread_mutex_unlock(&gate->lock);
}

static void close_gate(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->is_closed = true;
    while (gate->num_inside > 0) {
        pthread_cond_wait(&gate->changed, &gate->lock);
    }
    pthread_mutex_unlock(&gate->lock);
}

static void open_gate(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->is_closed = false;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

/* A sequence destroyed in the open step lives on in the cache's count until the step ends. */
static void check_requests(struct world *world)
{
    for (int32_t i = 0; i < NUM_REQUESTS; i++) {
        struct request *request = &world->requests[i];
        int32_t length = 0;
        pthread_mutex_lock(&request->lock);
        const bool is_alive = request->state != REQUEST_ABSENT && request->state != REQUEST_GONE;
        if (request->seq.id != 0) {
            world_expect(world, "length", pkv_seq_length(world->cache, request->seq, &length),
                         is_alive ? PKV_OK : PKV_STALE_HANDLE, is_alive ? PKV_OK : PKV_STALE_HANDLE,
                         is_alive ? PKV_OK : PKV_STALE_HANDLE);
        }
        if (is_alive && length != request->length) {
            world_fault(&world->wrong_answers, "length", length, request->length);
        }
        pthread_mutex_unlock(&request->lock);
    }
}

static void check_blocks(struct world *world)
{
    const int32_t broken = pkv_cache_check(world->cache);
    if (broken != 0) {
        world_fault(&world->unsound, "broken invariants", broken, 0);
    }
    for (int32_t g = 0; g < world->config.num_groups; g++) {
        struct pkv_group_usage usage = {.size = sizeof usage};
        const int32_t num_blocks = world->groups[g].num_blocks;
        world_expect(world, "usage", pkv_cache_usage(world->cache, g, &usage), PKV_OK, PKV_OK,
                     PKV_OK);
        if (usage.free + usage.held != num_blocks || usage.cached > usage.free ||
            usage.pinned > usage.held) {
            world_fault(&world->unsound, "free + held", usage.free + usage.held, num_blocks);
        }
    }
}

void world_quiet(struct world *world)
{
    close_gate(&world->gate);
    check_requests(world);
    check_blocks(world);
    atomic_fetch_add(&world->tally.quiet, 1);
    open_gate(&world->gate);
}
