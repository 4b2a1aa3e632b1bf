/* SPDX-License-Identifier: MIT */
#include "tiers/disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/sized.h"
#include "tiers/disk_counter.h"
#include "tiers/disk_evict.h"
#include "tiers/disk_value.h"
#include "tiers/tier.h"

enum { DEFAULT_MODE = 0600, MAX_MODE = 0666, DEFAULT_TIMEOUT_MS = 1000, MAX_TIMEOUT_MS = 60000 };

typedef enum pkv_status value_function(const struct disk_dir *dir, int root,
                                       const struct pkv_tier_item *item);

/* Who has waited for a lock once, in vain, does not wait again for the next item. */
static void each_item(const struct disk_dir *dir, struct pkv_tier_item *items, int32_t num_items,
                      value_function *function)
{
    const int root = disk_dir_open(dir);
    bool goes_on = root >= 0;
    for (int32_t i = 0; i < num_items; i++) {
        struct pkv_tier_item *item = &items[i];
        item->status = PKV_IO;
        if (!disk_dir_is_name(item->name)) {
            item->status = PKV_INVALID_ARGUMENT;
        } else if (goes_on) {
            item->status = function(dir, root, item);
            goes_on = item->status != PKV_IO || errno != EWOULDBLOCK;
        }
    }
    disk_dir_close(root);
}

static void put(void *context, struct pkv_tier_item *items, int32_t num_items)
{
    each_item(context, items, num_items, disk_value_put);
}

static void get(void *context, struct pkv_tier_item *items, int32_t num_items)
{
    each_item(context, items, num_items, disk_value_get);
}

static void find(void *context, struct pkv_tier_item *items, int32_t num_items)
{
    each_item(context, items, num_items, disk_value_find);
}

static void remove_items(void *context, struct pkv_tier_item *items, int32_t num_items)
{
    each_item(context, items, num_items, disk_value_remove);
}

static void count(void *context, struct pkv_tier_counter *counters, int32_t num_counters)
{
    const struct disk_dir *dir = context;
    const int root = disk_dir_open(dir);
    bool goes_on = root >= 0;
    for (int32_t i = 0; i < num_counters; i++) {
        struct pkv_tier_counter *counter = &counters[i];
        counter->status = PKV_IO;
        if (!disk_dir_is_name(counter->name)) {
            counter->status = PKV_INVALID_ARGUMENT;
        } else if (goes_on) {
            counter->status = disk_counter_add(dir, root, counter);
            goes_on = counter->status != PKV_IO || errno != EWOULDBLOCK;
        }
    }
    disk_dir_close(root);
}

struct listing {
    bool (*visit)(void *context, const char *name);
    void *context;
};

static bool list_name(void *context, int folder, const char *name)
{
    const struct listing *listing = context;
    (void)folder;
    return !disk_dir_is_name(name) || listing->visit(listing->context, name);
}

static void list(void *context, bool (*visit)(void *visit_context, const char *name),
                 void *visit_context)
{
    const struct disk_dir *dir = context;
    struct listing listing = {visit, visit_context};
    const int root = disk_dir_open(dir);
    if (root >= 0) {
        (void)disk_dir_walk(dir, root, list_name, &listing);
    }
    disk_dir_close(root);
}

static void destroy(void *context)
{
    struct disk_dir *dir = context;
    free(dir->path);
    free(dir);
}

static enum pkv_status check(const struct pkv_disk_config *config)
{
    if (config->path == NULL) {
        return INVALID("config.path is NULL");
    }
    if (config->max_bytes < DISK_DIR_BLOCK_BYTES || config->max_bytes > INT64_MAX) {
        return INVALID("config.max_bytes = %llu, outside [%d, 2^63)",
                       (unsigned long long)config->max_bytes, DISK_DIR_BLOCK_BYTES);
    }
    if ((config->file_mode & ~(uint32_t)MAX_MODE) != 0 ||
        (config->file_mode != 0 && (config->file_mode & DEFAULT_MODE) != DEFAULT_MODE)) {
        return INVALID("config.file_mode = 0%o, not 0600 to 0666", config->file_mode);
    }
    if (config->timeout_ms < 0 || config->timeout_ms > MAX_TIMEOUT_MS) {
        return INVALID("config.timeout_ms = %d, outside [0, %d]", config->timeout_ms,
                       MAX_TIMEOUT_MS);
    }
    return PKV_OK;
}

/* The reason in the system's words. */
static enum pkv_status refuse_path(const char *path, const char *doing)
{
    char reason[128];
    const int number = errno;
    if (number == ENOMEM) {
        return refuse(PKV_NO_MEMORY, "no memory for a disk tier");
    }
    if (strerror_r(number, reason, sizeof reason) != 0) {
        reason[0] = '\0';
    }
    return refuse(PKV_IO, "config.path = \"%.200s\", %s: %s", path, doing, reason);
}

/* The first walk: what others left is removed, and the bound holds. */
static bool start(const struct disk_dir *dir)
{
    struct disk_account account = {.fd = -1};
    const int root = disk_dir_open(dir);
    const bool started =
        root >= 0 && disk_account_lock(dir, root, &account) && disk_evict(dir, root, &account, 0);
    disk_dir_close(account.fd);
    disk_dir_close(root);
    return started;
}

static enum pkv_status open_dir(const struct pkv_disk_config *config,
                                const struct disk_calls *calls, struct disk_dir *dir)
{
    const uint32_t mode = config->file_mode != 0 ? config->file_mode : DEFAULT_MODE;
    dir->calls = calls;
    dir->max_bytes = config->max_bytes;
    dir->timeout_ms = config->timeout_ms != 0 ? config->timeout_ms : DEFAULT_TIMEOUT_MS;
    dir->file_mode = (mode_t)mode;
    dir->folder_mode = (mode_t)(mode | (mode & 0444) >> 2);
    dir->path = realpath(config->path, NULL);
    if (dir->path == NULL) {
        return refuse_path(config->path, "not found");
    }
    return start(dir) ? PKV_OK : refuse_path(config->path, "not usable");
}

static enum pkv_status make_tier(struct disk_dir *dir, pkv_tier **tier)
{
    const struct pkv_tier_ops ops = {.size = sizeof ops,
                                     .name = "disk",
                                     .context = dir,
                                     .put = put,
                                     .get = get,
                                     .find = find,
                                     .remove = remove_items,
                                     .count = count,
                                     .list = list,
                                     .destroy = destroy};
    return tier_make(&ops, tier);
}

enum pkv_status disk_create(const struct pkv_disk_config *config, const struct disk_calls *calls,
                            pkv_tier **tier)
{
    enum pkv_status status = tier == NULL ? INVALID("tier is NULL") : check(config);
    if (status != PKV_OK) {
        return status;
    }
    struct disk_dir *dir = calloc(1, sizeof *dir);
    if (dir == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for a disk tier");
    }
    status = open_dir(config, calls, dir);
    if (status == PKV_OK) {
        status = make_tier(dir, tier);
    }
    if (status != PKV_OK) {
        destroy(dir);
    }
    return status;
}

enum pkv_status pkv_tier_create_disk(const struct pkv_disk_config *given, pkv_tier **tier)
{
    struct pkv_disk_config config;
    const enum pkv_status status = sized_read("config", given, file_mode, &config);
    return status == PKV_OK ? disk_create(&config, disk_calls_real(), tier) : status;
}
