/* SPDX-License-Identifier: MIT
 *
 * The ring overwrites its oldest event when it is full and counts the loss, so recording takes no
 * memory and never fails. The nodes of a reset are taken apart in slices later: the one CLEARED
 * event covers them, so none of them is reported again; an equal block may have been stored anew
 * meanwhile. */
#include "runtime/events.h"

#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/little_endian.h"
#include "base/sized.h"
#include "prefix/prefix_blocks.h"
#include "prefix/prefix_flush.h"

void events_init(struct events *events, const struct prefix_index *index, int32_t capacity)
{
    events->index = index;
    events->capacity = capacity;
    events->first = 1;
    events->next = 1;
    events->sealed = 1;
}

/* Tag and length go before each field's bytes, so no two sets are written the same. */
struct pkv_block_key events_namespace_key(const struct prefix_index *index, int32_t namespace_id)
{
    struct pkv_namespace_field fields[PKV_MAX_NAMESPACE_FIELDS];
    unsigned char text[PKV_MAX_NAMESPACE_FIELDS * (PKV_MAX_NAMESPACE_BYTES + 2 * sizeof(int32_t))];
    unsigned char *to = text;
    const int32_t count = prefix_index_fields(index, namespace_id, fields);
    for (int32_t i = 0; i < count; i++) {
        const size_t length = (size_t)fields[i].length;
        to = put_u32(to, (uint32_t)fields[i].tag);
        to = put_u32(to, (uint32_t)fields[i].length);
        if (length > 0) {
            memcpy(to, fields[i].bytes, length);
        }
        to += length;
    }
    return count > 0 ? hash_128(text, (size_t)(to - text)) : (struct pkv_block_key){0};
}

struct event_keys events_keys(const struct prefix_index *index, struct prefix_ref node)
{
    const struct prefix_node *of = prefix_index_node(index, node);
    struct event_keys keys = {0};
    if (of == NULL) {
        return keys;
    }
    keys.key = of->key;
    keys.of_namespace = events_namespace_key(index, of->namespace_id);
    keys.depth = of->depth;
    const struct prefix_node *parent = prefix_index_node(index, of->parent);
    if (parent != NULL) {
        keys.parent = parent->key;
    }
    return keys;
}

/* The groups in which a node has a block: bit g for group g. */
static uint64_t groups_of(const struct prefix_index *index, struct prefix_ref node)
{
    uint64_t groups = 0;
    for (int32_t g = 0; g < index->config.num_groups; g++) {
        const bool has_block = prefix_index_block(index, node, g) != NO_BLOCK;
        groups |= (uint64_t)has_block << g;
    }
    return groups;
}

/* The newest event, when the change is one more of its kind to the same block; else NULL. */
static struct pkv_event *newest_of(struct events *events, const struct pkv_event *change)
{
    if (events->next == events->first || events->next <= events->sealed) {
        return NULL;
    }
    struct pkv_event *newest = &events->ring[(events->next - 1) % (uint64_t)events->capacity];
    const bool is_same = newest->kind == change->kind && newest->reason == change->reason &&
                         prefix_key_equals(newest->key, change->key);
    return is_same ? newest : NULL;
}

/* Tokens of a node, or zeros for none, to where those of event `number` lie. */
static void record_tokens(struct events *events, uint64_t number, struct prefix_ref node)
{
    const size_t block_size = (size_t)events->index->config.block_size;
    const size_t first = (size_t)(number % (uint64_t)events->capacity) * block_size;
    const int32_t *ids = prefix_index_tokens(events->index, node);
    const uint64_t *extra = prefix_index_extra(events->index, node);
    if (events->token_ids == NULL) {
        return;
    }
    memset(events->token_ids + first, 0, block_size * sizeof *ids);
    memset(events->token_extra + first, 0, block_size * sizeof *extra);
    if (ids != NULL) {
        memcpy(events->token_ids + first, ids, block_size * sizeof *ids);
    }
    if (extra != NULL) {
        memcpy(events->token_extra + first, extra, block_size * sizeof *extra);
    }
}

static void record(struct events *events, const struct pkv_event *event, struct prefix_ref node)
{
    const uint64_t capacity = (uint64_t)events->capacity;
    if (capacity == 0) {
        return;
    }
    if (events->next - events->first == capacity) {
        events->first++;
        events->num_lost++;
        events->total_lost++;
    }
    struct pkv_event *to = &events->ring[events->next % capacity];
    *to = *event;
    to->number = events->next++;
    record_tokens(events, to->number, node);
}

