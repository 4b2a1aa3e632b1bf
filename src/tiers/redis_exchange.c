/* SPDX-License-Identifier: MIT
 *
 * A lane that has nothing more to say is left out of the poll. A server that sends a byte now and
 * then keeps a lane's patience, but not the end of all. */
#include "tiers/redis_exchange.h"

#include <poll.h>

static bool is_active(const struct redis_exchange_lane *lane)
{
    return lane->state == REDIS_CONNECTION_OPEN && !lane->is_done(lane->listener.context);
}

static void begin(struct redis_exchange_lane *lane, const struct redis_exchange_times *times)
{
    lane->state = REDIS_CONNECTION_OPEN;
    lane->patience_until_ns =
        times->now() +
        (redis_connection_is_ready(lane->connection) ? times->silence_ns : times->connect_ns);
}

/* Goes on after whatever moved: replies that came may have made room for more to be said, and
 * nothing but that would wake the lane again. */
static void run(struct redis_exchange_lane *lane, short events,
                const struct redis_exchange_times *times)
{
    size_t moved = 0;
    bool again = true;
    while (again) {
        const size_t before = moved;
        const bool was_ready = redis_connection_is_ready(lane->connection);
        const bool has_fed = was_ready && lane->feed(lane->listener.context, lane->connection);
        lane->state = redis_connection_run(lane->connection, events, &lane->listener, &moved);
        events = 0;
        again = lane->state == REDIS_CONNECTION_OPEN &&
                (has_fed || !was_ready || moved != before) &&
                redis_connection_is_ready(lane->connection) &&
                (redis_connection_events(lane->connection) & POLLOUT) == 0;
    }
    if (moved > 0) {
        lane->patience_until_ns = times->now() + times->silence_ns;
    }
}

/* Ends the lanes whose time is over, and returns when the next one's will be. */
static int64_t expire(struct redis_exchange_lane *lanes, int32_t num_lanes, int64_t now,
                      int64_t until)
{
    int64_t next = until;
    for (int32_t i = 0; i < num_lanes; i++) {
        if (!is_active(&lanes[i])) {
            continue;
        }
        if (now >= until || now >= lanes[i].patience_until_ns) {
            lanes[i].state = REDIS_CONNECTION_BROKEN;
        } else if (lanes[i].patience_until_ns < next) {
            next = lanes[i].patience_until_ns;
        }
    }
    return next;
}

static int32_t collect(struct redis_exchange_lane *lanes, int32_t num_lanes, struct pollfd *sockets,
                       int32_t *lane_of)
{
    int32_t count = 0;
    for (int32_t i = 0; i < num_lanes; i++) {
        if (is_active(&lanes[i])) {
            sockets[count].fd = redis_connection_socket(lanes[i].connection);
            sockets[count].events = redis_connection_events(lanes[i].connection);
            sockets[count].revents = 0;
            lane_of[count++] = i;
        }
    }
    return count;
}

void redis_exchange(struct redis_exchange_lane *lanes, int32_t num_lanes,
                    const struct redis_exchange_times *times)
{
    struct pollfd sockets[REDIS_MAX_NODES];
    int32_t lane_of[REDIS_MAX_NODES];
    for (int32_t i = 0; i < num_lanes; i++) {
        begin(&lanes[i], times);
        run(&lanes[i], 0, times);
    }
    for (;;) {
        const int64_t now = times->now();
        const int64_t next = expire(lanes, num_lanes, now, times->until_ns);
        const int32_t count = collect(lanes, num_lanes, sockets, lane_of);
        if (count == 0) {
            return;
        }
        (void)poll(sockets, (nfds_t)count, (int)((next - now) / 1000000 + 1));
        for (int32_t i = 0; i < count; i++) {
            if (sockets[i].revents != 0) {
                run(&lanes[lane_of[i]], sockets[i].revents, times);
            }
        }
    }
}
