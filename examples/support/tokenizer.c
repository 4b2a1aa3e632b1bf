/* SPDX-License-Identifier: MIT
 *
 * tokenizer.c: the file is int32 longest token, then per token f32 score, int32 length, bytes.
 * Encoding: a space before the text, one token a character, then the adjacent pair whose union has
 * the best score becomes one token, until no pair is a token. A character without a token becomes
 * its bytes, id = byte + 3. */
#include "tokenizer.h"

#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE = 1 << 28, MAX_PIECE = 1 << 16, FIRST_BYTE_ID = 3 };

static int compare_bytes(const struct piece *a, const struct piece *b)
{
    const int32_t shorter = a->length < b->length ? a->length : b->length;
    const int order = memcmp(a->bytes, b->bytes, (size_t)shorter);
    if (order != 0) {
        return order;
    }
    return (a->length > b->length) - (a->length < b->length);
}

static int compare_pieces(const void *left, const void *right)
{
    const struct piece *a = left;
    const struct piece *b = right;
    const int order = compare_bytes(a, b);
    if (order != 0) {
        return order;
    }
    return (a->id > b->id) - (a->id < b->id);
}

/* The lowest id with these bytes, or -1. */
static int32_t find(const struct tokenizer *t, const unsigned char *bytes, int32_t length)
{
    const struct piece wanted = {.bytes = bytes, .length = length};
    int32_t low = 0;
    int32_t high = t->vocab_size;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (compare_bytes(&t->sorted[middle], &wanted) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const bool found = low < t->vocab_size && compare_bytes(&t->sorted[low], &wanted) == 0;
    return found ? t->sorted[low].id : -1;
}

static bool parse_piece(const char *path, struct tokenizer *t, int32_t id, size_t num_bytes,
                        size_t *at)
{
    if (num_bytes - *at < 8) {
        return complain("%s: ends at token %d of %d", path, id, t->vocab_size);
    }
    const float score = load_f32(t->image + *at);
    const int32_t length = load_i32(t->image + *at + 4);
    *at += 8;
    if (isnan(score)) {
        return complain("%s: the score of token %d is not a number", path, id);
    }
    if (length < 0 || length > t->max_length) {
        return complain("%s: token %d has length %d, outside [0, %d]", path, id, length,
                        t->max_length);
    }
    if (num_bytes - *at < (size_t)length) {
        return complain("%s: ends inside token %d of %d", path, id, t->vocab_size);
    }
    t->pieces[id] =
        (struct piece){.bytes = t->image + *at, .length = length, .id = id, .score = score};
    *at += (size_t)length;
    return true;
}

static bool parse(const char *path, struct tokenizer *t, size_t num_bytes)
{
    if (num_bytes < 4) {
        return complain("%s: %zu bytes are no tokenizer", path, num_bytes);
    }
    t->max_length = load_i32(t->image);
    if (t->max_length < 1 || t->max_length > MAX_PIECE) {
        return complain("%s: the longest token has length %d, outside [1, %d]", path, t->max_length,
                        MAX_PIECE);
    }
    const size_t count = (size_t)t->vocab_size;
    if ((num_bytes - 4) / 8 < count) {
        return complain("%s: %zu bytes cannot hold %d tokens", path, num_bytes, t->vocab_size);
    }
    t->pieces = calloc(count, sizeof *t->pieces);
    t->sorted = calloc(count, sizeof *t->sorted);
    if (t->pieces == NULL || t->sorted == NULL) {
        return complain("%s: out of memory for %d tokens", path, t->vocab_size);
    }
    size_t at = 4;
    for (int32_t id = 0; id < t->vocab_size; id++) {
        if (!parse_piece(path, t, id, num_bytes, &at)) {
            return false;
        }
    }
    if (at != num_bytes) {
        return complain("%s: %zu bytes follow the last of %d tokens", path, num_bytes - at,
                        t->vocab_size);
    }
    memcpy(t->sorted, t->pieces, count * sizeof *t->sorted);
    qsort(t->sorted, count, sizeof *t->sorted, compare_pieces);
    return true;
}

bool tokenizer_load(const char *path, int32_t vocab_size, struct tokenizer *tokenizer)
{
    memset(tokenizer, 0, sizeof *tokenizer);
    tokenizer->vocab_size = vocab_size;
    tokenizer->begin_id = TOKEN_BEGIN;
    tokenizer->end_id = TOKEN_END;
    size_t num_bytes = 0;
    if (!read_file(path, MAX_FILE, &tokenizer->image, &num_bytes)) {
        return false;
    }
    if (parse(path, tokenizer, num_bytes)) {
        return true;
    }
    tokenizer_free(tokenizer);
    return false;
}

bool tokenizer_create_bytes(int32_t begin_id, int32_t end_id, struct tokenizer *tokenizer)
{
    const int32_t last = begin_id > end_id ? begin_id : end_id;
    const int32_t vocab_size = last < 256 ? 256 : last + 1;
    *tokenizer = (struct tokenizer){.vocab_size = vocab_size,
                                    .max_length = 1,
                                    .begin_id = begin_id,
                                    .end_id = end_id,
                                    .plain_bytes = true};
    tokenizer->image = malloc(256);
    tokenizer->pieces = calloc((size_t)vocab_size, sizeof *tokenizer->pieces);
    if (tokenizer->image == NULL || tokenizer->pieces == NULL) {
        tokenizer_free(tokenizer);
        return complain("out of memory for a vocabulary of bytes");
    }
    for (int32_t id = 0; id < vocab_size; id++) {
        tokenizer->pieces[id].id = id;
    }
    for (int32_t byte = 0; byte < 256; byte++) {
        tokenizer->image[byte] = (unsigned char)byte;
        tokenizer->pieces[byte].bytes = tokenizer->image + byte;
        tokenizer->pieces[byte].length = 1;
    }
    return true;
}

void tokenizer_free(struct tokenizer *tokenizer)
{
    free(tokenizer->image);
    free(tokenizer->pieces);
    free(tokenizer->sorted);
    memset(tokenizer, 0, sizeof *tokenizer);
}

/* The length of the UTF-8 character at text: its first byte and up to three that continue it. */
static int32_t character_length(const unsigned char *text)
{
    int32_t length = 1;
    while (length < 4 && (text[length] & 0xc0) == 0x80) {
        length++;
    }
    return length;
}

/* Appends the character's id, or its bytes'. */
static bool append_character(const struct tokenizer *t, const unsigned char *text, int32_t length,
                             int32_t *ids, int32_t *num_ids)
{
    const int32_t whole = find(t, text, length);
    if (whole >= 0) {
        ids[(*num_ids)++] = whole;
        return true;
    }
    for (int32_t i = 0; i < length; i++) {
        const int32_t id = text[i] + FIRST_BYTE_ID;
        if (id >= t->vocab_size) {
            return complain("--prompt: byte %d has no token in a vocabulary of %d", text[i],
                            t->vocab_size);
        }
        ids[(*num_ids)++] = id;
    }
    return true;
}

/* The pair to merge next: its first index, and the id of the union; false when there is none. */
static bool best_pair(const struct tokenizer *t, const int32_t *ids, int32_t num_ids,
                      unsigned char *joined, int32_t *index, int32_t *id)
{
    float best = 0;
    bool found = false;
    for (int32_t i = 0; i + 1 < num_ids; i++) {
        const struct piece *a = &t->pieces[ids[i]];
        const struct piece *b = &t->pieces[ids[i + 1]];
        if (a->length + b->length > t->max_length) {
            continue;
        }
        memcpy(joined, a->bytes, (size_t)a->length);
        memcpy(joined + a->length, b->bytes, (size_t)b->length);
        const int32_t whole = find(t, joined, a->length + b->length);
        if (whole < 0 || (found && t->pieces[whole].score <= best)) {
            continue;
        }
        found = true;
        best = t->pieces[whole].score;
        *index = i;
        *id = whole;
    }
    return found;
}

/* ids has room for the begin token, the space and one token a byte. */
static bool encode(const struct tokenizer *t, const char *text, unsigned char *joined, int32_t *ids,
                   int32_t *num_ids)
{
    const unsigned char *at = (const unsigned char *)text;
    static const unsigned char space[] = " ";
    int32_t count = 0;
    if (*at != '\0' && !append_character(t, space, 1, ids, &count)) {
        return false;
    }
    while (*at != '\0') {
        const int32_t length = character_length(at);
        if (!append_character(t, at, length, ids, &count)) {
            return false;
        }
        at += length;
    }
    int32_t index = 0;
    int32_t id = 0;
    while (best_pair(t, ids, count, joined, &index, &id)) {
        ids[index] = id;
        memmove(ids + index + 1, ids + index + 2, (size_t)(count - index - 2) * sizeof *ids);
        count--;
    }
    *num_ids = count;
    return true;
}

bool tokenizer_encode(const struct tokenizer *tokenizer, const char *text, int32_t **ids,
                      int32_t *num_ids)
{
    const size_t length = strlen(text);
    if (length > MAX_PIECE) {
        return complain("--prompt: a text of %zu bytes is longer than %d", length, MAX_PIECE);
    }
    int32_t *list = malloc((length + 2) * sizeof *list);
    unsigned char *joined = malloc((size_t)tokenizer->max_length);
    if (list == NULL || joined == NULL) {
        free(list);
        free(joined);
        return complain("out of memory for a prompt of %zu bytes", length);
    }
    int32_t count = 0;
    list[0] = tokenizer->begin_id;
    const bool ok = tokenizer->plain_bytes || encode(tokenizer, text, joined, list + 1, &count);
    free(joined);
    if (!ok) {
        free(list);
        return false;
    }
    for (size_t i = 0; tokenizer->plain_bytes && i < length; i++) {
        list[++count] = (unsigned char)text[i];
    }
    *ids = list;
    *num_ids = count + 1;
    return true;
}

static void print_byte(unsigned char byte, FILE *out)
{
    if (byte >= ' ' ? byte != 0x7f : byte == '\n' || byte == '\t') {
        fputc(byte, out);
    }
}

/* The byte that a piece like <0x0A> names, or -1. */
static int32_t named_byte(const struct piece *piece)
{
    char name[8] = {0};
    unsigned int byte = 0;
    char close = 0;
    if (piece->length != 6) {
        return -1;
    }
    memcpy(name, piece->bytes, 6);
    if (sscanf(name, "<0x%2X%c", &byte, &close) != 2 || close != '>') {
        return -1;
    }
    return (int32_t)byte;
}

int32_t tokenizer_byte(const struct tokenizer *tokenizer, int32_t id)
{
    return named_byte(&tokenizer->pieces[id]);
}

static void print_piece(const struct piece *piece, bool after_begin, FILE *out)
{
    const int32_t byte = named_byte(piece);
    if (byte >= 0) {
        print_byte((unsigned char)byte, out);
        return;
    }
    const bool drop_space = after_begin && piece->length > 0 && piece->bytes[0] == ' ';
    for (int32_t i = drop_space ? 1 : 0; i < piece->length; i++) {
        print_byte(piece->bytes[i], out);
    }
}

void tokenizer_print(const struct tokenizer *tokenizer, const int32_t *ids, int32_t num_ids,
                     FILE *out)
{
    for (int32_t i = 0; i < num_ids; i++) {
        const bool begins = i > 0 && ids[i - 1] == tokenizer->begin_id;
        if (ids[i] != tokenizer->begin_id && ids[i] != tokenizer->end_id) {
            print_piece(&tokenizer->pieces[ids[i]], begins && !tokenizer->plain_bytes, out);
        }
    }
}
