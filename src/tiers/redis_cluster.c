/* SPDX-License-Identifier: MIT
 *
 * A call ends after the command time-out and the time that its bytes take at 16 MiB/s, whatever
 * servers do; most of all a server that is silent ends its lane after the command time-out. */
#include "tiers/redis_cluster.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ROUNDS 6
#define SLOTS_BYTES ((size_t)1 << 20)
#define NS_PER_BYTE 60 /* 16 MiB/s */

/* One node's share of a round: requests in the order in which they are sent; those from `waiting`
 * up to `next` are sent and not answered. */
struct lane {
    struct redis_cluster *cluster;
    struct redis_node *node;
    struct redis_request *waiting;
    struct redis_request *next;
    struct redis_request *last_sent;
    size_t in_flight;
};

bool redis_cluster_init(struct redis_cluster *cluster)
{
    cluster->is_stale = cluster->is_cluster;
    memset(cluster->node_of, cluster->is_cluster ? -1 : 0, sizeof cluster->node_of);
    return pthread_mutex_init(&cluster->lock, NULL) == 0;
}

void redis_cluster_free(struct redis_cluster *cluster)
{
    for (int32_t i = 0; i < cluster->num_nodes; i++) {
        redis_node_destroy(cluster->nodes[i]);
    }
    (void)pthread_mutex_destroy(&cluster->lock);
}

int32_t redis_cluster_node(struct redis_cluster *cluster, const struct redis_address *address)
{
    int32_t i = 0;
    while (i < cluster->num_nodes && !redis_address_equal(&cluster->nodes[i]->address, address)) {
        i++;
    }
    if (i < cluster->num_nodes) {
        return i;
    }
    struct redis_node *node =
        i < REDIS_MAX_NODES ? redis_node_create(address, &cluster->options) : NULL;
    if (node == NULL) {
        return -1;
    }
    cluster->nodes[cluster->num_nodes++] = node;
    return i;
}

static void lock(struct redis_cluster *cluster)
{
    (void)pthread_mutex_lock(&cluster->lock);
}

static void unlock(struct redis_cluster *cluster)
{
    (void)pthread_mutex_unlock(&cluster->lock);
}

/* The node at an address that a node told: one without a host is on the teller's. The lock is
 * held. */
static int32_t node_told(struct redis_cluster *cluster, const struct redis_node *teller,
                         const struct redis_address *told)
{
    struct redis_address address = *told;
    if (told->host[0] == '\0') {
        memcpy(address.host, teller->address.host, sizeof address.host);
    }
    return redis_cluster_node(cluster, &address);
}

/* --- a lane */

static bool feed(void *context, struct redis_connection *connection)
{
    struct lane *lane = context;
    bool has_fed = false;
    while (lane->next != NULL) {
        struct redis_request *request = lane->next;
        const size_t weight = redis_request_weight(request);
        const bool asks = request->state == REDIS_REQUEST_ASKING && !request->has_asked;
        const struct redis_connection_command asking = {.head = {"ASKING"}};
        const char *ttl = lane->cluster->ttl[0] != '\0' ? lane->cluster->ttl : NULL;
        char number[24];
        const struct redis_connection_command command = redis_request_command(request, ttl, number);
        if (lane->in_flight > 0 && lane->in_flight + weight > REDIS_CLUSTER_WINDOW) {
            break;
        }
        if (asks && !redis_connection_append(connection, &asking)) {
            break;
        }
        request->has_asked |= asks;
        if (!redis_connection_append(connection, &command)) {
            break;
        }
        lane->in_flight += weight;
        lane->last_sent = request;
        lane->next = request->next;
        has_fed = true;
    }
    return has_fed;
}

static bool is_done(void *context)
{
    const struct lane *lane = context;
    return lane->waiting == NULL;
}

/* Is a reply to come? */
static bool expects(const struct lane *lane)
{
    return lane->waiting != NULL && (lane->waiting != lane->next || lane->waiting->has_asked);
}

