/* SPDX-License-Identifier: MIT
 *
 * hiredis 0.14 writes with write(), which raises SIGPIPE, and moves its output buffer after each
 * partial write; so sockets are written and read here, and hiredis connects and parses. Its parser
 * holds a text until it is complete: `limit` bounds what a server can make it hold. Arrays are
 * passed on as they are read, so that their announced length allocates nothing. Values, whose
 * length is known, go past it. */
#include "tiers/redis_connection.h"

#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define TEXT_BYTES 16384
#define TAIL_BYTES 64
#define CHUNK_BYTES 65536
/* What is received before the owner looks at the clock again. */
#define MAX_CHUNKS 64
#define MAX_VECTORS 64
/* What a reply has beside its text, and what the reply to a login may have. */
#define FRAME_BYTES 64
#define LOGIN_BYTES 1024

/* What is to be sent: text, then the pieces of one value, then the tail. `sent` counts in text,
 * then in the piece, then in the tail. */
struct output {
    char text[TEXT_BYTES];
    size_t text_length;
    size_t text_sent;
    const struct pkv_piece *pieces;
    int32_t num_pieces;
    int32_t piece;
    size_t piece_sent;
    char tail[TAIL_BYTES];
    size_t tail_length;
    size_t tail_sent;
};

struct redis_connection {
    redisContext *hiredis;
    redisReplyObjectFunctions functions;
    bool is_connected;
    int32_t num_login; /* replies to come */
    bool is_refused;   /* one of them was an error */
    char reply_begin;  /* the first byte of the reply that is being read */
    const struct redis_connection_listener *listener;
    struct output output;
    struct redis_input input;
    char chunk[CHUNK_BYTES];
};

/* --- what hiredis reads */

static bool tell(const redisReadTask *task, struct redis_value *value)
{
    struct redis_connection *connection = task->privdata;
    const redisReadTask *at = task;
    for (; at->parent != NULL; at = at->parent) {
        value->depth++;
    }
    if (value->depth > REDIS_MAX_DEPTH) {
        return false;
    }
    at = task;
    for (int32_t i = value->depth - 1; i >= 0; i--, at = at->parent) {
        value->places[i] = (int32_t)at->idx;
    }
    if (connection->num_login > 0) {
        connection->is_refused |= value->type != REDIS_STATUS;
        return value->depth == 0;
    }
    return connection->listener->value(connection->listener->context, value);
}

/* hiredis takes NULL for an error, and anything else as the object that was made. */
static void *made(const redisReadTask *task, struct redis_value value)
{
    return tell(task, &value) ? task->privdata : NULL;
}

static void *make_text(const redisReadTask *task, char *text, size_t length)
{
    const enum redis_type type = task->type == REDIS_REPLY_ERROR    ? REDIS_ERROR
                                 : task->type == REDIS_REPLY_STATUS ? REDIS_STATUS
                                                                    : REDIS_TEXT;
    return made(task, (struct redis_value){.type = type, .text = text, .length = length});
}

static void *make_integer(const redisReadTask *task, long long integer)
{
    return made(task, (struct redis_value){.type = REDIS_INTEGER, .integer = integer});
}

static void *make_nil(const redisReadTask *task)
{
    return made(task, (struct redis_value){.type = REDIS_NIL});
}

/* hiredis 0.14 counts elements in int, later versions in size_t. */
static void *make_array(const redisReadTask *task, int num_elements)
{
    (void)num_elements;
    return made(task, (struct redis_value){.type = REDIS_ARRAY});
}

static void *make_sized_array(const redisReadTask *task, size_t num_elements)
{
    (void)num_elements;
    return made(task, (struct redis_value){.type = REDIS_ARRAY});
}

static void make_nothing(void *object)
{
    (void)object;
}

static void set_functions(struct redis_connection *connection)
{
    redisReplyObjectFunctions *functions = &connection->functions;
    functions->createString = make_text;
    functions->createArray = _Generic(functions->createArray, void *(*)(const redisReadTask *, int)
                                      : make_array, void *(*)(const redisReadTask *, size_t)
                                      : make_sized_array);
    functions->createInteger = make_integer;
    functions->createNil = make_nil;
    functions->freeObject = make_nothing;
    connection->hiredis->reader->fn = functions;
    connection->hiredis->reader->privdata = connection;
}

