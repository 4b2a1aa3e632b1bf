/* SPDX-License-Identifier: MIT
 *
 * bpe.c: a piece is a list of symbols, linked both ways, and a heap of the merges that are possible
 * in it, by rank and then from the left. A merge that was taken out of the heap counts only if its
 * two symbols still stand side by side; each adds two at most, so the heap has room for 2n. */
#include "bpe.h"

#include "report.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = -1, MIN_SLOTS = 16 };

/* ---- tables --------------------------------------------------------------------------------- */

static uint32_t hash_bytes(const char *bytes, size_t num_bytes)
{
    uint32_t hash = 2166136261U; /* FNV-1a */
    for (size_t i = 0; i < num_bytes; i++) {
        hash = (hash ^ (unsigned char)bytes[i]) * 16777619U;
    }
    return hash ^ hash >> 15;
}

static uint32_t hash_pair(int32_t left, int32_t right)
{
    const uint64_t both = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    return (uint32_t)(both * 0x9e3779b97f4a7c15U >> 32);
}

/* Twice as many as there are entries, or more. */
static uint32_t slots_for(int32_t count)
{
    uint32_t slots = MIN_SLOTS;
    while (slots < 2 * (uint32_t)count) {
        slots *= 2;
    }
    return slots;
}

bool bpe_create(int32_t vocab_size, int32_t num_merges, struct bpe *bpe)
{
    memset(bpe, 0, sizeof *bpe);
    bpe->vocab_size = vocab_size;
    bpe->token_slots = slots_for(vocab_size);
    bpe->merge_slots = slots_for(num_merges);
    bpe->tokens = calloc((size_t)vocab_size, sizeof *bpe->tokens);
    bpe->by_bytes = malloc(bpe->token_slots * sizeof *bpe->by_bytes);
    bpe->merges = malloc(bpe->merge_slots * sizeof *bpe->merges);
    if (bpe->tokens == NULL || bpe->by_bytes == NULL || bpe->merges == NULL) {
        bpe_free(bpe);
        return complain("out of memory for a vocabulary of %d", vocab_size);
    }
    memset(bpe->by_bytes, NONE, bpe->token_slots * sizeof *bpe->by_bytes);
    memset(bpe->merges, NONE, bpe->merge_slots * sizeof *bpe->merges);
    memset(bpe->of_byte, NONE, sizeof bpe->of_byte);
    return true;
}

void bpe_free(struct bpe *bpe)
{
    for (int32_t i = 0; bpe->tokens != NULL && i < bpe->vocab_size; i++) {
        free(bpe->tokens[i].bytes);
    }
    free(bpe->tokens);
    free(bpe->by_bytes);
    free(bpe->merges);
    memset(bpe, 0, sizeof *bpe);
}

/* The slot of these bytes, or the free one where they would be. */
static int32_t *slot_of(const struct bpe *bpe, const char *bytes, size_t num_bytes)
{
    const uint32_t mask = bpe->token_slots - 1;
    uint32_t i = hash_bytes(bytes, num_bytes) & mask;
    for (; bpe->by_bytes[i] != NONE; i = (i + 1) & mask) {
        const struct bpe_token *token = &bpe->tokens[bpe->by_bytes[i]];
        if (token->num_bytes == num_bytes && memcmp(token->bytes, bytes, num_bytes) == 0) {
            break;
        }
    }
    return &bpe->by_bytes[i];
}

bool bpe_add_token(struct bpe *bpe, int32_t id, const char *bytes, size_t num_bytes, bool special)
{
    struct bpe_token *token = &bpe->tokens[id];
    token->bytes = malloc(num_bytes + 1);
    if (token->bytes == NULL) {
        return complain("out of memory for a vocabulary");
    }
    memcpy(token->bytes, bytes, num_bytes);
    token->bytes[num_bytes] = '\0';
    token->num_bytes = num_bytes;
    token->special = special;
    if (special || num_bytes == 0) {
        return true;
    }
    if (num_bytes > (size_t)bpe->max_token_bytes) {
        bpe->max_token_bytes = (int32_t)num_bytes;
    }
    int32_t *slot = slot_of(bpe, bytes, num_bytes);
    if (*slot == NONE) {
        *slot = id;
        if (num_bytes == 1) {
            bpe->of_byte[(unsigned char)bytes[0]] = id;
        }
    }
    return true;
}

int32_t bpe_find(const struct bpe *bpe, const char *bytes, size_t num_bytes)
{
    return *slot_of(bpe, bytes, num_bytes);
}

static struct bpe_merge *merge_of(const struct bpe *bpe, int32_t left, int32_t right)
{
    const uint32_t mask = bpe->merge_slots - 1;
    uint32_t i = hash_pair(left, right) & mask;
    while (bpe->merges[i].rank != NONE &&
           (bpe->merges[i].left != left || bpe->merges[i].right != right)) {
        i = (i + 1) & mask;
    }
    return &bpe->merges[i];
}

void bpe_add_merge(struct bpe *bpe, int32_t left, int32_t right, int32_t rank, int32_t result)
{
    struct bpe_merge *merge = merge_of(bpe, left, right);
    if (merge->rank == NONE) {
        *merge = (struct bpe_merge){left, right, rank, result};
    }
}

/* ---- one piece ------------------------------------------------------------------------------ */

struct symbol {
    int32_t token; /* NONE: it went into the one before it */
    int32_t before, behind;
};

