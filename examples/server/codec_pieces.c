/* SPDX-License-Identifier: MIT */
#include "codec.h"

#include "model.h"
#include "report.h"
#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>

struct pieces {
    struct tokenizer tokenizer;
    char bytes[256]; /* what pieces like <0x0A> stand for */
};

static bool encode(const void *self, const char *text, size_t num_bytes, int32_t **tokens,
                   int32_t *num_tokens)
{
    const struct pieces *p = self;
    (void)num_bytes;
    if (!tokenizer_encode(&p->tokenizer, text, tokens, num_tokens)) {
        return false;
    }
    (*num_tokens)--;
    memmove(*tokens, *tokens + 1, (size_t)*num_tokens * sizeof **tokens);
    return true;
}

static bool encode_chat(const void *self, const struct message *messages, int32_t num_messages,
                        int32_t **tokens, int32_t *num_tokens)
{
    size_t length = 0;
    for (int32_t i = 0; i < num_messages; i++) {
        length += strlen(messages[i].text) + 1;
    }
    char *joined = malloc(length + 1);
    if (joined == NULL) {
        return complain("out of memory for a conversation");
    }
    char *end = joined;
    for (int32_t i = 0; i < num_messages; i++) {
        const size_t bytes = strlen(messages[i].text);
        memcpy(end, messages[i].text, bytes);
        end[bytes] = i + 1 < num_messages ? '\n' : '\0';
        end += bytes + 1;
    }
    *end = '\0';
    const bool ok = encode(self, joined, length, tokens, num_tokens);
    free(joined);
    return ok;
}

static const char *bytes(const void *self, int32_t token, size_t *num_bytes)
{
    const struct pieces *p = self;
    const int32_t byte = tokenizer_byte(&p->tokenizer, token);
    const struct piece *piece = &p->tokenizer.pieces[token];
    const bool special = token == p->tokenizer.begin_id || token == p->tokenizer.end_id;
    *num_bytes = special ? 0 : byte >= 0 ? 1 : (size_t)piece->length;
    return byte >= 0 ? &p->bytes[byte] : (const char *)piece->bytes;
}

static bool is_end(const void *self, int32_t token)
{
    const struct pieces *p = self;
    return token == p->tokenizer.begin_id || token == p->tokenizer.end_id;
}

static void free_pieces(void *self)
{
    struct pieces *p = self;
    tokenizer_free(&p->tokenizer);
    free(p);
}

bool codec_pieces(const struct model *model, const char *path, struct codec *codec)
{
    struct pieces *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return complain("out of memory for a vocabulary");
    }
    const bool ok = path == NULL
                        ? tokenizer_create_bytes(model->begin_id, model->end_id, &p->tokenizer)
                        : tokenizer_load(path, model->vocab_size, &p->tokenizer);
    if (!ok) {
        free(p);
        return false;
    }
    for (int byte = 0; byte < 256; byte++) {
        p->bytes[byte] = (char)byte;
    }
    *codec = (struct codec){.self = p,
                            .begin_token = p->tokenizer.begin_id,
                            .max_token_bytes = p->tokenizer.max_length,
                            .encode = encode,
                            .encode_chat = encode_chat,
                            .bytes = bytes,
                            .is_end = is_end,
                            .free = free_pieces};
    return true;
}
