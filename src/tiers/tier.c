/* SPDX-License-Identifier: MIT
 *
 * A tier lives outside all caches and takes its own memory from libc: it may be used by caches with
 * different hooks. */
#include "tiers/tier.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/sized.h"

static enum pkv_status check_name(const char *name)
{
    const size_t length = name != NULL ? strnlen(name, TIER_MAX_LABEL + 1) : 0;
    if (length == 0 || length > TIER_MAX_LABEL) {
        return INVALID("ops.name is %s, of 1 to %d bytes", name == NULL ? "NULL" : "too long",
                       TIER_MAX_LABEL);
    }
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)name[i] < ' ' || name[i] == 0x7f) {
            return INVALID("ops.name[%zu] is a control character", i);
        }
    }
    return PKV_OK;
}

static enum pkv_status check_functions(const struct pkv_tier_ops *ops)
{
    const char *missing = ops->put == NULL      ? "put"
                          : ops->get == NULL    ? "get"
                          : ops->find == NULL   ? "find"
                          : ops->remove == NULL ? "remove"
                          : ops->count == NULL  ? "count"
                                                : NULL;
    return missing == NULL ? PKV_OK : INVALID("ops.%s is NULL", missing);
}

enum pkv_status tier_make(const struct pkv_tier_ops *ops, pkv_tier **tier)
{
    pkv_tier *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for a tier");
    }
    made->ops = *ops;
    memcpy(made->name, ops->name, strlen(ops->name));
    made->ops.name = made->name;
    *tier = made;
    return PKV_OK;
}

enum pkv_status pkv_tier_create(const struct pkv_tier_ops *given, pkv_tier **tier)
{
    struct pkv_tier_ops ops;
    enum pkv_status status = sized_read("ops", given, destroy, &ops);
    if (status == PKV_OK) {
        status = tier == NULL ? INVALID("tier is NULL") : check_name(ops.name);
    }
    if (status == PKV_OK) {
        status = check_functions(&ops);
    }
    return status == PKV_OK ? tier_make(&ops, tier) : status;
}

void pkv_tier_destroy(pkv_tier *tier)
{
    if (tier != NULL) {
        if (tier->ops.destroy != NULL) {
            tier->ops.destroy(tier->ops.context);
        }
        free(tier);
    }
}

static void call(const pkv_tier *tier, struct pkv_tier_item *items, int32_t num_items,
                 void (*function)(void *context, struct pkv_tier_item *items, int32_t num_items))
{
    for (int32_t i = 0; i < num_items; i++) {
        items[i].status = PKV_IO;
    }
    if (num_items > 0) {
        function(tier->ops.context, items, num_items);
    }
}

void tier_put(const pkv_tier *tier, struct pkv_tier_item *items, int32_t num_items)
{
    call(tier, items, num_items, tier->ops.put);
}

void tier_get(const pkv_tier *tier, struct pkv_tier_item *items, int32_t num_items)
{
    call(tier, items, num_items, tier->ops.get);
}

void tier_find(const pkv_tier *tier, struct pkv_tier_item *items, int32_t num_items)
{
    call(tier, items, num_items, tier->ops.find);
}

void tier_remove(const pkv_tier *tier, struct pkv_tier_item *items, int32_t num_items)
{
    call(tier, items, num_items, tier->ops.remove);
}

void tier_count(const pkv_tier *tier, struct pkv_tier_counter *counters, int32_t num_counters)
{
    for (int32_t i = 0; i < num_counters; i++) {
        counters[i].status = PKV_IO;
    }
    if (num_counters > 0) {
        tier->ops.count(tier->ops.context, counters, num_counters);
    }
}

void tier_list(const pkv_tier *tier, bool (*visit)(void *context, const char *name), void *context)
{
    if (tier->ops.list != NULL) {
        tier->ops.list(tier->ops.context, visit, context);
    }
}
