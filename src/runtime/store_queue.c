/* SPDX-License-Identifier: MIT
 *
 * Records are in lists by state, linked inside them. */
#include "runtime/store_queue.h"

#include "base/minmax.h"

static void push_first(struct store_queue *queue, struct store_list *list, int32_t index)
{
    queue->at[index].next = list->first;
    list->first = index;
    list->last = list->last == NO_STORE ? index : list->last;
}

static void push_last(struct store_queue *queue, struct store_list *list, int32_t index)
{
    queue->at[index].next = NO_STORE;
    if (list->last == NO_STORE) {
        list->first = index;
    } else {
        queue->at[list->last].next = index;
    }
    list->last = index;
}

static int32_t pop_first(struct store_queue *queue, struct store_list *list)
{
    const int32_t index = list->first;
    if (index != NO_STORE) {
        list->first = queue->at[index].next;
        list->last = list->first == NO_STORE ? NO_STORE : list->last;
    }
    return index;
}

int32_t store_queue_limit(const struct pkv_cache_config *config, int32_t num_blocks)
{
    return config->max_store_blocks > 0 ? min_i32(config->max_store_blocks, num_blocks)
                                        : max_i32(num_blocks / 8, 1);
}

void store_queue_carve(const struct pkv_cache_config *config, const int32_t *num_blocks,
                       struct store_queue *queue, struct carver *carver)
{
    const size_t num_groups = (size_t)config->num_groups;
    int64_t capacity = 0;
    queue->num_held = carve(carver, num_groups, sizeof *queue->num_held);
    queue->max_held = carve(carver, num_groups, sizeof *queue->max_held);
    queue->records = carve(carver, num_groups, sizeof *queue->records);
    for (size_t g = 0; g < num_groups; g++) {
        int32_t *records = carve(carver, (size_t)num_blocks[g], sizeof *records);
        const int32_t limit = store_queue_limit(config, num_blocks[g]);
        capacity += limit;
        if (carver->base != NULL) {
            queue->records[g] = records;
            queue->max_held[g] = limit;
        }
    }
    queue->capacity = (int32_t)min_i64(capacity, INT32_MAX);
    queue->at = carve(carver, (size_t)queue->capacity, sizeof *queue->at);
}

void store_queue_init(struct store_queue *queue, struct group *groups)
{
    const struct store_list empty = {NO_STORE, NO_STORE};
    queue->groups = groups;
    queue->free = empty;
    queue->waiting = empty;
    queue->done = empty;
    for (int32_t i = 0; i < queue->capacity; i++) {
        push_last(queue, &queue->free, i);
    }
}

bool store_queue_admits(const struct store_queue *queue, int32_t group, int32_t block)
{
    const struct group *of = &queue->groups[group];
    return !store_queue_has(queue, group, block) && queue->free.first != NO_STORE &&
           queue->num_held[group] < queue->max_held[group] &&
           (!block_costs_spare(&of->blocks, block) || seq_table_num_spare(&of->tables) > 0);
}

void store_queue_add(struct store_queue *queue, struct prefix_ref node, int32_t group,
                     int32_t block, uint32_t tiers, int32_t ticket)
{
    const int32_t index = pop_first(queue, &queue->free);
    queue->at[index] = (struct store){.node = node,
                                      .group = group,
                                      .block = block,
                                      .ticket = ticket,
                                      .state = STORE_WAITING,
                                      .tiers = (uint8_t)tiers};
    push_last(queue, &queue->waiting, index);
    queue->num_used++;
    queue->num_waiting++;
    queue->num_held[group]++;
    queue->records[group][block] = index + 1;
    block_adopt(&queue->groups[group].blocks, block, false);
}

bool store_queue_claim(struct store_queue *queue, int32_t group, int32_t block, uint32_t tiers,
                       int32_t ticket)
{
    struct store *store = &queue->at[queue->records[group][block] - 1];
    if (store->ticket != NO_TICKET) {
        return false;
    }
    store->ticket = ticket;
    if (store->state == STORE_WAITING) {
        store->tiers |= (uint8_t)tiers;
    }
    return true;
}

int32_t store_queue_peek(const struct store_queue *queue)
{
    return queue->waiting.first;
}

int32_t store_queue_take(struct store_queue *queue)
{
    const int32_t index = pop_first(queue, &queue->waiting);
    if (index != NO_STORE) {
        queue->at[index].state = STORE_RUNNING;
    }
    return index;
}

void store_queue_finish(struct store_queue *queue, int32_t index, uint32_t stored)
{
    queue->at[index].state = STORE_DONE;
    queue->at[index].stored = (uint8_t)stored;
    queue->num_waiting--;
    push_first(queue, &queue->done, index);
}

bool store_queue_release(struct store_queue *queue, struct store *done)
{
    const int32_t index = pop_first(queue, &queue->done);
    if (index == NO_STORE) {
        return false;
    }
    *done = queue->at[index];
    queue->at[index].state = STORE_FREE;
    queue->num_used--;
    queue->num_held[done->group]--;
    queue->records[done->group][done->block] = 0;
    block_drop(&queue->groups[done->group].blocks, done->block, NO_SEQ, false);
    push_last(queue, &queue->free, index);
    return true;
}
