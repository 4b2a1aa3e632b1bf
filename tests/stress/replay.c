/* SPDX-License-Identifier: MIT
 *
 * replay.c: a request's tokens, what their activations are, and the same request computed alone. */
#include <string.h>

#include "stress/world.h"

enum { NUM_FAMILIES = 4, VOCABULARY = 50 };

uint64_t tag_mix(uint64_t tag, uint64_t value)
{
    struct test_random random = {tag ^ (value * 0x9e3779b97f4a7c15u)};
    return random_u64(&random);
}

struct pkv_seq_options request_options(const struct request *request,
                                       struct pkv_namespace_field *field)
{
    static const char names[NUM_TENANTS] = {'a', 'b', 'c'};
    struct pkv_seq_options options = {.size = sizeof options, .max_rewind = request->max_rewind};
    if (request->tenant >= 0) {
        *field = (struct pkv_namespace_field){1, 1, &names[request->tenant], TENANT_BEGINS};
        options.namespace_fields = field;
        options.num_namespace_fields = 1;
        options.priority = request->tenant;
    }
    return options;
}

void request_choose_tokens(struct request *request, struct test_random *random, int32_t from)
{
    const uint64_t family = random_u64(random) % NUM_FAMILIES;
    const int32_t own = random_between(random, 0, MAX_LENGTH);
    for (int32_t i = from; i < MAX_LENGTH; i++) {
        const uint64_t draw = i < own ? tag_mix(family, (uint64_t)i) : random_u64(random);
        request->ids[i] = (int32_t)(draw % VOCABULARY);
    }
}

void request_empty(struct request *request)
{
    request->length = request->high = request->first_state = 0;
    request->may_be_lost = false;
    memset(request->digests, 0, sizeof request->digests);
}

void request_drop(struct request *request)
{
    request->state = REQUEST_ABSENT;
    request->seq.id = 0;
    request_empty(request);
}

uint64_t request_next_tag(const struct request *request, uint64_t before, int32_t position,
                          int32_t id)
{
    const bool has_tenant = request->tenant >= 0 && position == TENANT_BEGINS;
    const uint64_t tag = has_tenant ? tag_mix(before, 1000 + (uint64_t)request->tenant) : before;
    return tag_mix(tag, (uint64_t)id);
}

void request_tags(const struct request *request, int32_t num_tokens, uint64_t *tags)
{
    uint64_t tag = FIRST_TAG;
    for (int32_t i = 0; i < num_tokens; i++) {
        tags[i] = tag = request_next_tag(request, tag, i, request->ids[i]);
    }
}

/* Multiples of 1/64, which bf16 holds. */
static void fill(float *values, int32_t num_tokens, int32_t width, const uint64_t *tags,
                 uint64_t what)
{
    for (int32_t i = 0; i < num_tokens; i++) {
        struct test_random random = {tag_mix(tags[i], what)};
        for (int32_t c = 0; c < width; c++) {
            values[i * width + c] = (float)random_between(&random, -64, 63) / 64;
        }
    }
}

static uint64_t digest_values(uint64_t digest, const float *values, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        digest = (digest ^ bits) * 0x100000001b3u;
    }
    return digest;
}

/* All tasks of a layer, by this thread; the last one of a phase first. */
static enum pkv_status run_tasks(pkv_cache *cache, pkv_step step, int32_t layer,
                                 const struct pkv_layer_io *io)
{
    enum pkv_status status = pkv_step_layer_begin(cache, step, layer, io);
    for (int phase = PKV_PHASE_APPEND; phase < PKV_NUM_PHASES; phase++) {
        const int32_t count = pkv_step_num_tasks(cache, step, (enum pkv_phase)phase);
        for (int32_t i = count - 1; i >= 0 && status == PKV_OK; i--) {
            status = pkv_step_run_task(cache, step, (enum pkv_phase)phase, i, 0);
        }
    }
    return status;
}

