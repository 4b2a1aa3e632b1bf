/* SPDX-License-Identifier: MIT
 *
 * The public call, and a tier's functions as requests to a cluster. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/sized.h"
#include "tiers/redis_cluster.h"
#include "tiers/tier.h"

#define MAX_PREFIX 127
#define MAX_SOCKET_PATH 107
#define MAX_MS 600000

struct redis {
    struct redis_cluster cluster;
    char prefix[MAX_PREFIX + 1];
};

/* --- the functions of a tier */

static void set_key(const struct redis *redis, struct redis_request *request, const char *mark,
                    const char *name)
{
    (void)snprintf(request->key, sizeof request->key, "%s%s%s", redis->prefix, mark, name);
}

static void call(struct redis *redis, enum redis_request_verb verb, struct pkv_tier_item *items,
                 int32_t num_items)
{
    struct redis_request *requests = calloc((size_t)num_items, sizeof *requests);
    for (int32_t i = 0; i < num_items && requests != NULL; i++) {
        set_key(redis, &requests[i], "", items[i].name);
        requests[i].verb = verb;
        if (verb == REDIS_PUT || verb == REDIS_GET) {
            requests[i].pieces = items[i].pieces;
            requests[i].num_pieces = items[i].num_pieces;
            requests[i].bytes = items[i].bytes;
        }
        if (verb == REDIS_PUT && items[i].bytes > REDIS_MAX_VALUE) {
            redis_request_end(&requests[i], PKV_NO_BLOCKS);
        }
    }
    if (requests != NULL) {
        redis_cluster_call(&redis->cluster, requests, num_items);
    }
    for (int32_t i = 0; i < num_items; i++) {
        items[i].status = requests != NULL ? requests[i].status : PKV_IO;
    }
    free(requests);
}

static void put(void *context, struct pkv_tier_item *items, int32_t num_items)
{
    call(context, REDIS_PUT, items, num_items);
}

static void get(void *context, struct pkv_tier_item *items, int32_t num_items)
{
    call(context, REDIS_GET, items, num_items);
}

static void find(void *context, struct pkv_tier_item *items, int32_t num_items)
{
    call(context, REDIS_FIND, items, num_items);
}

static void take_away(void *context, struct pkv_tier_item *items, int32_t num_items)
{
    call(context, REDIS_REMOVE, items, num_items);
}

static void count(void *context, struct pkv_tier_counter *counters, int32_t num_counters)
{
    struct redis *redis = context;
    struct redis_request *requests = calloc((size_t)num_counters, sizeof *requests);
    for (int32_t i = 0; i < num_counters && requests != NULL; i++) {
        set_key(redis, &requests[i], "+", counters[i].name);
        requests[i].verb = counters[i].add != 0 ? REDIS_ADD : REDIS_READ;
        requests[i].number = counters[i].add;
        if (counters[i].add > INT64_MAX) {
            redis_request_end(&requests[i], PKV_IO);
        }
    }
    if (requests != NULL) {
        redis_cluster_call(&redis->cluster, requests, num_counters);
    }
    for (int32_t i = 0; i < num_counters; i++) {
        counters[i].status = requests != NULL ? requests[i].status : PKV_IO;
        counters[i].value = counters[i].status == PKV_OK ? requests[i].number : 0;
    }
    free(requests);
}

static void destroy(void *context)
{
    struct redis *redis = context;
    redis_cluster_free(&redis->cluster);
    free(redis);
}

/* --- the config */

static enum pkv_status check_text(const char *name, const char *text, size_t most)
{
    if (text != NULL && strnlen(text, most + 1) > most) {
        return INVALID("config.%s is longer than %zu bytes", name, most);
    }
    return PKV_OK;
}

static enum pkv_status check_range(const char *name, int32_t value, int32_t most)
{
    if (value < 0 || value > most) {
        return INVALID("config.%s = %d, outside [0, %d]", name, value, most);
    }
    return PKV_OK;
}

static enum pkv_status check_texts(const struct pkv_redis_config *config)
{
    const struct {
        const char *name, *text;
        size_t most;
    } texts[] = {{"host", config->host, REDIS_MAX_HOST},
                 {"unix_socket", config->unix_socket, MAX_SOCKET_PATH},
                 {"user", config->user, REDIS_MAX_USER},
                 {"password", config->password, REDIS_MAX_PASSWORD},
                 {"key_prefix", config->key_prefix, MAX_PREFIX}};
    enum pkv_status status = PKV_OK;
    for (size_t i = 0; i < sizeof texts / sizeof *texts && status == PKV_OK; i++) {
        status = check_text(texts[i].name, texts[i].text, texts[i].most);
    }
    return status;
}

static enum pkv_status check_numbers(const struct pkv_redis_config *config)
{
    const struct {
        const char *name;
        int32_t value, most;
    } numbers[] = {{"port", config->port, 65535},
                   {"database", config->database, INT32_MAX},
                   {"ttl_seconds", config->ttl_seconds, INT32_MAX},
                   {"connect_timeout_ms", config->connect_timeout_ms, MAX_MS},
                   {"command_timeout_ms", config->command_timeout_ms, MAX_MS},
                   {"min_backoff_ms", config->min_backoff_ms, MAX_MS},
                   {"max_backoff_ms", config->max_backoff_ms, MAX_MS}};
    enum pkv_status status = PKV_OK;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && status == PKV_OK; i++) {
        status = check_range(numbers[i].name, numbers[i].value, numbers[i].most);
    }
    return status;
}

static bool is_given(const char *text)
{
    return text != NULL && text[0] != '\0';
}

