/* SPDX-License-Identifier: MIT
 *
 * request.c: prompts from ids, texts and files, and the life of a request apart from any cache. */
#include "request.h"

#include "report.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REQUESTS = 1 << 20, MAX_REQUEST_FILE = 1 << 26 };

static bool grow(struct request_list *list)
{
    if (list->count < list->capacity) {
        return true;
    }
    if (list->count == MAX_REQUESTS) {
        return complain("more than %d requests", MAX_REQUESTS);
    }
    const int32_t capacity = list->capacity == 0 ? 16 : 2 * list->capacity;
    struct request *items = realloc(list->items, (size_t)capacity * sizeof *items);
    if (items == NULL) {
        return complain("out of memory for %d requests", capacity);
    }
    list->items = items;
    list->capacity = capacity;
    return true;
}

static bool check_prompt(const struct request_list *list, const struct model *model,
                         const int32_t *prompt, int32_t num_prompt)
{
    if (num_prompt < 1) {
        return complain("request %d: the prompt has no tokens", list->count);
    }
    if (num_prompt > model->seq_len) {
        return complain("request %d: a prompt of %d tokens is longer than the model's %d positions",
                        list->count, num_prompt, model->seq_len);
    }
    for (int32_t i = 0; i < num_prompt; i++) {
        if (prompt[i] < 0 || prompt[i] >= model->vocab_size) {
            return complain("request %d: token %d is outside the vocabulary [0, %d)", list->count,
                            prompt[i], model->vocab_size);
        }
    }
    return true;
}

bool request_add(struct request_list *list, const struct model *model, const int32_t *prompt,
                 int32_t num_prompt, int32_t num_new)
{
    if (!check_prompt(list, model, prompt, num_prompt) || !grow(list)) {
        return false;
    }
    const int32_t room = model->seq_len - num_prompt;
    const int32_t max_tokens = num_prompt + (num_new < room ? num_new : room);
    int32_t *tokens = calloc((size_t)max_tokens, sizeof *tokens);
    if (tokens == NULL) {
        return complain("out of memory for a request of %d tokens", max_tokens);
    }
    memcpy(tokens, prompt, (size_t)num_prompt * sizeof *tokens);
    struct request *request = &list->items[list->count++];
    *request =
        (struct request){.tokens = tokens, .num_prompt = num_prompt, .max_tokens = max_tokens};
    request_reset(request);
    return true;
}

/* One id at *text, which moves past it and the blanks behind. */
static bool parse_id(const char **text, int32_t *id)
{
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(*text, &end, 10);
    if (end == *text || (*end != '\0' && !isspace((unsigned char)*end))) {
        return complain("'%.20s' does not begin with a token id", *text);
    }
    if (errno != 0 || value < 0 || value > INT32_MAX) {
        return complain("token id %.*s is out of range", (int)(end - *text), *text);
    }
    while (isspace((unsigned char)*end)) {
        end++;
    }
    *id = (int32_t)value;
    *text = end;
    return true;
}

bool request_add_ids(struct request_list *list, const struct model *model, const char *text,
                     int32_t num_new)
{
    int32_t *ids = malloc((strlen(text) / 2 + 1) * sizeof *ids);
    if (ids == NULL) {
        return complain("out of memory for a prompt");
    }
    int32_t count = 0;
    bool ok = true;
    while (isspace((unsigned char)*text)) {
        text++;
    }
    while (ok && *text != '\0') {
        ok = parse_id(&text, &ids[count]);
        count += ok ? 1 : 0;
    }
    ok = ok && request_add(list, model, ids, count, num_new);
    free(ids);
    return ok;
}

bool request_add_file(struct request_list *list, const struct model *model, const char *path,
                      int32_t num_new)
{
    unsigned char *bytes = NULL;
    size_t num_bytes = 0;
    if (!read_file(path, MAX_REQUEST_FILE, &bytes, &num_bytes)) {
        return false;
    }
    bool ok = true;
    if (memchr(bytes, '\0', num_bytes) != NULL) {
        ok = complain("%s: holds a zero byte, so it is no list of token ids", path);
    }
    const int32_t before = list->count;
    char *line = (char *)bytes;
    while (ok && *line != '\0') {
        char *end = line + strcspn(line, "\n");
        char *next = *end == '\0' ? end : end + 1;
        *end = '\0';
        if (line[strspn(line, " \t\r")] != '\0') {
            ok = request_add_ids(list, model, line, num_new);
        }
        line = next;
    }
    if (ok && list->count == before) {
        ok = complain("%s: no prompt in it", path);
    }
    free(bytes);
    return ok;
}

void request_take(const struct model *model, struct request *request, int32_t token)
{
    if (token == model->begin_id || token == model->end_id) {
        request->ended = true;
        return;
    }
    request->tokens[request->num_tokens++] = token;
    request->ended = request->num_tokens == request->max_tokens;
}

void request_reset(struct request *request)
{
    request->num_tokens = request->num_prompt;
    request->ended = request->num_tokens == request->max_tokens;
}

int64_t request_generated(const struct request_list *list)
{
    int64_t sum = 0;
    for (int32_t r = 0; r < list->count; r++) {
        sum += list->items[r].num_tokens - list->items[r].num_prompt;
    }
    return sum;
}

int32_t request_longest(const struct request_list *list)
{
    int32_t longest = 0;
    for (int32_t r = 0; r < list->count; r++) {
        if (list->items[r].max_tokens > longest) {
            longest = list->items[r].max_tokens;
        }
    }
    return longest;
}

void request_free(struct request_list *list)
{
    for (int32_t r = 0; r < list->count; r++) {
        free(list->items[r].tokens);
    }
    free(list->items);
    memset(list, 0, sizeof *list);
}
