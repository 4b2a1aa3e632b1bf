/* SPDX-License-Identifier: MIT
 *
 * watch.h: sees what libmicrohttpd does not: that a client has gone while its connection is
 * suspended, and that a client takes too long to send its request, byte by byte. A thread looks ten
 * times a second. */
#ifndef SERVER_WATCH_H
#define SERVER_WATCH_H

#include <stdbool.h>

struct watch;

/* Called once for each connection found closed, by the watch's thread, with its mutex held: before
 * watch_remove returns, so that the context is still there. */
typedef void watch_gone(void *context);

/* A place in the list, part of the caller's own struct. */
struct watched {
    struct watched *next, *previous;
    int socket;
    watch_gone *gone; /* NULL: what the client does is not looked at */
    void *context;
    double deadline; /* seconds of the monotonic clock, when the socket is shut; 0 = none */
    bool listed;
};

bool watch_start(struct watch **watch);
void watch_stop(struct watch *watch);
void watch_add(struct watch *watch, struct watched *watched);
void watch_remove(struct watch *watch, struct watched *watched);

/* Sets the deadline so many seconds from now; 0 = none. */
void watch_limit(struct watch *watch, struct watched *watched, double seconds);

#endif