static size_t limit(void *context)
{
    const struct lane *lane = context;
    return expects(lane) ? redis_request_limit(lane->waiting) : 0;
}

static bool place(void *context, struct redis_input_place *place)
{
    const struct lane *lane = context;
    const struct redis_request *request = lane->waiting;
    if (!expects(lane) || request->has_asked || request->verb != REDIS_GET) {
        return false;
    }
    *place = (struct redis_input_place){request->pieces, request->num_pieces, request->bytes};
    return true;
}

/* MOVED is about the slot from now on, ASK about this key now. */
static void follow(struct lane *lane, struct redis_request *request,
                   const struct redis_slots_redirect *redirect)
{
    struct redis_cluster *cluster = lane->cluster;
    lock(cluster);
    const int32_t node = node_told(cluster, lane->node, &redirect->address);
    if (!redirect->is_ask && node >= 0) {
        cluster->node_of[redirect->slot] = (int16_t)node;
        cluster->is_stale = true;
        cluster->ask_first = node;
    }
    unlock(cluster);
    request->node = node;
    request->state = redirect->is_ask ? REDIS_REQUEST_ASKING : REDIS_REQUEST_PENDING;
    if (node < 0) {
        redis_request_end(request, PKV_IO);
    }
}

static void refuse_all(struct redis_request *request)
{
    for (; request != NULL; request = request->next) {
        redis_request_end(request, PKV_IO);
    }
}

/* What was not sent yet fails with the last answer. False when ASKING was sent of a request alone:
 * its answer would be taken for the next one's, so the connection ends. */
static bool stop(struct lane *lane)
{
    const bool is_whole = lane->next == NULL || !lane->next->has_asked;
    refuse_all(lane->next);
    lane->last_sent->next = NULL;
    lane->next = NULL;
    return is_whole;
}

static bool hear(void *context, const struct redis_value *value)
{
    struct lane *lane = context;
    struct redis_request *request = lane->waiting;
    struct redis_slots_redirect redirect;
    if (!expects(lane)) {
        return false;
    }
    if (request->has_asked) {
        return value->depth == 0 && value->type != REDIS_ARRAY;
    }
    if (lane->cluster->is_cluster && value->type == REDIS_ERROR && value->depth == 0 &&
        redis_slots_redirected(value->text, value->length, &redirect)) {
        follow(lane, request, &redirect);
        return true;
    }
    const enum redis_request_verdict verdict = redis_request_answer(request, value);
    if (verdict == REDIS_REQUEST_STOP) {
        return stop(lane);
    }
    return verdict != REDIS_REQUEST_BREAK;
}

static void end(void *context)
{
    struct lane *lane = context;
    if (lane->waiting->has_asked) {
        lane->waiting->has_asked = false;
        return;
    }
    lane->in_flight -= redis_request_weight(lane->waiting);
    lane->waiting = lane->waiting->next;
}

/* --- a round */

static bool has_wrong_value(const struct lane *lane, const struct redis_exchange_lane *exchange)
{
    return exchange->state == REDIS_CONNECTION_TOO_LONG && lane->waiting->verb == REDIS_GET &&
           !lane->waiting->has_asked;
}

static void finish(struct lane *lane, struct redis_exchange_lane *exchange)
{
    if (exchange->state == REDIS_CONNECTION_OPEN) {
        redis_node_give(lane->node, exchange->connection);
        return;
    }
    if (has_wrong_value(lane, exchange)) {
        redis_connection_close(exchange->connection);
        redis_node_give(lane->node, NULL);
        redis_request_end(lane->waiting, PKV_CORRUPT);
        return;
    }
    redis_node_fail(lane->node, exchange->connection);
    lock(lane->cluster);
    lane->cluster->is_stale = lane->cluster->is_cluster;
    unlock(lane->cluster);
    refuse_all(lane->waiting);
}

