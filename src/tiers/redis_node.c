/* SPDX-License-Identifier: MIT
 *
 * Connections are opened and closed without the lock. */
#include "tiers/redis_node.h"

#include <stdlib.h>
#include <time.h>

int64_t redis_node_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

struct redis_node *redis_node_create(const struct redis_address *address,
                                     const struct redis_node_options *options)
{
    struct redis_node *node = calloc(1, sizeof *node);
    if (node == NULL || pthread_mutex_init(&node->lock, NULL) != 0) {
        free(node);
        return NULL;
    }
    node->options = options;
    node->address = *address;
    return node;
}

static struct redis_connection *pop(struct redis_node *node)
{
    (void)pthread_mutex_lock(&node->lock);
    struct redis_connection *connection = node->num_idle > 0 ? node->idle[--node->num_idle] : NULL;
    (void)pthread_mutex_unlock(&node->lock);
    return connection;
}

static void close_idle(struct redis_node *node)
{
    struct redis_connection *connection;
    while ((connection = pop(node)) != NULL) {
        redis_connection_close(connection);
    }
}

void redis_node_destroy(struct redis_node *node)
{
    if (node != NULL) {
        close_idle(node);
        (void)pthread_mutex_destroy(&node->lock);
        free(node);
    }
}

/* False while the node is left alone; else, after a failure, this call is the one that tries. */
static bool may_try(struct redis_node *node)
{
    const int64_t now = redis_node_now();
    (void)pthread_mutex_lock(&node->lock);
    const bool may = node->num_failures == 0 || now >= node->retry_at_ns;
    if (may && node->num_failures > 0) {
        node->retry_at_ns = now + node->options->patience_ns;
    }
    (void)pthread_mutex_unlock(&node->lock);
    return may;
}

struct redis_connection *redis_node_take(struct redis_node *node)
{
    if (!may_try(node)) {
        return NULL;
    }
    struct redis_connection *connection = pop(node);
    while (connection != NULL && !redis_connection_is_quiet(connection)) {
        redis_connection_close(connection);
        connection = pop(node);
    }
    if (connection == NULL) {
        connection = redis_connection_open(&node->address, &node->options->login);
        if (connection == NULL) {
            redis_node_fail(node, NULL);
        }
    }
    return connection;
}

void redis_node_give(struct redis_node *node, struct redis_connection *connection)
{
    (void)pthread_mutex_lock(&node->lock);
    node->num_failures = 0;
    if (connection != NULL && node->num_idle < REDIS_NODE_MAX_IDLE) {
        node->idle[node->num_idle++] = connection;
        connection = NULL;
    }
    (void)pthread_mutex_unlock(&node->lock);
    redis_connection_close(connection);
}

static int64_t backoff(const struct redis_node *node)
{
    int64_t wait = node->options->min_backoff_ns;
    for (int32_t i = 1; i < node->num_failures && wait < node->options->max_backoff_ns; i++) {
        wait *= 2;
    }
    return wait < node->options->max_backoff_ns ? wait : node->options->max_backoff_ns;
}

void redis_node_fail(struct redis_node *node, struct redis_connection *connection)
{
    (void)pthread_mutex_lock(&node->lock);
    node->num_failures += node->num_failures < INT32_MAX;
    node->retry_at_ns = redis_node_now() + backoff(node);
    (void)pthread_mutex_unlock(&node->lock);
    redis_connection_close(connection);
    close_idle(node);
}
