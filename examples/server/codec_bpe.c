/* SPDX-License-Identifier: MIT */
#include "codec.h"

#include "bpe_file.h"
#include "model.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>

/* How a conversation is written. */
enum template { TEMPLATE_LINES, TEMPLATE_CHATML, TEMPLATE_LLAMA3 };

struct vocabulary {
    struct bpe bpe;
    enum template template;
    int32_t open, close, end; /* special tokens around a role (close -1: none) and behind a text */
    int32_t num_ends;
    int32_t *ends;
};

/* Tokens while they are added. */
struct list {
    int32_t *tokens;
    int32_t count;
};

static bool encode(const void *self, const char *text, size_t num_bytes, int32_t **tokens,
                   int32_t *num_tokens)
{
    const struct vocabulary *v = self;
    *tokens = NULL;
    *num_tokens = 0;
    if (bpe_encode(&v->bpe, text, num_bytes, tokens, num_tokens)) {
        return true;
    }
    free(*tokens);
    return false;
}

/* ---- conversations -------------------------------------------------------------------------- */

static bool add_text(const struct vocabulary *v, const char *text, size_t num_bytes,
                     struct list *list)
{
    return bpe_encode(&v->bpe, text, num_bytes, &list->tokens, &list->count);
}

static bool add_special(int32_t token, struct list *list)
{
    int32_t *grown = realloc(list->tokens, ((size_t)list->count + 1) * sizeof *grown);
    if (grown == NULL) {
        return complain("out of memory for a conversation");
    }
    list->tokens = grown;
    grown[list->count] = token;
    list->count++;
    return true;
}

/* Two texts as one, because a token may reach from one into the other. */
static bool add_both(const struct vocabulary *v, const char *first, const char *second,
                     size_t num_second, struct list *list)
{
    const size_t num_first = strlen(first);
    char *both = malloc(num_first + num_second + 1);
    if (both == NULL) {
        return complain("out of memory for a conversation");
    }
    memcpy(both, first, num_first);
    memcpy(both + num_first, second, num_second);
    const bool ok = add_text(v, both, num_first + num_second, list);
    free(both);
    return ok;
}

/* <|im_start|>role\ntext<|im_end|>\n */
static bool add_chatml(const struct vocabulary *v, const struct message *m, struct list *list)
{
    return add_special(v->open, list) && add_text(v, m->role, strlen(m->role), list) &&
           add_both(v, "\n", m->text, strlen(m->text), list) && add_special(v->end, list) &&
           add_text(v, "\n", 1, list);
}

/* <|start_header_id|>role<|end_header_id|>\n\ntext<|eot_id|>, without blanks around the text. */
static bool add_llama3(const struct vocabulary *v, const struct message *m, struct list *list)
{
    static const char blanks[] = " \t\r\n\v\f";
    const char *text = m->text + strspn(m->text, blanks);
    size_t num_bytes = strlen(text);
    while (num_bytes > 0 && strchr(blanks, text[num_bytes - 1]) != NULL) {
        num_bytes--;
    }
    return add_special(v->open, list) && add_text(v, m->role, strlen(m->role), list) &&
           add_special(v->close, list) && add_both(v, "\n\n", text, num_bytes, list) &&
           add_special(v->end, list);
}

static bool add_line(const struct vocabulary *v, const struct message *m, bool last,
                     struct list *list)
{
    return last ? add_text(v, m->text, strlen(m->text), list) : add_both(v, m->text, "\n", 1, list);
}

static bool add_message(const struct vocabulary *v, const struct message *m, bool last,
                        struct list *list)
{
    switch (v->template) {
    case TEMPLATE_CHATML: return add_chatml(v, m, list);
    case TEMPLATE_LLAMA3: return add_llama3(v, m, list);
    case TEMPLATE_LINES: break;
    }
    return add_line(v, m, last, list);
}

static bool add_reply(const struct vocabulary *v, struct list *list)
{
    static const char role[] = "assistant";
    switch (v->template) {
    case TEMPLATE_CHATML: return add_special(v->open, list) && add_text(v, "assistant\n", 10, list);
    case TEMPLATE_LLAMA3:
        return add_special(v->open, list) && add_text(v, role, strlen(role), list) &&
               add_special(v->close, list) && add_text(v, "\n\n", 2, list);
    case TEMPLATE_LINES: break;
    }
    return true;
}