/* Puts the pending requests of a node into a lane, in their order; false when there are none. */
static bool gather(struct lane *lane, struct redis_request *requests, int32_t num_requests,
                   int32_t node)
{
    struct redis_request **link = &lane->waiting;
    for (int32_t i = 0; i < num_requests; i++) {
        if (requests[i].state != REDIS_REQUEST_ANSWERED && requests[i].node == node) {
            requests[i].has_asked = false;
            requests[i].next = NULL;
            *link = &requests[i];
            link = &requests[i].next;
        }
    }
    lane->next = lane->waiting;
    return lane->waiting != NULL;
}

/* Where pending requests go by the table; those that no node has fail. Returns the number of nodes.
 */
static int32_t assign(struct redis_cluster *cluster, struct redis_request *requests,
                      int32_t num_requests)
{
    lock(cluster);
    for (int32_t i = 0; i < num_requests; i++) {
        if (requests[i].state == REDIS_REQUEST_PENDING) {
            requests[i].node = cluster->node_of[requests[i].slot];
        }
        if (requests[i].state == REDIS_REQUEST_PENDING && requests[i].node < 0) {
            redis_request_end(&requests[i], PKV_IO);
        }
    }
    const int32_t num_nodes = cluster->num_nodes;
    unlock(cluster);
    return num_nodes;
}

static struct redis_exchange_times times_until(const struct redis_cluster *cluster, int64_t until)
{
    return (struct redis_exchange_times){.connect_ns = cluster->connect_ns,
                                         .silence_ns = cluster->command_ns,
                                         .until_ns = until,
                                         .now = redis_node_now};
}

static struct redis_node *node_at(struct redis_cluster *cluster, int32_t node)
{
    lock(cluster);
    struct redis_node *found = cluster->nodes[node];
    unlock(cluster);
    return found;
}

struct round {
    struct lane lanes[REDIS_MAX_NODES];
    struct redis_exchange_lane exchanges[REDIS_MAX_NODES];
    int32_t num_lanes;
};

static void add_lane(struct round *round, struct lane *lane)
{
    struct redis_connection *connection = redis_node_take(lane->node);
    if (connection == NULL) {
        refuse_all(lane->waiting);
        return;
    }
    struct lane *at = &round->lanes[round->num_lanes];
    *at = *lane;
    round->exchanges[round->num_lanes++] = (struct redis_exchange_lane){
        .connection = connection,
        .listener = {.context = at, .limit = limit, .place = place, .value = hear, .end = end},
        .feed = feed,
        .is_done = is_done};
}

/* False when nothing was pending. */
static bool run_round(struct redis_cluster *cluster, struct round *round,
                      struct redis_request *requests, int32_t num_requests, int64_t until)
{
    const int32_t num_nodes = assign(cluster, requests, num_requests);
    round->num_lanes = 0;
    for (int32_t i = 0; i < num_nodes; i++) {
        struct lane lane = {.cluster = cluster};
        if (gather(&lane, requests, num_requests, i)) {
            lane.node = node_at(cluster, i);
            add_lane(round, &lane);
        }
    }
    const struct redis_exchange_times times = times_until(cluster, until);
    redis_exchange(round->exchanges, round->num_lanes, &times);
    for (int32_t i = 0; i < round->num_lanes; i++) {
        finish(&round->lanes[i], &round->exchanges[i]);
    }
    return round->num_lanes > 0;
}

/* --- the table of slots */

struct refresh {
    struct redis_slots slots;
    bool is_sent;
    bool is_answered;
    bool is_refused;
};

static bool feed_refresh(void *context, struct redis_connection *connection)
{
    struct refresh *refresh = context;
    const struct redis_connection_command command = {.head = {"CLUSTER", "SLOTS"}};
    if (refresh->is_sent) {
        return false;
    }
    refresh->is_sent = redis_connection_append(connection, &command);
    return true;
}

static bool is_refreshed(void *context)
{
    return ((const struct refresh *)context)->is_answered;
}

static size_t refresh_limit(void *context)
{
    return is_refreshed(context) ? 0 : SLOTS_BYTES;
}

static bool hear_refresh(void *context, const struct redis_value *value)
{
    struct refresh *refresh = context;
    refresh->is_refused |= value->type == REDIS_ERROR;
    return !refresh->is_answered &&
           (value->type == REDIS_ERROR || redis_slots_read(&refresh->slots, value));
}