struct candidate {
    int32_t rank;
    int32_t at; /* the left symbol */
};

struct piece {
    const struct bpe *bpe;
    struct symbol *symbols;
    struct candidate *heap;
    int32_t num_symbols, num_heap;
};

static bool comes_first(struct candidate a, struct candidate b)
{
    return a.rank < b.rank || (a.rank == b.rank && a.at < b.at);
}

static void push(struct piece *p, struct candidate added)
{
    int32_t i = p->num_heap;
    p->num_heap++;
    while (i > 0 && comes_first(added, p->heap[(i - 1) / 2])) {
        p->heap[i] = p->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    p->heap[i] = added;
}

static struct candidate pop(struct piece *p)
{
    const struct candidate first = p->heap[0];
    p->num_heap--;
    const struct candidate last = p->heap[p->num_heap];
    int32_t i = 0;
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child + 1 < p->num_heap && comes_first(p->heap[child + 1], p->heap[child])) {
            child++;
        }
        if (child >= p->num_heap || !comes_first(p->heap[child], last)) {
            break;
        }
        p->heap[i] = p->heap[child];
        i = child;
    }
    p->heap[i] = last;
    return first;
}

/* The merge of a symbol with the one behind it; of rank NONE where there is none. */
static const struct bpe_merge *merge_at(const struct piece *p, int32_t at)
{
    static const struct bpe_merge none = {NONE, NONE, NONE, NONE};
    const struct symbol *left = &p->symbols[at];
    if (left->token == NONE || left->behind == NONE) {
        return &none;
    }
    return merge_of(p->bpe, left->token, p->symbols[left->behind].token);
}

static void offer(struct piece *p, int32_t at)
{
    const int32_t rank = at != NONE ? merge_at(p, at)->rank : NONE;
    if (rank != NONE) {
        push(p, (struct candidate){rank, at});
    }
}

static void join(struct piece *p, int32_t at, int32_t result)
{
    struct symbol *left = &p->symbols[at];
    struct symbol *right = &p->symbols[left->behind];
    left->token = result;
    right->token = NONE;
    left->behind = right->behind;
    if (left->behind != NONE) {
        p->symbols[left->behind].before = at;
    }
    offer(p, left->before);
    offer(p, at);
}

static void merge_all(struct piece *p)
{
    for (int32_t i = 0; i + 1 < p->num_symbols; i++) {
        offer(p, i);
    }
    while (p->num_heap > 0) {
        const struct candidate next = pop(p);
        const struct bpe_merge *merge = merge_at(p, next.at);
        if (merge->rank == next.rank) {
            join(p, next.at, merge->result);
        }
    }
}

static void spell(struct piece *p, const char *bytes, size_t num_bytes)
{
    p->num_symbols = (int32_t)num_bytes;
    p->num_heap = 0;
    for (int32_t i = 0; i < p->num_symbols; i++) {
        p->symbols[i] = (struct symbol){p->bpe->of_byte[(unsigned char)bytes[i]], i - 1,
                                        i + 1 < p->num_symbols ? i + 1 : NONE};
    }
}

/* Its tokens; how many they are is returned. */
static int32_t encode_piece(struct piece *p, const char *bytes, size_t num_bytes, int32_t *tokens)
{
    if (p->bpe->whole_pieces || num_bytes == 1) {
        tokens[0] = bpe_find(p->bpe, bytes, num_bytes);
        if (tokens[0] != NONE) {
            return 1;
        }
    }
    int32_t count = 0;
    spell(p, bytes, num_bytes);
    merge_all(p);
    for (int32_t i = 0; i != NONE; i = p->symbols[i].behind) {
        tokens[count] = p->symbols[i].token;
        count++;
    }
    return count;
}

/* ---- texts ---------------------------------------------------------------------------------- */

static size_t longest_piece(const struct bpe *bpe, const char *text, size_t num_bytes)
{
    size_t longest = 0;
    for (size_t at = 0; at < num_bytes;) {
        const size_t length = bpe_split_next(bpe->split, text + at, num_bytes - at);
        longest = length > longest ? length : longest;
        at += length;
    }
    return longest;
}

bool bpe_encode(const struct bpe *bpe, const char *text, size_t num_bytes, int32_t **tokens,
                int32_t *num_tokens)
{
    if (num_bytes > INT32_MAX / 2 || *num_tokens > INT32_MAX / 2) {
        return complain("a text of %zu bytes is too long", num_bytes);
    }
    const size_t room = (size_t)*num_tokens + num_bytes + 1;
    int32_t *grown = realloc(*tokens, room * sizeof *grown);
    if (grown != NULL) {
        *tokens = grown;
    }
    const size_t longest = longest_piece(bpe, text, num_bytes) + 1;
    struct piece piece = {.bpe = bpe,
                          .symbols = malloc(longest * sizeof *piece.symbols),
                          .heap = malloc(2 * longest * sizeof *piece.heap)};
    const bool ok = grown != NULL && piece.symbols != NULL && piece.heap != NULL;
    for (size_t at = 0; ok && at < num_bytes;) {
        const size_t length = bpe_split_next(bpe->split, text + at, num_bytes - at);
        *num_tokens += encode_piece(&piece, text + at, length, *tokens + *num_tokens);
        at += length;
    }
    free(piece.symbols);
    free(piece.heap);
    return ok || complain("out of memory for a text of %zu bytes", num_bytes);
}
