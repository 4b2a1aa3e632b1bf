/* SPDX-License-Identifier: MIT
 *
 * redis_server.h: real servers for tests: redis-server or valkey-server, whichever is found, on a
 * free port of 127.0.0.1, in a folder of its own, without persistence. A server ends with the test
 * program, however that ends. */
#ifndef PKV_TEST_REDIS_SERVER_H
#define PKV_TEST_REDIS_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct redis_server {
    pid_t pid; /* 0: none */
    int32_t port;
    char folder[256];
};

/* False, after a line that says skipped, where there is no server or the library has no tier. */
bool redis_server_can_run(void);

/* Starts a server with further arguments, NULL at the end, and waits until it answers. port 0 = a
 * free one. False when it does not start. */
bool redis_server_start(struct redis_server *server, int32_t port, const char *const *arguments);

/* Kills it and waits; its folder stays for the next start, unless is_last. */
void redis_server_stop(struct redis_server *server, bool is_last);

/* SIGSTOP, which has an effect when it returns, or SIGCONT. */
void redis_server_signal(const struct redis_server *server, int signal);

/* A socket to a port of 127.0.0.1, or -1. And a socket that listens on a free one. */
int redis_server_connect(int32_t port);
int redis_server_listen(int32_t *port);

/* Sends one command of words between spaces, and writes the beginning of the reply. False without
 * an answer within 5 seconds. */
bool redis_server_command(int32_t port, const char *command, char *reply, size_t size);

/* The same, until the reply contains a text, for 20 seconds. */
bool redis_server_wait(int32_t port, const char *command, const char *text);

#endif
