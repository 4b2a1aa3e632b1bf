/* SPDX-License-Identifier: MIT
 *
 * redis_exchange.h: conversations with several servers at once, each in a lane of its own: commands
 * go out ahead of their replies as far as the lane's owner allows. One thread polls all lanes, so
 * that a slow server costs the others nothing, until each is done, broken or out of time. */
#ifndef PKV_TIERS_REDIS_EXCHANGE_H
#define PKV_TIERS_REDIS_EXCHANGE_H

#include "tiers/redis_connection.h"
#include "tiers/redis_slots.h"

struct redis_exchange_lane {
    struct redis_connection *connection;
    struct redis_connection_listener listener;
    /* Queues what can go out now (redis_connection_append); false when that is nothing. */
    bool (*feed)(void *context, struct redis_connection *connection);
    /* Has all been said and answered? */
    bool (*is_done)(void *context);
    /* What became of it: OPEN means done. */
    enum redis_connection_state state;
    int64_t patience_until_ns; /* unless something moves */
};

struct redis_exchange_times {
    int64_t connect_ns; /* until a new connection says something */
    int64_t silence_ns; /* in which nothing moves */
    int64_t until_ns;   /* the end, on the clock of redis_node_now */
    int64_t (*now)(void);
};

/* num_lanes <= REDIS_MAX_NODES. */
void redis_exchange(struct redis_exchange_lane *lanes, int32_t num_lanes,
                    const struct redis_exchange_times *times);

#endif
