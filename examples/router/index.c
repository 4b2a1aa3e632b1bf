/* SPDX-License-Identifier: MIT
 *
 * index.c: a hash table with linear probing, and the rule of docs/keys.md. */
#include "index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_EVENTS = 64 };

void must(enum pkv_status status)
{
    if (status != PKV_OK) {
        fprintf(stderr, "%s: %s\n", pkv_status_name(status), pkv_last_error());
        exit(EXIT_FAILURE);
    }
}

/* --- the table */

static bool is_empty(const struct entry *entry)
{
    return entry->key.low == 0 && entry->key.high == 0;
}

/* Where the key is, or would be. */
static uint32_t place_of(const struct index *index, struct pkv_block_key key)
{
    const uint32_t mask = index->num_entries - 1;
    uint32_t at = (uint32_t)key.low & mask;
    while (!is_empty(&index->entries[at]) &&
           (index->entries[at].key.low != key.low || index->entries[at].key.high != key.high)) {
        at = (at + 1) & mask;
    }
    return at;
}

/* Takes out the entry at a place, and puts those behind it, up to a gap, where they are found. */
static void take_out(struct index *index, uint32_t at)
{
    const uint32_t mask = index->num_entries - 1;
    index->entries[at] = (struct entry){0};
    index->num_keys--;
    for (at = (at + 1) & mask; !is_empty(&index->entries[at]); at = (at + 1) & mask) {
        const struct entry entry = index->entries[at];
        index->entries[at] = (struct entry){0};
        index->entries[place_of(index, entry.key)] = entry;
    }
}

static uint64_t groups_of(const struct index *index, struct pkv_block_key key)
{
    return index->entries[place_of(index, key)].groups;
}

static void set_groups(struct index *index, struct pkv_block_key key, uint64_t groups)
{
    const uint32_t at = place_of(index, key);
    const bool was_empty = is_empty(&index->entries[at]);
    if (groups != 0) {
        index->entries[at] = (struct entry){.key = key, .groups = groups};
        index->num_keys += was_empty;
    } else if (!was_empty) {
        take_out(index, at);
    }
}

static void clear(struct index *index)
{
    memset(index->entries, 0, index->num_entries * sizeof *index->entries);
    index->num_keys = 0;
}

bool index_create(const struct pkv_cache_config *config, struct index *index)
{
    uint32_t max_keys = 0;
    for (int32_t g = 0; g < config->num_groups; g++) {
        max_keys += (uint32_t)config->groups[g].num_blocks;
    }
    *index = (struct index){.config = config, .num_entries = 16, .next = 1};
    while (index->num_entries < 4 * max_keys) {
        index->num_entries *= 2;
    }
    index->entries = calloc(index->num_entries, sizeof *index->entries);
    return index->entries != NULL;
}

void index_free(struct index *index)
{
    free(index->entries);
    *index = (struct index){0};
}

/* --- events */

static void apply(struct index *index, const struct pkv_event *event)
{
    if (event->number < index->next) {
        return; /* a walk over the blocks has shown it */
    }
    index->next = event->number + 1;
    if (event->kind == PKV_EVENT_CLEARED) {
        clear(index);
    } else {
        set_groups(index, event->key, event->groups);
    }
}

static bool learn_block(void *context, const struct pkv_block_info *info)
{
    struct index *index = context;
    if (info->is_indexed) {
        set_groups(index, info->key, groups_of(index, info->key) | (uint64_t)1 << info->group);
    }
    return true;
}

static void learn_anew(struct index *index, pkv_cache *cache)
{
    clear(index);
    index->num_losses++;
    must(pkv_cache_visit(cache, learn_block, index, &index->next));
}

void index_hear(struct index *index, pkv_cache *cache)
{
    struct pkv_event events[MAX_EVENTS];
    int32_t count = MAX_EVENTS;
    while (count == MAX_EVENTS) {
        uint64_t num_lost = 0;
        must(pkv_events_drain(cache, events, sizeof *events, MAX_EVENTS, &count, &num_lost));
        if (num_lost > 0) {
            index->num_lost += num_lost;
            learn_anew(index, cache);
        }
        for (int32_t i = 0; i < count; i++) {
            apply(index, &events[i]);
        }
    }
}

/* --- hits */

/* So many blocks of the prompt, up to block `count`, are all in the group. */
static int32_t run_before(const struct index *index, const struct pkv_block_key *keys,
                          int32_t count, int32_t group)
{
    int32_t first = count;
    while (first > 0 && (groups_of(index, keys[first - 1]) >> group & 1) != 0) {
        first--;
    }
    return count - first;
}

/* A sequence can go on behind `count` whole blocks: the group has what a query there sees. */
static bool can_go_on(const struct index *index, const struct pkv_seq_options *options,
                      const struct pkv_block_key *keys, int32_t count, int32_t group)
{
    const struct pkv_group_config *of = &index->config->groups[group];
    const int64_t size = of->block_size;
    const int64_t length = count * size;
    if (of->sliding_window == 0) {
        return run_before(index, keys, count, group) == count;
    }
    int64_t window = of->sliding_window, kept = of->kept_prefix;
    if (options != NULL) {
        window += options->max_rewind;
        kept = options->kept_prefix != NULL ? *options->kept_prefix : kept;
    }
    const int64_t first_key = window > length ? 0 : length - window + 1;
    const int64_t kept_end = kept < length ? kept : length;
    const int32_t num_kept = (int32_t)((kept_end + size - 1) / size);
    return run_before(index, keys, count, group) >= count - (int32_t)(first_key / size) &&
           run_before(index, keys, num_kept, group) == num_kept;
}

int32_t index_hit(const struct index *index, const struct pkv_seq_options *options,
                  const struct pkv_prompt *prompt, const struct pkv_block_key *keys,
                  int32_t num_keys)
{
    const int32_t size = index->config->groups[0].block_size;
    int32_t count = (prompt->num_tokens - 1) / size;
    for (count = num_keys < count ? num_keys : count; count > 0; count--) {
        bool is_hit = true;
        for (int32_t g = 0; g < index->config->num_groups && is_hit; g++) {
            is_hit = can_go_on(index, options, keys, count, g);
        }
        if (is_hit) {
            break;
        }
    }
    return count * size;
}
