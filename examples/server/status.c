/* SPDX-License-Identifier: MIT */
#include "status.h"

#include "pagedkv/offload.h"

#include <cjson/cJSON.h>

#include <stdio.h>
#include <stdlib.h>

/* Blocks of a group, and holders of a block, that the page is told of. */
enum { MAX_SHOWN_BLOCKS = 4096, MAX_SHOWN_REQUESTS = 256, MAX_TABLE = 8192 };

/* ---- blocks --------------------------------------------------------------------------------- */

/* One group as it is walked: a letter a block, and what there is to say about single ones. */
struct group_map {
    char letters[MAX_SHOWN_BLOCKS + 1];
    int32_t num_letters, num_blocks;
    cJSON *details; /* block id -> [references, blocks before it in its text, priority] */
    int32_t num_free, num_cached, num_held, num_pinned, num_shared;
};

struct walk {
    struct group_map *groups;
    int32_t num_groups;
};

static char letter_of(const struct pkv_block_info *info, struct group_map *map)
{
    switch (info->state) {
    case PKV_BLOCK_FREE: map->num_free++; return 'f';
    case PKV_BLOCK_CACHED: map->num_cached++; return 'c';
    case PKV_BLOCK_PINNED: map->num_pinned++; return 'p';
    case PKV_BLOCK_HELD: break;
    }
    map->num_held++;
    map->num_shared += info->ref_count > 1;
    return info->ref_count > 1 ? 's' : 'h';
}

static bool visit_block(void *context, const struct pkv_block_info *info)
{
    struct walk *walk = context;
    struct group_map *map = &walk->groups[info->group];
    const char letter = letter_of(info, map);
    map->num_blocks++;
    if (map->num_letters == MAX_SHOWN_BLOCKS) {
        return true;
    }
    map->letters[map->num_letters] = letter;
    map->num_letters++;
    if (letter != 'f') {
        char name[16];
        const int values[] = {info->ref_count, info->is_indexed ? info->depth : -1, info->priority};
        snprintf(name, sizeof name, "%d", info->block);
        cJSON_AddItemToObject(map->details, name, cJSON_CreateIntArray(values, 3));
    }
    return true;
}

/* ---- holders -------------------------------------------------------------------------------- */

struct holders {
    pkv_cache *cache;
    int32_t num_groups;
    int32_t *table; /* [MAX_TABLE] */
    cJSON *list;    /* {request, length, blocks: one list a group} */
    int32_t num_listed;
};

