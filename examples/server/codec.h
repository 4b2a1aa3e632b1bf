/* SPDX-License-Identifier: MIT
 *
 * codec.h: text to tokens and back, whatever vocabulary a model has. */
#ifndef SERVER_CODEC_H
#define SERVER_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model;

/* A turn of a conversation. */
struct message {
    const char *role; /* system, user or assistant */
    const char *text;
};

struct codec {
    void *self;
    int32_t begin_token; /* put before a text; -1 = none */
    int32_t max_token_bytes;

    /* Tokens of a text, without the begin token, in an array that the caller frees. Text never
     * becomes a special token. */
    bool (*encode)(const void *self, const char *text, size_t num_bytes, int32_t **tokens,
                   int32_t *num_tokens);

    /* The same of a conversation in the model's own template, up to where the assistant begins. */
    bool (*encode_chat)(const void *self, const struct message *messages, int32_t num_messages,
                        int32_t **tokens, int32_t *num_tokens);

    /* The bytes of a token, which stay; special tokens have none. */
    const char *(*bytes)(const void *self, int32_t token, size_t *num_bytes);

    bool (*is_end)(const void *self, int32_t token);
    void (*free)(void *self);
};

/* For a model whose ids are bytes, or, with a path, by the tokenizer.bin of llama2.c. A
 * conversation is its texts one behind the other, a line each: such models know no roles. */
bool codec_pieces(const struct model *model, const char *path, struct codec *codec);

/* For a tokenizer.json. `ends`: ids that end a text, below the model's vocab_size. A conversation
 * is written as ChatML where the vocabulary has <|im_start|>, with Llama 3's headers where it has
 * <|start_header_id|>, and else as above. */
bool codec_bpe(const struct model *model, const char *path, const int32_t *ends, int32_t num_ends,
               struct codec *codec);

#endif
