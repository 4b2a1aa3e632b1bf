/* SPDX-License-Identifier: MIT
 *
 * channel.c: whole reads and writes. A message is as long as its tokens. */
#include "channel.h"

#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

static size_t length_of(const struct message *message)
{
    return offsetof(struct message, tokens) +
           (size_t)message->num_tokens * sizeof message->tokens[0];
}

static bool is_valid(const struct message *message)
{
    return message->num_prompt > 0 && message->num_prompt <= message->num_tokens &&
           message->num_tokens <= MAX_TEXT;
}

bool channel_send(int socket, const struct message *message)
{
    const char *bytes = (const char *)message;
    size_t left = length_of(message);
    while (left > 0) {
        const ssize_t sent = send(socket, bytes, left, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            return false;
        }
        bytes += sent < 0 ? 0 : sent;
        left -= sent < 0 ? 0 : (size_t)sent;
    }
    return true;
}

static bool receive_bytes(int socket, void *place, size_t left)
{
    char *bytes = place;
    while (left > 0) {
        const ssize_t got = recv(socket, bytes, left, 0);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        bytes += got < 0 ? 0 : got;
        left -= got < 0 ? 0 : (size_t)got;
    }
    return true;
}

bool channel_receive(int socket, struct message *message)
{
    const size_t head = offsetof(struct message, tokens);
    return receive_bytes(socket, message, head) && is_valid(message) &&
           receive_bytes(socket, message->tokens, length_of(message) - head);
}
