/* SPDX-License-Identifier: MIT */
#include "support/memory_tier.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct memory_value *memory_tier_find(struct memory_tier *memory, const char *name)
{
    for (int32_t i = 0; i < memory->num_values; i++) {
        if (strcmp(memory->values[i].name, name) == 0) {
            return &memory->values[i];
        }
    }
    return NULL;
}

static bool fails(int32_t *at)
{
    return *at > 0 && --*at == 0;
}

static enum pkv_status put_one(struct memory_tier *memory, const struct pkv_tier_item *item)
{
    memory->num_puts++;
    if (memory->is_down || fails(&memory->fails_put_at)) {
        return PKV_IO;
    }
    struct memory_value *value = memory_tier_find(memory, item->name);
    if (value == NULL && memory->num_values == memory->capacity) {
        value = &memory->values[memory->num_puts % memory->capacity];
        strcpy(value->name, item->name);
    } else if (value == NULL) {
        value = &memory->values[memory->num_values++];
        *value = (struct memory_value){.length = 0};
        strcpy(value->name, item->name);
    }
    value->bytes = realloc(value->bytes, item->bytes + 1);
    value->length = 0;
    for (int32_t p = 0; p < item->num_pieces; p++) {
        memcpy(value->bytes + value->length, item->pieces[p].bytes, item->pieces[p].length);
        value->length += item->pieces[p].length;
    }
    return value->length == item->bytes ? PKV_OK : PKV_IO;
}

static enum pkv_status get_one(struct memory_tier *memory, const struct pkv_tier_item *item)
{
    memory->num_gets++;
    if (memory->is_down || fails(&memory->fails_get_at)) {
        return PKV_IO;
    }
    const struct memory_value *value = memory_tier_find(memory, item->name);
    if (value == NULL) {
        return PKV_NOT_FOUND;
    }
    if (value->length != item->bytes) {
        return PKV_CORRUPT;
    }
    size_t at = 0;
    for (int32_t p = 0; p < item->num_pieces; p++) {
        memcpy(item->pieces[p].bytes, value->bytes + at, item->pieces[p].length);
        at += item->pieces[p].length;
    }
    return PKV_OK;
}

static enum pkv_status find_one(struct memory_tier *memory, const struct pkv_tier_item *item)
{
    memory->num_finds++;
    if (memory->is_down) {
        return PKV_IO;
    }
    return memory_tier_find(memory, item->name) != NULL ? PKV_OK : PKV_NOT_FOUND;
}

static enum pkv_status remove_one(struct memory_tier *memory, const struct pkv_tier_item *item)
{
    memory->num_removes++;
    struct memory_value *value = memory_tier_find(memory, item->name);
    if (memory->is_down || value == NULL) {
        return memory->is_down ? PKV_IO : PKV_NOT_FOUND;
    }
    free(value->bytes);
    *value = memory->values[--memory->num_values];
    return PKV_OK;
}

typedef enum pkv_status one_function(struct memory_tier *memory, const struct pkv_tier_item *item);

static void each(void *context, struct pkv_tier_item *items, int32_t num_items, one_function *one)
{
    struct memory_tier *memory = context;
    pthread_mutex_lock(&memory->mutex);
    for (int32_t i = 0; i < num_items && !memory->answers_nothing; i++) {
        items[i].status = one(memory, &items[i]);
    }
    pthread_mutex_unlock(&memory->mutex);
}

static void put(void *context, struct pkv_tier_item *items, int32_t num_items)
{
    each(context, items, num_items, put_one);
}

static void meet(struct memory_tier *memory)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    pthread_mutex_lock(&memory->mutex);
    memory->num_begun++;
    pthread_cond_broadcast(&memory->begins);
    int error = 0;
    while (memory->num_begun < 2 && error == 0) {
        error = pthread_cond_timedwait(&memory->begins, &memory->mutex, &until);
    }
    memory->waited_in_vain |= error != 0;
    pthread_mutex_unlock(&memory->mutex);
}

static void get(void *context, struct pkv_tier_item *items, int32_t num_items)
{
    struct memory_tier *memory = context;
    if (memory->gets_meet) {
        meet(memory);
    }
    each(context, items, num_items, get_one);
}

static void find(void *context, struct pkv_tier_item *items, int32_t num_items)
{
    each(context, items, num_items, find_one);
}

static void remove_items(void *context, struct pkv_tier_item *items, int32_t num_items)
{
    each(context, items, num_items, remove_one);
}

static uint64_t *counter_of(struct memory_tier *memory, const char *name)
{
    int32_t i = 0;
    while (i < memory->num_counters && strcmp(memory->counters[i].name, name) != 0) {
        i++;
    }
    if (i == memory->num_counters) {
        memory->num_counters++;
        strcpy(memory->counters[i].name, name);
        memory->counters[i].bytes = calloc(1, sizeof(uint64_t));
    }
    return (uint64_t *)(void *)memory->counters[i].bytes;
}

static void count(void *context, struct pkv_tier_counter *counters, int32_t num_counters)
{
    struct memory_tier *memory = context;
    pthread_mutex_lock(&memory->mutex);
    memory->num_counts++;
    for (int32_t i = 0; i < num_counters && !memory->answers_nothing; i++) {
        uint64_t *value = counter_of(memory, counters[i].name);
        *value += memory->is_down ? 0 : counters[i].add;
        counters[i].value = *value;
        counters[i].status = memory->is_down ? PKV_IO : PKV_OK;
    }
    pthread_mutex_unlock(&memory->mutex);
}

static void list(void *context, bool (*visit)(void *visit_context, const char *name),
                 void *visit_context)
{
    struct memory_tier *memory = context;
    for (int32_t i = 0; memory->lists && i < memory->num_values; i++) {
        if (!visit(visit_context, memory->values[i].name)) {
            return;
        }
    }
}

void memory_tier_open(struct memory_tier *memory, const char *name)
{
    memset(memory, 0, sizeof *memory);
    memory->capacity = MEMORY_TIER_VALUES;
    pthread_mutex_init(&memory->mutex, NULL);
    pthread_cond_init(&memory->begins, NULL);
    const struct pkv_tier_ops ops = {
        .size = sizeof ops,
        .name = name,
        .context = memory,
        .put = put,
        .get = get,
        .find = find,
        .remove = remove_items,
        .count = count,
        .list = list,
    };
    ASSERT_STATUS(PKV_OK, pkv_tier_create(&ops, &memory->tier));
}

void memory_tier_clear(struct memory_tier *memory)
{
    for (int32_t i = 0; i < memory->num_values; i++) {
        free(memory->values[i].bytes);
    }
    memory->num_values = 0;
}

void memory_tier_close(struct memory_tier *memory)
{
    pkv_tier_destroy(memory->tier);
    memory_tier_clear(memory);
    for (int32_t i = 0; i < memory->num_counters; i++) {
        free(memory->counters[i].bytes);
    }
    pthread_mutex_destroy(&memory->mutex);
    pthread_cond_destroy(&memory->begins);
}
