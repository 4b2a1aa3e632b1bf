/* SPDX-License-Identifier: MIT
 *
 * tokenizer.h: text to ids and back, by a llama2.c vocabulary or with an id for each byte. */
#ifndef SUPPORT_TOKENIZER_H
#define SUPPORT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The ids that begin and end a text. */
enum { TOKEN_BEGIN = 1, TOKEN_END = 2 };

/* What one id stands for; the bytes lie in the file's image. */
struct piece {
    const unsigned char *bytes;
    int32_t length;
    int32_t id;
    float score;
};

struct tokenizer {
    unsigned char *image; /* the file, or all bytes */
    struct piece *pieces; /* [vocab_size], by id */
    struct piece *sorted; /* [vocab_size], by bytes, then by id */
    int32_t vocab_size;
    int32_t max_length;
    int32_t begin_id;
    int32_t end_id;
    bool plain_bytes; /* id = byte, and no space before a text */
};

/* Reads a tokenizer file for a vocabulary of that size; it must end after the last token. */
bool tokenizer_load(const char *path, int32_t vocab_size, struct tokenizer *tokenizer);

/* For a model whose first 256 ids are the bytes. */
bool tokenizer_create_bytes(int32_t begin_id, int32_t end_id, struct tokenizer *tokenizer);

void tokenizer_free(struct tokenizer *tokenizer);

/* The id that begins a text, then the text's, in an array that the caller frees. Merges are
 * searched for anew after each merge: O(length^2) look-ups, for prompts of a page. */
bool tokenizer_encode(const struct tokenizer *tokenizer, const char *text, int32_t **ids,
                      int32_t *num_ids);

/* The byte that an id stands for by name, as <0x0A> does; -1 = it is its text. */
int32_t tokenizer_byte(const struct tokenizer *tokenizer, int32_t id);

/* Writes the text of the ids, begin and end left out. Control bytes that a terminal would obey are
 * left out. */
void tokenizer_print(const struct tokenizer *tokenizer, const int32_t *ids, int32_t num_ids,
                     FILE *out);

#endif
