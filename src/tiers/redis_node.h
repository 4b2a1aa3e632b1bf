/* SPDX-License-Identifier: MIT
 *
 * redis_node.h: one server: its idle connections, and its back-off. A server that failed is left
 * alone for a while, which doubles with each failure; then one call tries it, and until that has
 * ended the others go on without it. A lock of the node's own is held for a few instructions.
 *
 *     connection = redis_node_take(node)      NULL: not now, or it failed at once
 *     redis_node_give(node, connection)       it answered
 *     redis_node_fail(node, connection)       it did not
 */
#ifndef PKV_TIERS_REDIS_NODE_H
#define PKV_TIERS_REDIS_NODE_H

#include <pthread.h>

#include "tiers/redis_connection.h"

#define REDIS_NODE_MAX_IDLE 8

struct redis_node_options {
    struct redis_connection_login login;
    int64_t min_backoff_ns;
    int64_t max_backoff_ns;
    int64_t patience_ns; /* how long one try may take */
};

struct redis_node {
    const struct redis_node_options *options;
    struct redis_address address;
    pthread_mutex_t lock;
    struct redis_connection *idle[REDIS_NODE_MAX_IDLE];
    int32_t num_idle;
    int32_t num_failures; /* since it last answered */
    int64_t retry_at_ns;
};

/* On CLOCK_MONOTONIC. */
int64_t redis_node_now(void);

struct redis_node *redis_node_create(const struct redis_address *address,
                                     const struct redis_node_options *options);
void redis_node_destroy(struct redis_node *node);

struct redis_connection *redis_node_take(struct redis_node *node);

/* connection may be NULL: the node is well, its connection was closed. */
void redis_node_give(struct redis_node *node, struct redis_connection *connection);
void redis_node_fail(struct redis_node *node, struct redis_connection *connection);

#endif
