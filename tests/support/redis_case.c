/* SPDX-License-Identifier: MIT */
#include "support/redis_case.h"

#include <time.h>
#include <unistd.h>

#include "tiers/tier.h"

struct pkv_redis_config redis_case_config(int32_t port)
{
    return (struct pkv_redis_config){.size = sizeof(struct pkv_redis_config),
                                     .port = port,
                                     .connect_timeout_ms = 2000,
                                     .command_timeout_ms = 10000,
                                     .min_backoff_ms = 10,
                                     .max_backoff_ms = 50};
}

pkv_tier *redis_case_tier(const struct pkv_redis_config *config)
{
    pkv_tier *tier = NULL;
    ASSERT_STATUS(PKV_OK, pkv_tier_create_redis(config, &tier));
    CU_ASSERT_FATAL(tier != NULL);
    return tier;
}

static enum pkv_status one(void (*call)(const pkv_tier *, struct pkv_tier_item *, int32_t),
                           const pkv_tier *tier, const char *name, void *bytes, size_t length)
{
    const struct pkv_piece piece = {bytes, length};
    struct pkv_tier_item item = {
        .name = name, .pieces = &piece, .num_pieces = 1, .bytes = length, .status = PKV_BUSY};
    call(tier, &item, 1);
    return item.status;
}

enum pkv_status redis_case_put(const pkv_tier *tier, const char *name, const void *bytes,
                               size_t length)
{
    return one(tier_put, tier, name, (void *)(uintptr_t)bytes, length);
}

enum pkv_status redis_case_get(const pkv_tier *tier, const char *name, void *bytes, size_t length)
{
    return one(tier_get, tier, name, bytes, length);
}

enum pkv_status redis_case_find(const pkv_tier *tier, const char *name)
{
    return one(tier_find, tier, name, NULL, 0);
}

enum pkv_status redis_case_remove(const pkv_tier *tier, const char *name)
{
    return one(tier_remove, tier, name, NULL, 0);
}

int64_t redis_case_count(const pkv_tier *tier, const char *name, uint64_t add)
{
    struct pkv_tier_counter counter = {.name = name, .add = add};
    tier_count(tier, &counter, 1);
    return counter.status == PKV_OK ? (int64_t)counter.value : -1;
}

double redis_case_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

bool redis_case_recovers(const pkv_tier *tier)
{
    const double begin = redis_case_now();
    while (redis_case_now() - begin < 60) {
        if (redis_case_put(tier, "recovers", "x", 1) == PKV_OK) {
            return true;
        }
        usleep(10000);
    }
    return false;
}
