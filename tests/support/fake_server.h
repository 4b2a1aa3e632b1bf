/* SPDX-License-Identifier: MIT
 *
 * fake_server.h: a thread that listens on 127.0.0.1 and answers as a test wants, one connection
 * after the other. It says nothing before the other side has sent something. */
#ifndef PKV_TEST_FAKE_SERVER_H
#define PKV_TEST_FAKE_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fake_server {
    int32_t port;
    /* Answers on a socket; the connection is closed when it returns. */
    void (*answer)(struct fake_server *server, int fd);
    /* The test's own. */
    const char *text;
    size_t length;
    uint64_t seed;
    /* What happened. */
    atomic_int num_connections;
    atomic_size_t bytes_sent;
    atomic_bool is_ending;
    int listener;
    pthread_t thread;
};

/* port, thread and listener are filled in. */
bool fake_server_start(struct fake_server *server);
void fake_server_stop(struct fake_server *server);

/* Answers. All wait for a first byte. */
void fake_server_say(struct fake_server *server, int fd);  /* text, then closes */
void fake_server_stay(struct fake_server *server, int fd); /* text, then waits for the other side */
void fake_server_drip(struct fake_server *server, int fd); /* text, then an 'x' each 10 ms */
void fake_server_flood(struct fake_server *server, int fd); /* text, then all of it again.. */

bool fake_server_send(struct fake_server *server, int fd, const char *bytes, size_t length);

/* Waits for a byte of the other side and throws it away; false when there is none to come. */
bool fake_server_wait(struct fake_server *server, int fd);

#endif
