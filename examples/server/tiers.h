/* SPDX-License-Identifier: MIT
 *
 * tiers.h: where the server keeps blocks beside its memory, by its command line: a directory, and
 * a Redis or Valkey server. */
#ifndef SERVER_TIERS_H
#define SERVER_TIERS_H

#include "pagedkv/cache.h"

struct tier_options {
    char disk_path[4096]; /* "" = no disk tier */
    uint64_t disk_bytes;
    char redis_host[256]; /* "" = no Redis tier */
    int32_t redis_port;
    const char *password_file; /* NULL = no AUTH */
    int32_t ttl_seconds;       /* of values in Redis; 0 = they stay */
    int32_t wait_ms;           /* how long a request waits for what tiers have of its prompt */
};

/* DIR or DIR:BYTES, where BYTES may end in K, M, G or T; and HOST:PORT. They complain. */
bool tiers_take_disk(const char *value, struct tier_options *options);
bool tiers_take_redis(const char *value, struct tier_options *options);

/* Nearest first. */
struct tiers {
    pkv_tier *list[PKV_MAX_TIERS];
    const char *names[PKV_MAX_TIERS];
    int32_t count;
};

/* Makes those that the options name, the directory too. Complains, with none left, when one cannot
 * be made; a Redis server need not be there yet. */
bool tiers_open(const struct tier_options *options, struct tiers *tiers);

/* After the cache that uses them. */
void tiers_close(struct tiers *tiers);

#endif