static bool encode_chat(const void *self, const struct message *messages, int32_t num_messages,
                        int32_t **tokens, int32_t *num_tokens)
{
    const struct vocabulary *v = self;
    struct list list = {NULL, 0};
    bool ok = true;
    for (int32_t i = 0; ok && i < num_messages; i++) {
        ok = add_message(v, &messages[i], i + 1 == num_messages, &list);
    }
    if (!ok || !add_reply(v, &list)) {
        free(list.tokens);
        return false;
    }
    *tokens = list.tokens;
    *num_tokens = list.count;
    return true;
}

/* ---- single tokens -------------------------------------------------------------------------- */

static const char *bytes(const void *self, int32_t token, size_t *num_bytes)
{
    const struct vocabulary *v = self;
    const struct bpe_token *t = &v->bpe.tokens[token];
    const bool text = t->bytes != NULL && !t->special;
    *num_bytes = text ? t->num_bytes : 0;
    return text ? t->bytes : "";
}

static bool is_end(const void *self, int32_t token)
{
    const struct vocabulary *v = self;
    for (int32_t i = 0; i < v->num_ends; i++) {
        if (v->ends[i] == token) {
            return true;
        }
    }
    return false;
}

/* ---- create and free ------------------------------------------------------------------------ */

static int32_t find_special(const struct bpe *bpe, const char *text)
{
    for (int32_t id = 0; id < bpe->vocab_size; id++) {
        const struct bpe_token *token = &bpe->tokens[id];
        if (token->special && strcmp(token->bytes, text) == 0) {
            return id;
        }
    }
    return -1;
}

static void find_template(struct vocabulary *v)
{
    v->template = TEMPLATE_LINES;
    v->close = -1;
    v->open = find_special(&v->bpe, "<|im_start|>");
    v->end = find_special(&v->bpe, "<|im_end|>");
    if (v->open >= 0 && v->end >= 0) {
        v->template = TEMPLATE_CHATML;
        return;
    }
    v->open = find_special(&v->bpe, "<|start_header_id|>");
    v->close = find_special(&v->bpe, "<|end_header_id|>");
    v->end = find_special(&v->bpe, "<|eot_id|>");
    if (v->open >= 0 && v->close >= 0 && v->end >= 0) {
        v->template = TEMPLATE_LLAMA3;
    }
}

/* Those of the configuration, and the one behind each text of a conversation. */
static bool take_ends(const int32_t *ends, int32_t num_ends, struct vocabulary *v)
{
    v->ends = malloc(((size_t)num_ends + 1) * sizeof *v->ends);
    if (v->ends == NULL) {
        return complain("out of memory for a vocabulary");
    }
    for (int32_t i = 0; i < num_ends; i++) {
        v->ends[i] = ends[i];
    }
    v->num_ends = num_ends;
    if (v->template != TEMPLATE_LINES) {
        v->ends[num_ends] = v->end;
        v->num_ends++;
    }
    return true;
}

static void free_vocabulary(void *self)
{
    struct vocabulary *v = self;
    bpe_free(&v->bpe);
    free(v->ends);
    free(v);
}

bool codec_bpe(const struct model *model, const char *path, const int32_t *ends, int32_t num_ends,
               struct codec *codec)
{
    int32_t begin = -1;
    struct vocabulary *v = calloc(1, sizeof *v);
    if (v == NULL) {
        return complain("out of memory for a vocabulary");
    }
    if (!bpe_file_read(path, model->vocab_size, &v->bpe, &begin)) {
        free(v);
        return false;
    }
    find_template(v);
    if (!take_ends(ends, num_ends, v)) {
        free_vocabulary(v);
        return false;
    }
    *codec = (struct codec){.self = v,
                            .begin_token = begin,
                            .max_token_bytes = v->bpe.max_token_bytes,
                            .encode = encode,
                            .encode_chat = encode_chat,
                            .bytes = bytes,
                            .is_end = is_end,
                            .free = free_vocabulary};
    return true;
}