/* --- what is sent */

/* The words as the protocol has them, behind `text`, which has room for them. */
static size_t put_words(char *text, const char *const *words, int num_words)
{
    size_t length = 0;
    for (int i = 0; i < num_words && words[i] != NULL; i++) {
        const size_t word = strlen(words[i]);
        length += (size_t)sprintf(text + length, "$%zu\r\n", word);
        memcpy(text + length, words[i], word);
        memcpy(text + length + word, "\r\n", 2);
        length += word + 2;
    }
    return length;
}

static size_t count_words(const struct redis_connection_command *command, size_t *bytes)
{
    size_t count = command->has_value;
    *bytes = 2 * FRAME_BYTES;
    for (int i = 0; i < 3 && command->head[i] != NULL; i++) {
        *bytes += strlen(command->head[i]) + FRAME_BYTES;
        count++;
    }
    return count + (command->tail[0] != NULL ? 2 : 0);
}

static void put_value(struct output *output, const struct redis_connection_command *command)
{
    output->text_length +=
        (size_t)sprintf(output->text + output->text_length, "$%zu\r\n", command->bytes);
    output->pieces = command->pieces;
    output->num_pieces = command->num_pieces;
    memcpy(output->tail, "\r\n", 2);
    output->tail_length = 2 + put_words(output->tail + 2, command->tail, 2);
}

static bool is_sent(const struct output *output)
{
    return output->text_sent == output->text_length && output->tail_sent == output->tail_length;
}

static void clear_output(struct output *output)
{
    output->text_length = 0;
    output->text_sent = 0;
    output->pieces = NULL;
    output->num_pieces = 0;
    output->piece = 0;
    output->piece_sent = 0;
    output->tail_length = 0;
    output->tail_sent = 0;
}

bool redis_connection_append(struct redis_connection *connection,
                             const struct redis_connection_command *command)
{
    struct output *output = &connection->output;
    size_t bytes;
    const size_t num_words = count_words(command, &bytes);
    if (output->tail_length != 0 || output->text_length + bytes > TEXT_BYTES) {
        return false;
    }
    output->text_length +=
        (size_t)sprintf(output->text + output->text_length, "*%zu\r\n", num_words);
    output->text_length += put_words(output->text + output->text_length, command->head, 3);
    if (command->has_value) {
        put_value(output, command);
    }
    return true;
}

