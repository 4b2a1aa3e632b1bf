/* SPDX-License-Identifier: MIT
 *
 * front.c: two children of this program's own file, a socket to each, and a loop of poll. */
#include "front.h"

#include "report.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_REQUESTS = 64, MAX_ARGUMENTS = 12, TIMEOUT_MS = 60000 };

enum state { WAITS, IN_PREFILL, IS_READY, IN_DECODE, IS_DONE };

struct process {
    pid_t pid;
    int socket; /* -1 = it is gone */
    bool is_busy;
};

struct front {
    struct message *messages;
    int32_t count;
    enum state states[MAX_REQUESTS];
    struct process prefill, decode;
    double kill_at; /* seconds; 0 = never */
};

/* In the child. */
static void execute(const char *role, int socket, const struct place *place, int32_t dies_in)
{
    char number[16], dies[16];
    const char *arguments[MAX_ARGUMENTS] = {program_name, role, number, "--dies-in", dies};
    int count = 5;
    snprintf(number, sizeof number, "%d", socket);
    snprintf(dies, sizeof dies, "%d", (int)dies_in);
    if (place->directory != NULL) {
        arguments[count++] = "--directory";
        arguments[count++] = place->directory;
    }
    if (place->redis != NULL) {
        arguments[count++] = "--redis";
        arguments[count++] = place->redis;
        arguments[count++] = "--key-prefix";
        arguments[count++] = place->key_prefix;
    }
    if (fcntl(socket, F_SETFD, 0) == 0) {
        execv("/proc/self/exe", (char *const *)(uintptr_t)arguments);
    }
    _exit(127);
}

static bool start(const char *role, const struct place *place, int32_t dies_in,
                  struct process *process)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        return complain("no socket for %s", role);
    }
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        execute(role, ends[1], place, dies_in);
    }
    close(ends[1]);
    *process = (struct process){.pid = pid, .socket = ends[0]};
    return pid > 0 || complain("no process for %s", role);
}

/* The children end when their sockets do. */
static void hang_up(struct process *process)
{
    if (process->socket >= 0) {
        close(process->socket);
    }
    process->socket = -1;
    process->is_busy = false;
}

static void stop(const struct process *process)
{
    if (process->pid > 0) {
        kill(process->pid, SIGKILL);
    }
}

/* Whether it ended as it should, or never began. */
static bool wait_for(struct process *process, bool may_be_killed)
{
    int status = 0;
    hang_up(process);
    if (process->pid <= 0) {
        return true;
    }
    if (waitpid(process->pid, &status, 0) != process->pid) {
        return false;
    }
    return (WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
           (may_be_killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* The first request in a state; -1 = none. */
static int32_t find(const struct front *front, enum state state)
{
    for (int32_t r = 0; r < front->count; r++) {
        if (front->states[r] == state) {
            return r;
        }
    }
    return -1;
}

/* Requests that prefill does not answer any more. */
static void pass_by_prefill(struct front *front)
{
    hang_up(&front->prefill);
    for (int32_t r = 0; r < front->count; r++) {
        if (front->states[r] < IS_READY) {
            front->states[r] = IS_READY;
        }
    }
}

/* Sends the next request in a state to a process that has nothing to do. False = it is gone. */
static bool feed(struct front *front, struct process *process, enum state from, enum state to)
{
    const int32_t r = process->socket < 0 || process->is_busy ? -1 : find(front, from);
    if (r < 0) {
        return true;
    }
    front->states[r] = to;
    process->is_busy = true;
    return channel_send(process->socket, &front->messages[r]);
}

static bool hear(struct front *front, struct process *process, enum state state)
{
    struct message message;
    if (!channel_receive(process->socket, &message) || message.request < 0 ||
        message.request >= front->count) {
        return false;
    }
    front->states[message.request] = state;
    process->is_busy = false;
    if (state == IS_DONE) {
        front->messages[message.request] = message;
    }
    return true;
}

/* Waits for answers, or until it is time to kill. */
static bool wait_for_answers(struct front *front)
{
    struct pollfd sockets[2] = {{.fd = front->prefill.socket, .events = POLLIN},
                                {.fd = front->decode.socket, .events = POLLIN}};
    const double left = front->kill_at - now_seconds();
    const int timeout = front->kill_at > 0 ? (left > 0 ? (int)(1e3 * left) : 0) : TIMEOUT_MS;
    const int num_ready = poll(sockets, 2, timeout);
    if (num_ready == 0 && front->kill_at > 0) {
        stop(&front->prefill);
        front->kill_at = 0;
        return true;
    }
    if (num_ready <= 0) {
        return complain("no answer for %d s", TIMEOUT_MS / 1000);
    }
    if (sockets[0].revents != 0 && !hear(front, &front->prefill, IS_READY)) {
        pass_by_prefill(front);
    }
    return sockets[1].revents == 0 || hear(front, &front->decode, IS_DONE) ||
           complain("the decode process is gone");
}

static bool run_requests(struct front *front)
{
    while (find(front, WAITS) >= 0 || find(front, IN_PREFILL) >= 0 || find(front, IS_READY) >= 0 ||
           find(front, IN_DECODE) >= 0) {
        if (!feed(front, &front->prefill, WAITS, IN_PREFILL)) {
            pass_by_prefill(front);
        }
        if (!feed(front, &front->decode, IS_READY, IN_DECODE)) {
            return complain("the decode process is gone");
        }
        if (!wait_for_answers(front)) {
            return false;
        }
    }
    return true;
}

bool front_run(const struct place *place, const struct failure *failure, struct message *messages,
               int32_t count)
{
    struct front front = {.messages = messages, .count = count};
    front.prefill.socket = front.decode.socket = -1;
    if (count > MAX_REQUESTS) {
        return complain("more than %d requests", MAX_REQUESTS);
    }
    bool ok = start("--decode", place, -1, &front.decode) &&
              (failure->no_prefill || start("--prefill", place, failure->dies_in, &front.prefill));
    if (failure->no_prefill) {
        pass_by_prefill(&front);
    } else if (failure->after_ms >= 0) {
        front.kill_at = now_seconds() + 1e-3 * failure->after_ms;
    }
    ok = ok && run_requests(&front);
    const bool may_be_killed = !ok || failure->dies_in >= 0 || failure->after_ms >= 0;
    if (!ok) {
        stop(&front.prefill);
        stop(&front.decode);
    }
    const bool prefill_ended = wait_for(&front.prefill, may_be_killed);
    const bool decode_ended = wait_for(&front.decode, !ok);
    return ok && ((prefill_ended && decode_ended) || complain("a process has failed"));
}
