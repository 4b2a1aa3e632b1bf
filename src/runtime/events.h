/* SPDX-License-Identifier: MIT
 *
 * events.h: which blocks became cached and which ceased to be, in which groups, in one order, in a
 * ring that never grows. The mutex is held. O(groups), with kept tokens O(groups + block_size). */
#ifndef PKV_RUNTIME_EVENTS_H
#define PKV_RUNTIME_EVENTS_H

#include "pagedkv/metrics.h"
#include "prefix/prefix_index.h"
#include "runtime/tier_known.h"

/* The last events: number n lies in ring[n % capacity].
 *
 *   next - first waiting,  first <= next,  next - first <= capacity
 *   num_lost: overwritten since the last drain
 *
 * The newest event takes up a further change of the same kind to the same block, so that a block
 * which is stored in all groups is one event. One that was drained, or that a walk over the blocks
 * has counted among what it shows, is sealed: nothing is added to it. */
struct events {
    struct pkv_event *ring;
    int32_t *token_ids;    /* [capacity][block_size] of the events' blocks; NULL = not kept */
    uint64_t *token_extra; /* likewise */
    const struct prefix_index *index;
    const struct tier_known *known; /* NULL: no tiers */
    bool is_onboarding;             /* what is stored comes from a tier */
    int32_t capacity;
    uint64_t first;
    uint64_t next;
    uint64_t sealed; /* events of a lower number do not change any more */
    uint64_t num_lost;
    uint64_t total_lost;
    uint64_t cleared_epoch; /* nodes of an earlier one went with the last CLEARED */
};

/* An empty ring, of which the array is there, over the index. */
void events_init(struct events *events, const struct prefix_index *index, int32_t capacity);

/* The index's observer; context is the struct events. */
void events_observe(void *context, enum prefix_change change, struct prefix_ref node);

/* The block of a node is in more tiers now. */
void events_offload(struct events *events, struct prefix_ref node);

/* The index was reset: all that was stored before is gone. */
void events_clear(struct events *events);

/* The number of the next event; all before it stay as they are. */
uint64_t events_seal(struct events *events);

/* Copies the tokens of the oldest waiting events, at most max_events, whose tokens are kept. Either
 * destination may be NULL. O(tokens). */
void events_copy_tokens(const struct events *events, int32_t max_events, int32_t *token_ids,
                        uint64_t *token_extra);

/* Moves the oldest waiting events, at most max_events, to `to`, which lie event_size bytes apart;
 * returns how many. */
int32_t events_drain(struct events *events, void *to, size_t event_size, int32_t max_events);

/* The events lost since this was asked last. */
uint64_t events_take_lost(struct events *events);

/* A live node as events and tools show it: its keys and its place. */
struct event_keys {
    struct pkv_block_key key;
    struct pkv_block_key parent;
    struct pkv_block_key of_namespace;
    int32_t depth;
};
/* Of a namespace, as events and tiers name it. */
struct pkv_block_key events_namespace_key(const struct prefix_index *index, int32_t namespace_id);

struct event_keys events_keys(const struct prefix_index *index, struct prefix_ref node);

#endif
