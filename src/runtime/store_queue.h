/* SPDX-License-Identifier: MIT
 *
 * store_queue.h: blocks that are to be stored in tiers. Each is held from the moment that it joins
 * the queue until what became of it takes effect. The mutex is held. O(1) a block. */
#ifndef PKV_RUNTIME_STORE_QUEUE_H
#define PKV_RUNTIME_STORE_QUEUE_H

#include "runtime/group.h"

#define NO_STORE (-1)
#define NO_TICKET (-1)

enum store_state { STORE_FREE, STORE_WAITING, STORE_RUNNING, STORE_DONE };

/* A record: free, or a block of a node. */
struct store {
    struct prefix_ref node;
    int32_t group;
    int32_t block;  /* held */
    int32_t ticket; /* of pkv_tier_store, or NO_TICKET */
    int32_t next;   /* in its list; running ones are in none */
    uint8_t state;
    uint8_t tiers;  /* it is to be in */
    uint8_t stored; /* it is in, once done */
};

struct store_list {
    int32_t first;
    int32_t last;
};

/* All records.
 *
 *   free + waiting + running + done = capacity
 * num_held[g] = records in use of group g <= max_held[g]
 */
struct store_queue {
    struct group *groups;
    struct store *at; /* [capacity] */
    int32_t capacity;
    int32_t num_used;
    int32_t num_waiting; /* and running */
    struct store_list free;
    struct store_list waiting;
    struct store_list done;
    int32_t *num_held; /* [num_groups] */
    int32_t *max_held; /* likewise */
    int32_t **records; /* [num_groups][num_blocks]: 1 + the one that has it, or 0 */
};

/* Blocks of a group that may wait, of those that it has. */
int32_t store_queue_limit(const struct pkv_cache_config *config, int32_t num_blocks);

/* The arrays; num_blocks [num_groups]. While counting, *queue may be any memory. */
void store_queue_carve(const struct pkv_cache_config *config, const int32_t *num_blocks,
                       struct store_queue *queue, struct carver *carver);

/* All records are free. */
void store_queue_init(struct store_queue *queue, struct group *groups);

/* Has this block joined, and is it still held? */
static inline bool store_queue_has(const struct store_queue *queue, int32_t group, int32_t block)
{
    return queue->records[group][block] != 0;
}

/* May this block of a node join? Not if it has, or if there is no room, or if holding it would take
 * what was promised. */
bool store_queue_admits(const struct store_queue *queue, int32_t group, int32_t block);

/* It joins, and is held. */
void store_queue_add(struct store_queue *queue, struct prefix_ref node, int32_t group,
                     int32_t block, uint32_t tiers, int32_t ticket);

/* A block that has joined is the ticket's from now on, and is to be in these tiers too, if it still
 * waits. False when it is another ticket's. */
bool store_queue_claim(struct store_queue *queue, int32_t group, int32_t block, uint32_t tiers,
                       int32_t ticket);

/* The next one that waits, which is running from now on; NO_STORE when none does. _peek leaves it.
 */
int32_t store_queue_peek(const struct store_queue *queue);
int32_t store_queue_take(struct store_queue *queue);

/* A running one is done, in these tiers. */
void store_queue_finish(struct store_queue *queue, int32_t index, uint32_t stored);

/* The one that was done last, whose block is released: its record is copied to *done. False when
 * none is. Blocks of a prompt join from its first on, so they are released last block first, like
 * those of a sequence. */
bool store_queue_release(struct store_queue *queue, struct store *done);

#endif