static bool visit_seq(void *context, pkv_seq seq, const struct pkv_seq_info *info)
{
    struct holders *h = context;
    if (h->num_listed == MAX_SHOWN_REQUESTS) {
        return false;
    }
    cJSON *item = cJSON_CreateObject();
    cJSON_AddNumberToObject(item, "request", (double)info->tag);
    cJSON_AddNumberToObject(item, "length", info->length);
    cJSON_AddNumberToObject(item, "cached", info->num_cached);
    cJSON *blocks = cJSON_AddArrayToObject(item, "blocks");
    for (int32_t g = 0; g < h->num_groups; g++) {
        int32_t count = 0;
        if (pkv_seq_table(h->cache, seq, g, h->table, MAX_TABLE, &count) != PKV_OK) {
            count = 0; /* it has ended meanwhile */
        }
        count = count < MAX_TABLE ? count : MAX_TABLE;
        cJSON_AddItemToArray(blocks, cJSON_CreateIntArray(h->table, count));
    }
    cJSON_AddItemToArray(h->list, item);
    h->num_listed++;
    return true;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void add_groups(cJSON *object, const struct pkv_cache_config *config, struct walk *walk)
{
    cJSON *list = cJSON_AddArrayToObject(object, "groups");
    for (int32_t g = 0; g < config->num_groups; g++) {
        struct group_map *map = &walk->groups[g];
        cJSON *item = cJSON_CreateObject();
        map->letters[map->num_letters] = '\0';
        cJSON_AddNumberToObject(item, "window", (double)config->groups[g].sliding_window);
        cJSON_AddNumberToObject(item, "block_size", config->groups[g].block_size);
        cJSON_AddNumberToObject(item, "num_blocks", map->num_blocks);
        cJSON_AddNumberToObject(item, "free", map->num_free);
        cJSON_AddNumberToObject(item, "cached", map->num_cached);
        cJSON_AddNumberToObject(item, "held", map->num_held);
        cJSON_AddNumberToObject(item, "shared", map->num_shared);
        cJSON_AddNumberToObject(item, "pinned", map->num_pinned);
        cJSON_AddStringToObject(item, "map", map->letters);
        cJSON_AddItemToObject(item, "details", map->details);
        cJSON_AddItemToArray(list, item);
    }
}

static bool add_blocks(cJSON *object, pkv_cache *cache)
{
    struct pkv_cache_config config = {.size = sizeof config};
    if (pkv_cache_describe(cache, &config) != PKV_OK) {
        return false;
    }
    struct walk walk = {calloc((size_t)config.num_groups, sizeof *walk.groups), config.num_groups};
    struct holders holders = {.cache = cache,
                              .num_groups = config.num_groups,
                              .table = malloc(MAX_TABLE * sizeof *holders.table),
                              .list = cJSON_AddArrayToObject(object, "holders")};
    bool ok = walk.groups != NULL && holders.table != NULL;
    for (int32_t g = 0; ok && g < config.num_groups; g++) {
        walk.groups[g].details = cJSON_CreateObject();
    }
    ok = ok && pkv_cache_visit(cache, visit_block, &walk, NULL) == PKV_OK &&
         pkv_cache_visit_seqs(cache, visit_seq, &holders) == PKV_OK;
    if (ok) {
        add_groups(object, &config, &walk);
    }
    free(walk.groups);
    free(holders.table);
    return ok;
}

static void add_requests(cJSON *object, struct engine *engine)
{
    static const char *const names[] = {"waiting", "prefill", "decoding"};
    struct engine_request requests[MAX_SHOWN_REQUESTS];
    const int32_t count = engine_requests(engine, MAX_SHOWN_REQUESTS, requests);
    cJSON *list = cJSON_AddArrayToObject(object, "requests");
    for (int32_t i = 0; i < count && i < MAX_SHOWN_REQUESTS; i++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddNumberToObject(item, "id", (double)requests[i].id);
        cJSON_AddStringToObject(item, "state", names[requests[i].state]);
        cJSON_AddNumberToObject(item, "prompt", requests[i].num_prompt);
        cJSON_AddNumberToObject(item, "cached", requests[i].num_cached);
        cJSON_AddNumberToObject(item, "generated", requests[i].num_generated);
        cJSON_AddNumberToObject(item, "choices", requests[i].num_choices);
        cJSON_AddItemToArray(list, item);
    }
}

static void add_state(cJSON *object, struct engine *engine, double stream_bandwidth)
{
    struct engine_state s;
    engine_state(engine, &s);
    cJSON_AddNumberToObject(object, "tokens_per_second", s.tokens_per_second);
    cJSON_AddNumberToObject(object, "bytes_per_second", s.bytes_per_second);
    cJSON_AddNumberToObject(object, "stream_bandwidth", stream_bandwidth);
    cJSON_AddNumberToObject(object, "running", s.num_running);
    cJSON_AddNumberToObject(object, "waiting", s.num_waiting);
    cJSON_AddNumberToObject(object, "done", (double)s.num_done);
    cJSON_AddNumberToObject(object, "cancelled", (double)s.num_cancelled);
    cJSON_AddNumberToObject(object, "failed", (double)s.num_failed);
    cJSON_AddNumberToObject(object, "preemptions", (double)s.num_preemptions);
    cJSON_AddNumberToObject(object, "steps", (double)s.num_steps);
    cJSON_AddNumberToObject(object, "generated", (double)s.num_generated);
    cJSON_AddNumberToObject(object, "drafted", (double)s.num_drafted);
    cJSON_AddNumberToObject(object, "accepted", (double)s.num_accepted);
}

static void add_hits(cJSON *object, pkv_cache *cache)
{
    struct pkv_stats stats = {.size = sizeof stats};
    if (pkv_cache_stats(cache, &stats) == PKV_OK) {
        cJSON_AddNumberToObject(object, "queried_tokens", (double)stats.queried_tokens);
        cJSON_AddNumberToObject(object, "hit_tokens", (double)stats.hit_tokens);
        cJSON_AddNumberToObject(object, "evicted_blocks", (double)stats.evicted_blocks);
    }
}

/* Per tier: what was found in it, and what became of stores and loads. */
static void add_tiers(cJSON *object, struct engine *engine)
{
    const struct tiers *tiers = engine_tiers(engine);
    cJSON *list = cJSON_AddArrayToObject(object, "tiers");
    for (int32_t t = 0; t < tiers->count; t++) {
        struct pkv_tier_stats stats = {.size = sizeof stats};
        if (pkv_tier_read_stats(engine_cache(engine), t, &stats) != PKV_OK) {
            return;
        }
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", tiers->names[t]);
        cJSON_AddNumberToObject(item, "hit_tokens", (double)stats.hit_tokens);
        cJSON_AddNumberToObject(item, "stored_blocks", (double)stats.stored_blocks);
        cJSON_AddNumberToObject(item, "loaded_blocks", (double)stats.loaded_blocks);
        cJSON_AddNumberToObject(item, "missed_blocks", (double)stats.missed_blocks);
        cJSON_AddNumberToObject(item, "failed_stores", (double)stats.failed_stores);
        cJSON_AddNumberToObject(item, "skipped_stores", (double)stats.skipped_stores);
        cJSON_AddNumberToObject(item, "failed_loads", (double)stats.failed_loads);
        cJSON_AddNumberToObject(item, "corrupt_blocks", (double)stats.corrupt_blocks);
        cJSON_AddNumberToObject(item, "waiting_stores", stats.waiting_stores);
        cJSON_AddItemToArray(list, item);
    }
}

char *status_json(const struct language_model *lm, struct engine *engine, double stream_bandwidth)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "model", lm->name);
    add_state(object, engine, stream_bandwidth);
    add_hits(object, engine_cache(engine));
    add_tiers(object, engine);
    add_requests(object, engine);
    char *text = NULL;
    if (add_blocks(object, engine_cache(engine))) {
        text = cJSON_PrintUnformatted(object);
    }
    cJSON_Delete(object);
    return text;
}
