/* SPDX-License-Identifier: MIT */
#include "values.h"

#include <stdlib.h>
#include <string.h>

#include "measure.h"

static struct value *find_value(struct values *values, const char *name)
{
    for (int32_t i = 0; i < values->count; i++) {
        if (strcmp(values->at[i].name, name) == 0) {
            return &values->at[i];
        }
    }
    return NULL;
}

static struct value *make_value(struct values *values, const struct pkv_tier_item *item)
{
    if (values->count == VALUES_MAX) {
        measure_fail("too many values");
    }
    struct value *value = &values->at[values->count++];
    strcpy(value->name, item->name);
    value->length = item->bytes;
    value->bytes = measure_calloc(1, item->bytes);
    return value;
}

static void put(void *context, struct pkv_tier_item *items, int32_t num_items)
{
    for (int32_t i = 0; i < num_items; i++) {
        struct value *value = find_value(context, items[i].name);
        value = value != NULL ? value : make_value(context, &items[i]);
        char *to = value->bytes;
        for (int32_t p = 0; p < items[i].num_pieces; p++) {
            memcpy(to, items[i].pieces[p].bytes, items[i].pieces[p].length);
            to += items[i].pieces[p].length;
        }
        items[i].status = PKV_OK;
    }
}

static void get(void *context, struct pkv_tier_item *items, int32_t num_items)
{
    for (int32_t i = 0; i < num_items; i++) {
        const struct value *value = find_value(context, items[i].name);
        items[i].status = value != NULL ? PKV_OK : PKV_NOT_FOUND;
        const char *from = value != NULL ? value->bytes : NULL;
        for (int32_t p = 0; value != NULL && p < items[i].num_pieces; p++) {
            memcpy(items[i].pieces[p].bytes, from, items[i].pieces[p].length);
            from += items[i].pieces[p].length;
        }
    }
}

static void find(void *context, struct pkv_tier_item *items, int32_t num_items)
{
    for (int32_t i = 0; i < num_items; i++) {
        items[i].status = find_value(context, items[i].name) != NULL ? PKV_OK : PKV_NOT_FOUND;
    }
}

/* Nothing is damaged, so nothing is removed. */
static void remove_items(void *context, struct pkv_tier_item *items, int32_t num_items)
{
    (void)context;
    for (int32_t i = 0; i < num_items; i++) {
        items[i].status = PKV_IO;
    }
}

static void count(void *context, struct pkv_tier_counter *counters, int32_t num_counters)
{
    (void)context;
    for (int32_t i = 0; i < num_counters; i++) {
        counters[i].value = 0;
        counters[i].status = PKV_OK;
    }
}

pkv_tier *values_open(struct values *values)
{
    pkv_tier *tier = NULL;
    memset(values, 0, sizeof *values);
    const struct pkv_tier_ops ops = {.size = sizeof ops,
                                     .name = "memory",
                                     .context = values,
                                     .put = put,
                                     .get = get,
                                     .find = find,
                                     .remove = remove_items,
                                     .count = count};
    measure_must(pkv_tier_create(&ops, &tier), "pkv_tier_create");
    return tier;
}

void values_close(struct values *values, pkv_tier *tier)
{
    pkv_tier_destroy(tier);
    for (int32_t i = 0; i < values->count; i++) {
        free(values->at[i].bytes);
    }
}
