/* SPDX-License-Identifier: MIT */
#include "support/redis_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pagedkv.h"

#define MAX_ARGUMENTS 32
/* The port of a cluster's own traffic is 10000 above. */
#define MAX_PORT 55000

/* Searches PATH, as execvp does. */
static bool is_program(const char *name)
{
    const char *path = getenv("PATH");
    while (path != NULL && *path != '\0') {
        char file[4096];
        const int length = (int)strcspn(path, ":");
        snprintf(file, sizeof file, "%.*s/%s", length, path, name);
        if (access(file, X_OK) == 0) {
            return true;
        }
        path += length + (path[length] == ':');
    }
    return false;
}

static const char *program(void)
{
    static const char *const names[] = {"redis-server", "valkey-server"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (is_program(names[i])) {
            return names[i];
        }
    }
    return NULL;
}

bool redis_server_can_run(void)
{
    const bool has_tier = strstr(pkv_build_info(), ", no hiredis") == NULL;
    if (!has_tier || program() == NULL) {
        printf(" skipped: %s.. ", has_tier ? "no redis-server" : "built without hiredis");
        return false;
    }
    return true;
}

static struct sockaddr_in loopback(int32_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

int redis_server_listen(int32_t *port)
{
    struct sockaddr_in address = loopback(*port);
    socklen_t length = sizeof address;
    const int on = 1;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 64) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
        close(fd);
        return -1;
    }
    *port = ntohs(address.sin_port);
    return fd;
}

int redis_server_connect(int32_t port)
{
    const struct sockaddr_in address = loopback(port);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int32_t free_port(void)
{
    int32_t port = MAX_PORT;
    while (port >= MAX_PORT) {
        port = 0;
        const int fd = redis_server_listen(&port);
        if (fd < 0) {
            return 0;
        }
        close(fd);
    }
    return port;
}

bool redis_server_command(int32_t port, const char *command, char *reply, size_t size)
{
    const int fd = redis_server_connect(port);
    size_t length = 0;
    if (fd >= 0 && send(fd, command, strlen(command), MSG_NOSIGNAL) > 0 &&
        send(fd, "\r\n", 2, MSG_NOSIGNAL) == 2) {
        struct pollfd one = {.fd = fd, .events = POLLIN};
        shutdown(fd, SHUT_WR); /* it answers all that it has read, and then ends the connection */
        while (length + 1 < size && poll(&one, 1, 5000) == 1) {
            const ssize_t received = recv(fd, reply + length, size - 1 - length, 0);
            if (received <= 0) {
                break;
            }
            length += (size_t)received;
        }
    }
    close(fd);
    reply[length] = '\0';
    return length > 0;
}

bool redis_server_wait(int32_t port, const char *command, const char *text)
{
    char reply[4096];
    for (int i = 0; i < 1000; i++) {
        if (redis_server_command(port, command, reply, sizeof reply) &&
            strstr(reply, text) != NULL) {
            return true;
        }
        usleep(20000);
    }
    return false;
}

static void become_server(const struct redis_server *server, const char *const *arguments)
{
    char port[16];
    snprintf(port, sizeof port, "%d", server->port);
    const char *all[MAX_ARGUMENTS] = {
        program(), "--port",       port, "--bind", "127.0.0.1",   "--save",
        "",        "--appendonly", "no", "--dir",  server->folder};
    int count = 11;
    for (int i = 0; arguments != NULL && arguments[i] != NULL && count < MAX_ARGUMENTS - 1; i++) {
        all[count++] = arguments[i];
    }
    const int nothing = open("/dev/null", O_RDWR);
    dup2(nothing, 0);
    dup2(nothing, 1);
    dup2(nothing, 2);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execvp(all[0], (char *const *)(uintptr_t)all);
    _exit(127);
}

static bool make_folder(struct redis_server *server)
{
    static int num_made;
    const char *temporary = getenv("TMPDIR");
    snprintf(server->folder, sizeof server->folder, "%s/redis-%d-%d",
             temporary != NULL ? temporary : P_tmpdir, (int)getpid(), num_made++);
    return mkdir(server->folder, 0700) == 0;
}

static void launch(struct redis_server *server, const char *const *arguments)
{
    fflush(stdout);
    server->pid = fork();
    if (server->pid == 0) {
        become_server(server, arguments);
    }
}

/* The process is gone: another program had the port. */
static bool has_ended(struct redis_server *server)
{
    if (waitpid(server->pid, NULL, WNOHANG) != server->pid) {
        return false;
    }
    server->pid = 0;
    return true;
}

/* Any answer does: one with a password says NOAUTH. */
static bool answers(struct redis_server *server)
{
    char reply[64];
    for (int i = 0; i < 1000 && !has_ended(server); i++) {
        if (redis_server_command(server->port, "PING", reply, sizeof reply)) {
            return strncmp(reply, "-LOADING", 8) != 0;
        }
        usleep(10000);
    }
    return false;
}

bool redis_server_start(struct redis_server *server, int32_t port, const char *const *arguments)
{
    if (server->folder[0] == '\0' && !make_folder(server)) {
        return false;
    }
    for (int i = 0; i < 5; i++) {
        server->port = port != 0 ? port : free_port();
        launch(server, arguments);
        if (answers(server)) {
            return true;
        }
        redis_server_stop(server, false);
    }
    redis_server_stop(server, true);
    return false;
}

void redis_server_signal(const struct redis_server *server, int signal)
{
    siginfo_t change;
    kill(server->pid, signal);
    if (signal == SIGSTOP) {
        waitid(P_PID, (id_t)server->pid, &change, WSTOPPED | WEXITED | WNOWAIT);
    }
}

void redis_server_stop(struct redis_server *server, bool is_last)
{
    if (server->pid > 0) {
        kill(server->pid, SIGKILL);
        waitpid(server->pid, NULL, 0);
        server->pid = 0;
    }
    if (is_last) {
        char file[512];
        snprintf(file, sizeof file, "%s/nodes.conf", server->folder);
        unlink(file);
        snprintf(file, sizeof file, "%s/socket", server->folder);
        unlink(file);
        rmdir(server->folder);
        server->folder[0] = '\0';
    }
}
