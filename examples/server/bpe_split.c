/* SPDX-License-Identifier: MIT
 *
 * bpe_split.c: alternatives in the order of the patterns; the first that matches is the piece.
 *
 *   Llama 3, Qwen                          GPT-2
 *   (?i:'s|'t|'re|'ve|'m|'ll|'d)           's|'t|'re|'ve|'m|'ll|'d
 *   [^\r\n\p{L}\p{N}]?\p{L}+                ?\p{L}+
 *   \p{N}{1,3}, or \p{N}                    ?\p{N}+
 *    ?[^\s\p{L}\p{N}]+[\r\n]*               ?[^\s\p{L}\p{N}]+
 *   \s*[\r\n]+
 *   \s+(?!\S)                              \s+(?!\S)
 *   \s+                                    \s+ */
#include "bpe_split.h"

#include "unicode_kind.h"
#include "utf8.h"

#include <string.h>

struct character {
    uint32_t code;
    enum unicode_kind kind;
    size_t length;
};

struct text {
    const char *bytes;
    size_t num_bytes;
};

bool bpe_split_of(const char *pattern, enum bpe_split *split)
{
    static const struct {
        const char *pattern;
        enum bpe_split split;
    } known[] = {
        {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
         BPE_SPLIT_GPT2},
        {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
         "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
         BPE_SPLIT_LLAMA3},
        {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
         "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
         BPE_SPLIT_QWEN},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].pattern, pattern) == 0) {
            *split = known[i].split;
            return true;
        }
    }
    return false;
}

/* The character at `at`; of length 0 at the end. */
static struct character character_at(const struct text *text, size_t at)
{
    struct character c = {0, UNICODE_OTHER, 0};
    if (at >= text->num_bytes) {
        return c;
    }
    if (utf8_next(text->bytes + at, text->num_bytes - at, &c.length) != UTF8_WHOLE) {
        c.length = 1;
        return c;
    }
    c.code = utf8_code(text->bytes + at, c.length);
    c.kind = unicode_kind(c.code);
    return c;
}

/* The end of a run of up to `max` characters of one kind. */
static size_t run_of(const struct text *text, size_t at, enum unicode_kind kind, size_t max)
{
    for (struct character c = character_at(text, at); max > 0 && c.length > 0 && c.kind == kind;
         c = character_at(text, at)) {
        at += c.length;
        max--;
    }
    return at;
}

static bool is_line_end(const struct character *c)
{
    return c->length > 0 && (c->code == '\r' || c->code == '\n');
}

static size_t run_of_line_ends(const struct text *text, size_t at)
{
    for (struct character c = character_at(text, at); is_line_end(&c); c = character_at(text, at)) {
        at += c.length;
    }
    return at;
}

/* U+017F is a long s, which is an s where case does not count. */
static uint32_t lower(uint32_t code, bool any_case)
{
    if (any_case && code == 0x17f) {
        return 's';
    }
    return any_case && code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code;
}

static size_t contraction(const struct text *text, bool any_case)
{
    static const char pairs[3][2] = {{'r', 'e'}, {'v', 'e'}, {'l', 'l'}};
    if (text->bytes[0] != '\'') {
        return 0;
    }
    const struct character first = character_at(text, 1);
    const struct character second = character_at(text, 1 + first.length);
    const uint32_t a = lower(first.code, any_case), b = lower(second.code, any_case);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') {
        return 1 + first.length;
    }
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (a == (uint32_t)pairs[i][0] && b == (uint32_t)pairs[i][1]) {
            return 1 + first.length + second.length;
        }
    }
    return 0;
}

/* White space up to its last line end; 0 where it has none. */
static size_t space_to_line_end(const struct text *text)
{
    size_t end = 0, at = 0;
    for (struct character c = character_at(text, 0); c.length > 0 && c.kind == UNICODE_SPACE;
         c = character_at(text, at)) {
        at += c.length;
        end = is_line_end(&c) ? at : end;
    }
    return end;
}

/* White space, but for its last character where something follows and that is not all. */
static size_t space(const struct text *text)
{
    size_t at = 0, before = 0;
    for (struct character c = character_at(text, 0); c.length > 0 && c.kind == UNICODE_SPACE;
         c = character_at(text, at)) {
        before = at;
        at += c.length;
    }
    return at < text->num_bytes && before > 0 ? before : at;
}

static size_t next_gpt2(const struct text *text)
{
    const size_t short_form = contraction(text, false);
    if (short_form > 0) {
        return short_form;
    }
    const size_t start = text->bytes[0] == ' ' ? 1 : 0;
    const struct character c = character_at(text, start);
    return c.length > 0 && c.kind != UNICODE_SPACE ? run_of(text, start, c.kind, SIZE_MAX)
                                                   : space(text);
}

static size_t next_with_lines(const struct text *text, size_t max_digits)
{
    const size_t short_form = contraction(text, true);
    if (short_form > 0) {
        return short_form;
    }
    const struct character first = character_at(text, 0);
    if (first.kind == UNICODE_LETTER) {
        return run_of(text, 0, UNICODE_LETTER, SIZE_MAX);
    }
    if (first.kind == UNICODE_NUMBER) {
        return run_of(text, 0, UNICODE_NUMBER, max_digits);
    }
    if (!is_line_end(&first) && character_at(text, first.length).kind == UNICODE_LETTER) {
        return run_of(text, first.length, UNICODE_LETTER, SIZE_MAX);
    }
    const size_t start = text->bytes[0] == ' ' ? 1 : 0;
    const struct character c = character_at(text, start);
    if (c.length > 0 && c.kind == UNICODE_OTHER) {
        return run_of_line_ends(text, run_of(text, start, UNICODE_OTHER, SIZE_MAX));
    }
    const size_t lines = space_to_line_end(text);
    return lines > 0 ? lines : space(text);
}

size_t bpe_split_next(enum bpe_split split, const char *text, size_t num_bytes)
{
    const struct text whole = {text, num_bytes};
    switch (split) {
    case BPE_SPLIT_GPT2: return next_gpt2(&whole);
    case BPE_SPLIT_LLAMA3: return next_with_lines(&whole, 3);
    case BPE_SPLIT_QWEN: break;
    }
    return next_with_lines(&whole, 1);
}
