/* SPDX-License-Identifier: MIT
 *
 * language_model.h: what the server asks of a model, whatever file it came from: its shape, text to
 * tokens and back, and a forward pass over packed tokens whose attention is the caller's. */
#ifndef SERVER_LANGUAGE_MODEL_H
#define SERVER_LANGUAGE_MODEL_H

#include "pagedkv/cache.h"

/* Attention of one layer: q, k, v and out packed by token as in struct pkv_layer_io, f32; q and k
 * not rotated yet. False = it failed and complained. */
typedef bool attend_layer(void *context, int32_t layer, const float *q, const float *k,
                          const float *v, float *out);

struct language_model {
    char name[64];
    int32_t vocab_size;
    int32_t max_seq_len;
    int32_t num_layers;
    int32_t num_heads, kv_heads, head_dim;
    const int64_t *windows;                     /* [num_layers], 0 = full attention */
    const struct pkv_attn_constants *constants; /* [num_layers]: rope, norms of q and k */
    int32_t begin_token;                        /* put before a text; -1 = none */
    void *self;

    /* Tokens of a text of UTF-8, without the begin token, in an array that the caller frees. */
    bool (*encode)(const void *self, const char *text, size_t num_bytes, int32_t **tokens,
                   int32_t *num_tokens);
    /* The same of a conversation in the model's own template, ready for the assistant's turn.
     * Text of a client never becomes a special token. */
    bool (*encode_chat)(const void *self, const char *const *roles, const char *const *texts,
                        int32_t num_messages, int32_t **tokens, int32_t *num_tokens);
    /* The bytes of one token, which stay valid; special tokens have none. */
    const char *(*bytes)(const void *self, int32_t token, size_t *num_bytes);
    bool (*is_end)(const void *self, int32_t token);

    /* A pass over num_tokens <= max_tokens of create_pass. logits [num_rows][vocab_size] receives
     * the rows of the packed tokens rows[i]. A row's bits depend on its own tokens alone. */
    bool (*create_pass)(const void *self, int32_t max_tokens, int32_t threads, void **pass);
    void (*free_pass)(void *pass);
    bool (*forward)(void *pass, const int32_t *tokens, int32_t num_tokens, attend_layer *attend,
                    void *context, const int32_t *rows, int32_t num_rows, float *logits);
    void (*free)(void *self);
};

/* Opens the model at a path: a directory with config.json, model*.safetensors and tokenizer.json;
 * a llama2.c checkpoint, whose tokenizer.bin lies beside it; or the embedded model's file. "" = the
 * embedded model. Complains when it fails. */
bool language_model_open(const char *path, struct language_model *model);
void language_model_close(struct language_model *model);

#endif