static int gather(struct output *output, struct iovec *vectors)
{
    int count = 0;
    if (output->text_sent < output->text_length) {
        vectors[count].iov_base = output->text + output->text_sent;
        vectors[count++].iov_len = output->text_length - output->text_sent;
    }
    size_t skip = output->piece_sent;
    int32_t i = output->piece;
    for (; i < output->num_pieces && count < MAX_VECTORS - 1; i++) {
        vectors[count].iov_base = (char *)output->pieces[i].bytes + skip;
        vectors[count++].iov_len = output->pieces[i].length - skip;
        skip = 0;
    }
    if (i == output->num_pieces && output->tail_sent < output->tail_length) {
        vectors[count].iov_base = output->tail + output->tail_sent;
        vectors[count++].iov_len = output->tail_length - output->tail_sent;
    }
    return count;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void advance(struct output *output, size_t sent)
{
    size_t step = smaller(sent, output->text_length - output->text_sent);
    output->text_sent += step;
    sent -= step;
    while (output->text_sent == output->text_length && output->piece < output->num_pieces) {
        step = smaller(sent, output->pieces[output->piece].length - output->piece_sent);
        output->piece_sent += step;
        sent -= step;
        if (output->piece_sent < output->pieces[output->piece].length) {
            return;
        }
        output->piece++;
        output->piece_sent = 0;
    }
    output->tail_sent += sent;
    if (is_sent(output)) {
        clear_output(output);
    }
}

/* False when the connection is broken. */
static bool send_some(struct redis_connection *connection, size_t *moved)
{
    struct output *output = &connection->output;
    while (output->text_length != 0) {
        struct iovec vectors[MAX_VECTORS];
        const struct msghdr message = {.msg_iov = vectors,
                                       .msg_iovlen = (size_t)gather(output, vectors)};
        const ssize_t sent =
            sendmsg(connection->hiredis->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        }
        *moved += (size_t)sent;
        advance(output, (size_t)sent);
    }
    return true;
}

/* --- opening */

/* A login's reply is no more than a line. */
static size_t limit_of(const struct redis_connection *connection)
{
    return connection->num_login > 0 ? LOGIN_BYTES
                                     : connection->listener->limit(connection->listener->context);
}

static void say_first(struct redis_connection *connection,
                      const struct redis_connection_login *login)
{
    if (login->password[0] != '\0') {
        const bool named = login->user[0] != '\0';
        const struct redis_connection_command command = {
            .head = {"AUTH", named ? login->user : login->password,
                     named ? login->password : NULL}};
        connection->num_login += redis_connection_append(connection, &command);
    }
    if (login->database != 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", login->database);
        const struct redis_connection_command command = {.head = {"SELECT", number}};
        connection->num_login += redis_connection_append(connection, &command);
    }
}

static redisContext *begin(const struct redis_address *address)
{
    redisContext *hiredis = address->port == 0 ? redisConnectUnixNonBlock(address->host)
                                               : redisConnectNonBlock(address->host, address->port);
    if (hiredis != NULL && hiredis->err != 0) {
        redisFree(hiredis);
        return NULL;
    }
    return hiredis;
}

struct redis_connection *redis_connection_open(const struct redis_address *address,
                                               const struct redis_connection_login *login)
{
    struct redis_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL) {
        return NULL;
    }
    connection->hiredis = begin(address);
    if (connection->hiredis == NULL) {
        free(connection);
        return NULL;
    }
    const int on = 1;
    if (address->port != 0) {
        (void)setsockopt(connection->hiredis->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    (void)fcntl(connection->hiredis->fd, F_SETFD, FD_CLOEXEC);
    set_functions(connection);
    say_first(connection, login);
    return connection;
}

void redis_connection_close(struct redis_connection *connection)
{
    if (connection != NULL) {
        redisFree(connection->hiredis);
        free(connection);
    }
}

bool redis_connection_is_quiet(const struct redis_connection *connection)
{
    struct pollfd one = {.fd = connection->hiredis->fd, .events = POLLIN};
    return poll(&one, 1, 0) == 0;
}

bool redis_connection_is_ready(const struct redis_connection *connection)
{
    return connection->is_connected && connection->num_login == 0;
}

int redis_connection_socket(const struct redis_connection *connection)
{
    return connection->hiredis->fd;
}

short redis_connection_events(const struct redis_connection *connection)
{
    const bool sends = !connection->is_connected || connection->output.text_length != 0;
    return (short)(POLLIN | (sends ? POLLOUT : 0));
}

/* --- running */

static enum redis_connection_state parse(struct redis_connection *connection)
{
    redisReader *reader = connection->hiredis->reader;
    while (reader->pos < reader->len) {
        void *reply = NULL;
        if (reader->ridx == -1) {
            connection->reply_begin = reader->buf[reader->pos];
        }
        if (redisReaderGetReply(reader, &reply) != REDIS_OK || connection->is_refused) {
            return REDIS_CONNECTION_BROKEN;
        }
        if (reply == NULL) {
            break;
        }
        if (connection->num_login > 0) {
            connection->num_login--;
        } else {
            connection->listener->end(connection->listener->context);
        }
    }
    const size_t limit = limit_of(connection);
    if (reader->len - reader->pos <= (limit == 0 ? 0 : limit + FRAME_BYTES)) {
        return REDIS_CONNECTION_OPEN;
    }
    return limit != 0 && connection->reply_begin == '$' ? REDIS_CONNECTION_TOO_LONG
                                                        : REDIS_CONNECTION_BROKEN;
}

/* Is hiredis between two replies? */
static bool is_between(const struct redis_connection *connection)
{
    const redisReader *reader = connection->hiredis->reader;
    return connection->num_login == 0 && reader->ridx == -1 && reader->pos == reader->len;
}

/* The value that a reply begins with here, if it is one that has a place. */
static size_t begin_input(struct redis_connection *connection, const char *bytes, size_t length)
{
    const struct redis_connection_listener *listener = connection->listener;
    struct redis_input_place place;
    if (!is_between(connection) || listener->place == NULL ||
        !listener->place(listener->context, &place)) {
        return 0;
    }
    return redis_input_begin(&connection->input, &place, bytes, length);
}

static enum redis_connection_state end_input(struct redis_connection *connection)
{
    const struct redis_connection_listener *listener = connection->listener;
    const struct redis_value value = {
        .type = REDIS_TEXT, .length = connection->input.place.bytes, .is_placed = true};
    bool is_right = true;
    if (!redis_input_end(&connection->input, &is_right)) {
        return REDIS_CONNECTION_OPEN;
    }
    if (!is_right || !listener->value(listener->context, &value)) {
        return REDIS_CONNECTION_BROKEN;
    }
    listener->end(listener->context);
    return REDIS_CONNECTION_OPEN;
}

static enum redis_connection_state take(struct redis_connection *connection, const char *bytes,
                                        size_t length)
{
    enum redis_connection_state state = REDIS_CONNECTION_OPEN;
    while (length > 0 && state == REDIS_CONNECTION_OPEN) {
        const size_t used = connection->input.is_open
                                ? redis_input_take(&connection->input, bytes, length)
                                : begin_input(connection, bytes, length);
        if (used == 0) {
            return redisReaderFeed(connection->hiredis->reader, bytes, length) == REDIS_OK
                       ? parse(connection)
                       : REDIS_CONNECTION_BROKEN;
        }
        bytes += used;
        length -= used;
        state = end_input(connection);
    }
    return state;
}

/* Receives to where the value belongs, or into the chunk. */
static ssize_t receive(struct redis_connection *connection)
{
    struct iovec vectors[MAX_VECTORS] = {{connection->chunk, CHUNK_BYTES}};
    struct msghdr message = {.msg_iov = vectors, .msg_iovlen = 1};
    if (connection->input.is_open) {
        message.msg_iovlen = (size_t)redis_input_vectors(&connection->input, vectors, MAX_VECTORS);
    }
    return recvmsg(connection->hiredis->fd, &message, MSG_DONTWAIT);
}

static enum redis_connection_state receive_some(struct redis_connection *connection, size_t *moved)
{
    enum redis_connection_state state = REDIS_CONNECTION_OPEN;
    bool goes_on = true;
    for (int i = 0; i < MAX_CHUNKS && state == REDIS_CONNECTION_OPEN && goes_on; i++) {
        const bool is_placed = connection->input.is_open;
        const ssize_t received = receive(connection);
        if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
            break;
        }
        if (received <= 0) {
            return REDIS_CONNECTION_BROKEN;
        }
        *moved += (size_t)received;
        goes_on = is_placed || received == CHUNK_BYTES;
        if (is_placed) {
            redis_input_advance(&connection->input, (size_t)received);
            state = end_input(connection);
        } else {
            state = take(connection, connection->chunk, (size_t)received);
        }
    }
    return state;
}

static bool finish_connect(struct redis_connection *connection)
{
    int error = 0;
    socklen_t length = sizeof error;
    connection->is_connected = true;
    return getsockopt(connection->hiredis->fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 &&
           error == 0;
}

enum redis_connection_state redis_connection_run(struct redis_connection *connection, short events,
                                                 const struct redis_connection_listener *listener,
                                                 size_t *moved)
{
    enum redis_connection_state state = REDIS_CONNECTION_OPEN;
    connection->listener = listener;
    if (!connection->is_connected && events != 0 && !finish_connect(connection)) {
        return REDIS_CONNECTION_BROKEN;
    }
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) {
        state = receive_some(connection, moved);
    }
    if (state == REDIS_CONNECTION_OPEN && connection->is_connected &&
        !send_some(connection, moved)) {
        state = REDIS_CONNECTION_BROKEN;
    }
    return state;
}