static void end_refresh(void *context)
{
    ((struct refresh *)context)->is_answered = true;
}

/* Takes over a table that was read. The lock is held. */
static void take_table(struct redis_cluster *cluster, const struct redis_node *teller,
                       const struct redis_slots *slots)
{
    int16_t index[REDIS_MAX_NODES];
    for (int32_t i = 0; i < slots->num_nodes; i++) {
        index[i] = (int16_t)node_told(cluster, teller, &slots->nodes[i]);
    }
    for (int32_t i = 0; i < REDIS_NUM_SLOTS; i++) {
        cluster->node_of[i] = slots->node_of[i] < 0 ? (int16_t)-1 : index[slots->node_of[i]];
    }
    cluster->is_stale = false;
}

static bool refresh_from(struct redis_cluster *cluster, struct redis_node *node,
                         struct refresh *refresh, int64_t until)
{
    struct redis_exchange_lane lane = {.listener = {.context = refresh,
                                                    .limit = refresh_limit,
                                                    .value = hear_refresh,
                                                    .end = end_refresh},
                                       .feed = feed_refresh,
                                       .is_done = is_refreshed};
    lane.connection = redis_node_take(node);
    if (lane.connection == NULL) {
        return false;
    }
    memset(refresh, 0, sizeof *refresh);
    redis_slots_clear(&refresh->slots);
    const struct redis_exchange_times times = times_until(cluster, until);
    redis_exchange(&lane, 1, &times);
    if (lane.state != REDIS_CONNECTION_OPEN) {
        redis_node_fail(node, lane.connection);
        return false;
    }
    redis_node_give(node, lane.connection);
    if (refresh->is_refused || refresh->slots.num_nodes == 0) {
        return false;
    }
    lock(cluster);
    take_table(cluster, node, &refresh->slots);
    unlock(cluster);
    return true;
}

/* Asks one node after the other. Without an answer the old table stays. */
static void refresh(struct redis_cluster *cluster, int64_t until)
{
    lock(cluster);
    const bool is_stale = cluster->is_stale;
    const int32_t num_nodes = cluster->num_nodes;
    const int32_t first = cluster->ask_first;
    unlock(cluster);
    struct refresh *reading = is_stale ? malloc(sizeof *reading) : NULL;
    bool is_fresh = reading == NULL;
    for (int32_t i = 0; i < num_nodes && !is_fresh && redis_node_now() < until; i++) {
        struct redis_node *node = node_at(cluster, (first + i) % num_nodes);
        is_fresh = refresh_from(cluster, node, reading, until);
    }
    free(reading);
}

/* --- a call */

static void prepare(const struct redis_cluster *cluster, struct redis_request *requests,
                    int32_t num_requests, int64_t *until)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < num_requests; i++) {
        requests[i].slot =
            cluster->is_cluster ? redis_slots_of(requests[i].key, strlen(requests[i].key)) : 0;
        bytes += requests[i].state == REDIS_REQUEST_ANSWERED
                     ? 0
                     : (int64_t)redis_request_weight(&requests[i]);
    }
    *until = redis_node_now() + cluster->connect_ns + cluster->command_ns + bytes * NS_PER_BYTE;
}

void redis_cluster_call(struct redis_cluster *cluster, struct redis_request *requests,
                        int32_t num_requests)
{
    int64_t until;
    prepare(cluster, requests, num_requests, &until);
    struct round *round = malloc(sizeof *round);
    bool is_pending = round != NULL;
    for (int i = 0; i < MAX_ROUNDS && is_pending && redis_node_now() < until; i++) {
        refresh(cluster, until);
        is_pending = run_round(cluster, round, requests, num_requests, until);
    }
    free(round);
    for (int32_t i = 0; i < num_requests; i++) {
        if (requests[i].state != REDIS_REQUEST_ANSWERED) {
            redis_request_end(&requests[i], PKV_IO);
        }
    }
}
