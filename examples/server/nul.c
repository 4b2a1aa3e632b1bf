/* SPDX-License-Identifier: MIT */
#include "nul.h"

#include <string.h>

struct scan {
    const char *bytes;
    size_t at, end;
    int depth;
    bool at_name;     /* the next text is the name of a member */
    const char *name; /* of the member of the outermost object, [num_name] */
    size_t num_name;
};

static bool is_nul_escape(const struct scan *s)
{
    return s->end - s->at >= 6 && memcmp(s->bytes + s->at, "\\u0000", 6) == 0;
}

/* From a quote to behind the next one; false at a NUL. */
static bool pass_text(struct scan *s)
{
    const size_t first = ++s->at;
    while (s->at < s->end && s->bytes[s->at] != '"') {
        if (s->bytes[s->at] == '\0' || is_nul_escape(s)) {
            return false;
        }
        s->at += s->bytes[s->at] == '\\' && s->end - s->at > 1 ? 2 : 1;
    }
    if (s->at_name && s->depth == 1) {
        s->name = s->bytes + first;
        s->num_name = s->at - first;
    }
    s->at_name = false;
    s->at += s->at < s->end;
    return true;
}

static void pass_mark(struct scan *s)
{
    const char c = s->bytes[s->at];
    s->depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    if (c == '{' || c == ',') {
        s->at_name = true;
    } else if (c == '[' || c == ':') {
        s->at_name = false;
    }
    s->at++;
}

/* Only a plain name is told: messages quote it. */
static void copy_name(const struct scan *s, char *field, size_t room)
{
    size_t length = s->depth > 0 && s->num_name < room ? s->num_name : 0;
    for (size_t i = 0; i < length; i++) {
        if (s->name[i] < ' ' || s->name[i] > '~') {
            length = 0;
        }
    }
    memcpy(field, length > 0 ? s->name : "", length);
    field[length] = '\0';
}

bool nul_find(const char *body, size_t num_bytes, char *field, size_t room)
{
    struct scan scan = {.bytes = body, .end = num_bytes};
    bool found = false;
    while (!found && scan.at < scan.end) {
        if (body[scan.at] == '"') {
            found = !pass_text(&scan);
        } else {
            found = body[scan.at] == '\0';
            pass_mark(&scan);
        }
    }
    copy_name(&scan, field, room);
    return found;
}
