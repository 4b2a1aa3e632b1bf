/* SPDX-License-Identifier: MIT
 *
 * redis_address.h: where a server listens. */
#ifndef PKV_TIERS_REDIS_ADDRESS_H
#define PKV_TIERS_REDIS_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REDIS_MAX_HOST 255

/* port 0: host is the path of a Unix socket. */
struct redis_address {
    char host[REDIS_MAX_HOST + 1];
    int32_t port;
};

/* False, and nothing written, when the host is too long or the port is none. */
bool redis_address_set(struct redis_address *address, const char *host, size_t length,
                       int64_t port);

/* Reads "host:port", where the host may hold colons and may be empty. */
bool redis_address_parse(struct redis_address *address, const char *text, size_t length);

bool redis_address_equal(const struct redis_address *a, const struct redis_address *b);

#endif
