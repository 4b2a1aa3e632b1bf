/* SPDX-License-Identifier: MIT
 *
 * Addresses come from the caller and from servers: both are checked. */
#include "tiers/redis_address.h"

#include <string.h>

bool redis_address_set(struct redis_address *address, const char *host, size_t length, int64_t port)
{
    if (length > REDIS_MAX_HOST || memchr(host, '\0', length) != NULL || port < 1 || port > 65535) {
        return false;
    }
    memset(address, 0, sizeof *address);
    memcpy(address->host, host, length);
    address->port = (int32_t)port;
    return true;
}

bool redis_address_parse(struct redis_address *address, const char *text, size_t length)
{
    size_t colon = length;
    while (colon > 0 && text[colon - 1] != ':') {
        colon--;
    }
    if (colon == 0 || length - colon > 5) {
        return false;
    }
    int64_t port = 0;
    for (size_t i = colon; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        port = 10 * port + (text[i] - '0');
    }
    return redis_address_set(address, text, colon - 1, port);
}

bool redis_address_equal(const struct redis_address *a, const struct redis_address *b)
{
    return a->port == b->port && strcmp(a->host, b->host) == 0;
}
