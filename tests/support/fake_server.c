/* SPDX-License-Identifier: MIT */
#include "support/fake_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/redis_server.h"

static void *serve(void *argument)
{
    struct fake_server *server = argument;
    while (!server->is_ending) {
        struct pollfd one = {.fd = server->listener, .events = POLLIN};
        if (poll(&one, 1, 10) != 1) {
            continue;
        }
        const int fd = accept(server->listener, NULL, NULL);
        if (fd >= 0) {
            server->num_connections++;
            server->answer(server, fd);
            close(fd);
        }
    }
    return NULL;
}

bool fake_server_start(struct fake_server *server)
{
    server->port = 0;
    server->listener = redis_server_listen(&server->port);
    return server->listener >= 0 && pthread_create(&server->thread, NULL, serve, server) == 0;
}

void fake_server_stop(struct fake_server *server)
{
    server->is_ending = true;
    pthread_join(server->thread, NULL);
    close(server->listener);
}

bool fake_server_wait(struct fake_server *server, int fd)
{
    char bytes[4096];
    struct pollfd one = {.fd = fd, .events = POLLIN};
    while (!server->is_ending) {
        if (poll(&one, 1, 10) == 1) {
            return recv(fd, bytes, sizeof bytes, 0) > 0;
        }
    }
    return false;
}

bool fake_server_send(struct fake_server *server, int fd, const char *bytes, size_t length)
{
    while (length > 0 && !server->is_ending) {
        const ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent <= 0) {
            struct pollfd one = {.fd = fd, .events = POLLOUT};
            if (poll(&one, 1, 10) == 1 && (one.revents & (POLLERR | POLLHUP)) != 0) {
                return false;
            }
            continue;
        }
        server->bytes_sent += (size_t)sent;
        bytes += sent;
        length -= (size_t)sent;
    }
    return length == 0;
}

void fake_server_say(struct fake_server *server, int fd)
{
    if (fake_server_wait(server, fd)) {
        fake_server_send(server, fd, server->text, server->length);
    }
}

void fake_server_stay(struct fake_server *server, int fd)
{
    fake_server_say(server, fd);
    while (fake_server_wait(server, fd)) {
    }
}

void fake_server_drip(struct fake_server *server, int fd)
{
    fake_server_say(server, fd);
    while (fake_server_send(server, fd, "x", 1)) {
        usleep(10000);
    }
}

void fake_server_flood(struct fake_server *server, int fd)
{
    if (fake_server_wait(server, fd)) {
        while (fake_server_send(server, fd, server->text, server->length)) {
        }
    }
}