static enum pkv_status check_together(const struct pkv_redis_config *config)
{
    if (config->use_tls) {
        return refuse(PKV_UNSUPPORTED, "config.use_tls: this build has no TLS, see tier.h");
    }
    if (is_given(config->unix_socket) && (is_given(config->host) || config->port != 0)) {
        return INVALID("config.unix_socket is set, and host or port too");
    }
    if (is_given(config->user) && !is_given(config->password)) {
        return INVALID("config.user is set without a password");
    }
    if (is_given(config->more_nodes) && !config->is_cluster) {
        return INVALID("config.more_nodes is set, and is_cluster is not");
    }
    if (config->is_cluster && (config->database != 0 || is_given(config->unix_socket))) {
        return INVALID("config.%s is set: a cluster has database 0 alone, and no Unix socket",
                       config->database != 0 ? "database" : "unix_socket");
    }
    return PKV_OK;
}

static enum pkv_status check_config(const struct pkv_redis_config *config)
{
    enum pkv_status status = check_texts(config);
    if (status == PKV_OK) {
        status = check_numbers(config);
    }
    return status == PKV_OK ? check_together(config) : status;
}

/* --- creating */

static int64_t ns_of(int32_t ms, int32_t usual)
{
    return (int64_t)(ms == 0 ? usual : ms) * 1000000;
}

static void set_options(struct redis *redis, const struct pkv_redis_config *config)
{
    struct redis_cluster *cluster = &redis->cluster;
    struct redis_node_options *options = &cluster->options;
    struct redis_connection_login *login = &options->login;
    const char *prefix = config->key_prefix != NULL ? config->key_prefix : "pagedkv:";
    (void)snprintf(redis->prefix, sizeof redis->prefix, "%s", prefix);
    (void)snprintf(login->user, sizeof login->user, "%s", config->user != NULL ? config->user : "");
    (void)snprintf(login->password, sizeof login->password, "%s",
                   config->password != NULL ? config->password : "");
    login->database = config->database;
    if (config->ttl_seconds > 0) {
        (void)snprintf(cluster->ttl, sizeof cluster->ttl, "%d", config->ttl_seconds);
    }
    cluster->is_cluster = config->is_cluster;
    cluster->connect_ns = ns_of(config->connect_timeout_ms, 200);
    cluster->command_ns = ns_of(config->command_timeout_ms, 1000);
    options->min_backoff_ns = ns_of(config->min_backoff_ms, 100);
    options->max_backoff_ns = ns_of(config->max_backoff_ms, 5000);
    options->patience_ns = cluster->connect_ns + cluster->command_ns;
}

static enum pkv_status add_node(struct redis *redis, const struct redis_address *address)
{
    return redis_cluster_node(&redis->cluster, address) >= 0
               ? PKV_OK
               : refuse(PKV_NO_MEMORY, "no memory for a node, or more than %d nodes",
                        REDIS_MAX_NODES);
}

static enum pkv_status add_first(struct redis *redis, const struct pkv_redis_config *config)
{
    struct redis_address address = {.port = 0};
    if (is_given(config->unix_socket)) {
        (void)snprintf(address.host, sizeof address.host, "%s", config->unix_socket);
    } else {
        const char *host = is_given(config->host) ? config->host : "127.0.0.1";
        (void)redis_address_set(&address, host, strlen(host),
                                config->port != 0 ? config->port : 6379);
    }
    return add_node(redis, &address);
}

static enum pkv_status add_more(struct redis *redis, const char *nodes)
{
    enum pkv_status status = PKV_OK;
    while (is_given(nodes) && status == PKV_OK) {
        const size_t length = strcspn(nodes, ",");
        struct redis_address address;
        if (!redis_address_parse(&address, nodes, length) || address.host[0] == '\0') {
            return INVALID("config.more_nodes: \"%.40s\" does not begin with host:port", nodes);
        }
        status = add_node(redis, &address);
        nodes += length + (nodes[length] == ',');
    }
    return status;
}

static enum pkv_status add_nodes(struct redis *redis, const struct pkv_redis_config *config)
{
    const enum pkv_status status = add_first(redis, config);
    return status == PKV_OK ? add_more(redis, config->more_nodes) : status;
}

static enum pkv_status make(struct redis *redis, const struct pkv_redis_config *config,
                            pkv_tier **tier)
{
    const struct pkv_tier_ops ops = {.size = sizeof ops,
                                     .name = "redis",
                                     .context = redis,
                                     .put = put,
                                     .get = get,
                                     .find = find,
                                     .remove = take_away,
                                     .count = count,
                                     .destroy = destroy};
    const enum pkv_status status = add_nodes(redis, config);
    return status == PKV_OK ? tier_make(&ops, tier) : status;
}

enum pkv_status pkv_tier_create_redis(const struct pkv_redis_config *given, pkv_tier **tier)
{
    struct pkv_redis_config config;
    enum pkv_status status = sized_read("config", given, key_file, &config);
    if (status == PKV_OK) {
        status = tier == NULL ? INVALID("tier is NULL") : check_config(&config);
    }
    if (status != PKV_OK) {
        return status;
    }
    struct redis *redis = calloc(1, sizeof *redis);
    if (redis == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for a tier");
    }
    set_options(redis, &config);
    if (!redis_cluster_init(&redis->cluster)) {
        free(redis);
        return refuse(PKV_NO_MEMORY, "no memory for a lock");
    }
    status = make(redis, &config, tier);
    if (status != PKV_OK) {
        destroy(redis);
    }
    return status;
}