enum pkv_status forward_run(struct forward *forward, pkv_cache *cache, pkv_step step,
                            int32_t num_layers, int32_t num_tokens)
{
    const struct pkv_layer_io io = {.size = sizeof io,
                                    .q = forward->q,
                                    .k = forward->k,
                                    .v = forward->v,
                                    .out = forward->out,
                                    .lse = forward->lse};
    enum pkv_status status = PKV_OK;
    for (int32_t i = 0; i < num_tokens; i++) {
        forward->digests[i] = 0xcbf29ce484222325u;
    }
    for (int32_t layer = 0; layer < num_layers && status == PKV_OK; layer++) {
        if (forward->world->layers[layer].group >= forward->world->num_attention_groups) {
            continue;
        }
        const uint64_t what = 3 * (uint64_t)layer;
        fill(forward->q, num_tokens, HEADS * WIDTH, forward->tags, what);
        fill(forward->k, num_tokens, KV_HEADS * WIDTH, forward->tags, what + 1);
        fill(forward->v, num_tokens, KV_HEADS * WIDTH, forward->tags, what + 2);
        status = forward->by_tasks ? run_tasks(cache, step, layer, &io)
                                   : pkv_step_attend(cache, step, layer, &io);
        for (int32_t i = 0; i < num_tokens; i++) {
            const uint64_t digest =
                digest_values(forward->digests[i], forward->out + i * HEADS * WIDTH, HEADS * WIDTH);
            forward->digests[i] = digest_values(digest, forward->lse + i * HEADS, HEADS) | 1;
        }
    }
    return status;
}

void replay_open(struct replay *replay, struct world *world)
{
    struct pkv_group_config groups[MAX_GROUPS];
    struct pkv_cache_config config = world->config;
    memcpy(groups, world->groups, sizeof groups);
    for (int32_t g = 0; g < config.num_groups; g++) {
        groups[g].num_blocks = MAX_LENGTH / BLOCK_SIZE;
    }
    replay->world = world;
    replay->forward.world = world;
    config.groups = groups;
    config.max_seqs = 1;
    config.max_step_rows = 0;
    config.num_threads = 1;
    config.prefix_cache = false;
    config.num_tiers = 0;
    config.watermark_blocks = 0;
    config.hooks = test_hooks(&replay->memory);
    world_expect(world, "create of a replay", pkv_cache_create(&config, &replay->cache), PKV_OK,
                 PKV_OK, PKV_OK);
}

void replay_close(struct replay *replay)
{
    struct world *world = replay->world;
    world_expect(world, "destroy of a replay", pkv_cache_destroy(replay->cache, false), PKV_OK,
                 PKV_OK, PKV_OK);
    if (replay->memory.live != 0) {
        world_fault(&world->unsound, "allocations of a replay", replay->memory.live, 0);
    }
}

static void compare(struct replay *replay, const struct request *request, int32_t length)
{
    struct world *world = replay->world;
    for (int32_t i = 0; i < length; i++) {
        if (request->digests[i] == 0) {
            continue;
        }
        atomic_fetch_add(&world->tally.checked_tokens, 1);
        if (request->digests[i] != replay->forward.digests[i]) {
            world_fault(&world->wrong_bits, "bits differ at position", i, -1);
        }
    }
    atomic_fetch_add(&world->tally.checked_requests, 1);
}

void replay_check(struct replay *replay, const struct request *request, int32_t length)
{
    struct world *world = replay->world;
    struct pkv_namespace_field field;
    struct pkv_seq_options options = request_options(request, &field);
    struct pkv_batch batch = {.size = sizeof batch, .num_rows = 1, .num_required_rows = 1};
    pkv_seq seq = {0};
    pkv_step step = {0};
    options.num_namespace_fields = options.priority = options.max_rewind = 0;
    options.namespace_fields = NULL;
    if (length == 0) {
        return;
    }
    request_tags(request, length, replay->forward.tags);
    batch.seqs = &seq;
    batch.q_lens = &length;
    batch.token_ids = request->ids;
    bool is_ok = pkv_seq_create(replay->cache, &options, &seq) == PKV_OK &&
                 pkv_step_begin(replay->cache, &batch, &step, NULL) == PKV_OK;
    is_ok = is_ok && forward_run(&replay->forward, replay->cache, step, world->config.num_layers,
                                 length) == PKV_OK;
    is_ok = is_ok && pkv_step_commit(replay->cache, step, NULL) == PKV_OK &&
            pkv_seq_destroy(replay->cache, seq) == PKV_OK;
    world_expect(world, "replay", is_ok ? PKV_OK : PKV_IO, PKV_OK, PKV_OK, PKV_OK);
    if (is_ok) {
        compare(replay, request, length);
    }
}
