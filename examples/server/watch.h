/* SPDX-License-Identifier: MIT
 *
 * watch.h: sees that a client has gone while its connection is suspended, when libmicrohttpd does
 * not look at the socket. A thread looks ten times a second. */
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
    watch_gone *gone;
    void *context;
    bool listed;
};

bool watch_start(struct watch **watch);
void watch_stop(struct watch *watch);
void watch_add(struct watch *watch, struct watched *watched);
void watch_remove(struct watch *watch, struct watched *watched);

#endif
