/* SPDX-License-Identifier: MIT
 *
 * In the place of redis.c and what it needs, in a build without hiredis. */
#include "base/error.h"
#include "pagedkv/tier.h"

enum pkv_status pkv_tier_create_redis(const struct pkv_redis_config *config, pkv_tier **tier)
{
    (void)config;
    (void)tier;
    return refuse(PKV_UNSUPPORTED, "no Redis tier: built without hiredis");
}