/* Tiers that have a block of these groups in all of them, or, of no groups, in some. */
static uint64_t tiers_of(const struct events *events, struct pkv_block_key key, uint64_t groups)
{
    uint32_t in_all = (1u << PKV_MAX_TIERS) - 1;
    uint32_t in_some = 0;
    for (int32_t g = 0; events->known != NULL && g < events->index->config.num_groups; g++) {
        const uint32_t tiers = tier_known_get(events->known, key, g);
        in_some |= tiers;
        in_all &= (groups >> g & 1) != 0 ? tiers : in_all;
    }
    return groups != 0 && events->known != NULL ? in_all : in_some;
}

/* What happened to a node that is not stale, without kind and reason. */
static struct pkv_event event_of(const struct events *events, struct prefix_ref node)
{
    const struct event_keys keys = events_keys(events->index, node);
    const uint64_t groups = groups_of(events->index, node);
    return (struct pkv_event){
        .key = keys.key,
        .parent_key = keys.parent,
        .namespace_key = keys.of_namespace,
        .groups = groups,
        .depth = keys.depth,
        .tiers = tiers_of(events, keys.key, groups),
    };
}

/* Records it, or adds it to the newest one, if that is of its kind and of the same block. */
static void record_change(struct events *events, const struct pkv_event *event,
                          struct prefix_ref node)
{
    struct pkv_event *newest = newest_of(events, event);
    if (newest != NULL) {
        newest->groups = event->groups;
        newest->tiers = event->tiers;
    } else {
        record(events, event, node);
    }
}

/* A node that is not live any more was flushed, whenever its blocks go. */
static enum pkv_event_reason reason_of_removal(const struct events *events, struct prefix_ref node,
                                               uint64_t tiers)
{
    return !prefix_index_is_live(events->index, node) ? PKV_REASON_FLUSH
           : tiers != 0                               ? PKV_REASON_DEMOTED
                                                      : PKV_REASON_CAPACITY;
}

void events_observe(void *context, enum prefix_change change, struct prefix_ref node)
{
    struct events *events = context;
    const bool is_stored = change == PREFIX_STORED;
    const struct prefix_node *of = prefix_index_node(events->index, node);
    if (events->capacity == 0 || of == NULL || of->epoch < events->cleared_epoch) {
        return;
    }
    struct pkv_event event = event_of(events, node);
    if (is_stored) {
        event.kind = events->is_onboarding ? PKV_EVENT_ONBOARDED : PKV_EVENT_STORED;
        event.reason = events->is_onboarding ? PKV_REASON_PREFETCH : PKV_REASON_COMMIT;
    } else {
        event.kind = PKV_EVENT_REMOVED;
        event.reason = reason_of_removal(events, node, event.tiers);
    }
    record_change(events, &event, node);
}

void events_offload(struct events *events, struct prefix_ref node)
{
    const struct prefix_node *of = prefix_index_node(events->index, node);
    if (events->capacity == 0 || of == NULL || of->epoch < events->cleared_epoch) {
        return;
    }
    struct pkv_event event = event_of(events, node);
    event.kind = PKV_EVENT_OFFLOADED;
    event.reason = PKV_REASON_STORE;
    record_change(events, &event, node);
}

void events_clear(struct events *events)
{
    const struct pkv_event event = {.kind = PKV_EVENT_CLEARED, .reason = PKV_REASON_RESET};
    events->cleared_epoch = prefix_index_epoch(events->index);
    record(events, &event, PREFIX_ROOT);
}

uint64_t events_seal(struct events *events)
{
    events->sealed = events->next;
    return events->next;
}

void events_copy_tokens(const struct events *events, int32_t max_events, int32_t *token_ids,
                        uint64_t *token_extra)
{
    const size_t block_size = (size_t)events->index->config.block_size;
    const uint64_t waiting = events->next - events->first;
    const uint64_t count = (uint64_t)max_events < waiting ? (uint64_t)max_events : waiting;
    for (uint64_t i = 0; i < count; i++) {
        const size_t from = (size_t)((events->first + i) % (uint64_t)events->capacity) * block_size;
        const size_t to = (size_t)i * block_size;
        if (token_ids != NULL) {
            memcpy(token_ids + to, events->token_ids + from, block_size * sizeof *token_ids);
        }
        if (token_extra != NULL) {
            memcpy(token_extra + to, events->token_extra + from, block_size * sizeof *token_extra);
        }
    }
}

int32_t events_drain(struct events *events, void *to, size_t event_size, int32_t max_events)
{
    int32_t moved = 0;
    while (moved < max_events && events->first < events->next) {
        const struct pkv_event *from = &events->ring[events->first++ % (uint64_t)events->capacity];
        sized_copy((unsigned char *)to + (size_t)moved * event_size, event_size, from,
                   sizeof *from);
        moved++;
    }
    return moved;
}

uint64_t events_take_lost(struct events *events)
{
    const uint64_t lost = events->num_lost;
    events->num_lost = 0;
    return lost;
}
