/* SPDX-License-Identifier: MIT */
#include "stream_text.h"

#include "utf8.h"

#include <stdlib.h>
#include <string.h>

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

enum { FIRST_CAPACITY = 64 };

static bool hold(struct stream_text *s, const char *bytes, size_t num_bytes)
{
    if (num_bytes == 0) {
        return true;
    }
    if (s->num_held + num_bytes > s->capacity) {
        const size_t capacity = 2 * (s->num_held + num_bytes) + FIRST_CAPACITY;
        char *held = realloc(s->held, capacity);
        if (held == NULL) {
            return false;
        }
        s->held = held;
        s->capacity = capacity;
    }
    memcpy(s->held + s->num_held, bytes, num_bytes);
    s->num_held += num_bytes;
    return true;
}

static bool begins_with(const char *bytes, size_t num_bytes, const char *text)
{
    return strncmp(bytes, text, num_bytes < strlen(text) ? num_bytes : strlen(text)) == 0;
}

/* Where the first stop text begins that is there as a whole; without one, where what the held bytes
 * end with may become one; num_held when neither is so. */
static size_t find_stop(const struct stream_text *s, bool *complete)
{
    size_t partial = s->num_held;
    *complete = true;
    for (size_t at = 0; at < s->num_held; at++) {
        for (int i = 0; i < s->num_stops; i++) {
            const size_t left = s->num_held - at;
            if (!begins_with(s->held + at, left, s->stops[i])) {
                continue;
            }
            if (left >= strlen(s->stops[i])) {
                return at;
            }
            partial = at < partial ? at : partial;
        }
    }
    *complete = false;
    return partial;
}

/* Takes the first `count` held bytes out, as characters; with `all` false an incomplete one at
 * their end stays. *text has room for three bytes a byte. */
static void take(struct stream_text *s, size_t count, bool all, char *text, size_t *num_text)
{
    size_t from = 0, length = 0;
    *num_text = 0;
    while (from < count) {
        const enum utf8_kind kind = utf8_next(s->held + from, count - from, &length);
        if (kind == UTF8_INCOMPLETE && !all) {
            break;
        }
        const bool whole = kind == UTF8_WHOLE;
        const size_t bytes = whole ? length : sizeof replacement - 1;
        memcpy(text + *num_text, whole ? s->held + from : replacement, bytes);
        *num_text += bytes;
        from += length;
    }
    memmove(s->held, s->held + from, s->num_held - from);
    s->num_held -= from;
}

static bool give(struct stream_text *s, size_t count, bool all, char **text, size_t *num_text)
{
    *text = NULL;
    *num_text = 0;
    if (count == 0) {
        return true;
    }
    char *out = malloc(3 * count + 1);
    if (out == NULL) {
        return false;
    }
    take(s, count, all, out, num_text);
    out[*num_text] = '\0';
    if (*num_text == 0) {
        free(out);
        out = NULL;
    }
    *text = out;
    return true;
}

bool stream_text_add(struct stream_text *stream, const char *bytes, size_t num_bytes, char **text,
                     size_t *num_text)
{
    *text = NULL;
    *num_text = 0;
    if (stream->stopped) {
        return true;
    }
    if (!hold(stream, bytes, num_bytes)) {
        return false;
    }
    bool complete = false;
    const size_t certain = find_stop(stream, &complete);
    if (!give(stream, certain, complete, text, num_text)) {
        return false;
    }
    if (complete) {
        stream->stopped = true;
        stream->num_held = 0;
    }
    return true;
}

bool stream_text_end(struct stream_text *stream, char **text, size_t *num_text)
{
    return give(stream, stream->num_held, true, text, num_text);
}

void stream_text_free(struct stream_text *stream)
{
    free(stream->held);
    *stream = (struct stream_text){0};
}
