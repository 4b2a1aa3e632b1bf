/* SPDX-License-Identifier: MIT
 *
 * A row of ids is always written; the row of extras only once a token of the sequence has one: then
 * those of the tokens known so far are zeroed first, since most sequences never touch theirs. */
#include "runtime/seq_tokens.h"

#include <string.h>

#include "alloc/mem.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/minmax.h"
#include "runtime/prompt.h"
#include "runtime/row_stride.h"

static bool row_bytes(int32_t max_seqs, int32_t max_seq_len, size_t entry_bytes, size_t *bytes)
{
    const size_t stride = row_stride_of(max_seq_len, entry_bytes);
    return checked_mul((size_t)max_seqs, stride, bytes) && checked_mul(*bytes, entry_bytes, bytes);
}

bool seq_tokens_size(int32_t max_seqs, int32_t max_seq_len, size_t *bytes)
{
    size_t extra = 0;
    return row_bytes(max_seqs, max_seq_len, sizeof(int32_t), bytes) &&
           row_bytes(max_seqs, max_seq_len, sizeof(uint64_t), &extra) &&
           checked_add(*bytes, extra, bytes);
}

enum pkv_status seq_tokens_map(struct seq_tokens_rows *rows, int32_t max_seqs, int32_t max_seq_len,
                               const struct pkv_hooks *hooks)
{
    size_t ids = 0;
    size_t extra = 0;
    if (!row_bytes(max_seqs, max_seq_len, sizeof(int32_t), &ids) ||
        !row_bytes(max_seqs, max_seq_len, sizeof(uint64_t), &extra)) {
        return INVALID("the sequences' tokens overflow size_t");
    }
    *rows = (struct seq_tokens_rows){
        .ids = mem_map_table(hooks, ids),
        .extra = mem_map_table(hooks, extra),
        .id_stride = row_stride_of(max_seq_len, sizeof(int32_t)),
        .extra_stride = row_stride_of(max_seq_len, sizeof(uint64_t)),
        .id_bytes = ids,
        .extra_bytes = extra,
    };
    return rows->ids != NULL && rows->extra != NULL
               ? PKV_OK
               : refuse(PKV_NO_MEMORY, "no memory for %zu bytes of tokens", ids + extra);
}

void seq_tokens_unmap(struct seq_tokens_rows *rows, const struct pkv_hooks *hooks)
{
    mem_unmap(hooks, rows->ids, rows->id_bytes, PKV_MAP_TABLES);
    mem_unmap(hooks, rows->extra, rows->extra_bytes, PKV_MAP_TABLES);
}

struct pkv_prompt seq_tokens_at(const struct seq_tokens_rows *rows, int32_t seq,
                                const struct seq_tokens *of, int32_t first, int32_t num_tokens)
{
    return (struct pkv_prompt){
        .size = sizeof(struct pkv_prompt),
        .token_ids = seq_tokens_ids(rows, seq) + first,
        .token_extra = of->has_extra ? seq_tokens_extra(rows, seq) + first : NULL,
        .num_tokens = num_tokens,
    };
}

bool seq_tokens_equal(const struct pkv_prompt *a, const struct pkv_prompt *b, int32_t count)
{
    if (memcmp(a->token_ids, b->token_ids, (size_t)count * sizeof *a->token_ids) != 0) {
        return false;
    }
    for (int32_t i = 0; (a->token_extra != NULL || b->token_extra != NULL) && i < count; i++) {
        if (prompt_extra(a, i) != prompt_extra(b, i)) {
            return false;
        }
    }
    return true;
}

int32_t seq_tokens_mismatch(const struct seq_tokens_rows *rows, int32_t seq,
                            const struct seq_tokens *of, int32_t first,
                            const struct pkv_prompt *tokens)
{
    const int32_t count = min_i32(of->num_prompt - first, tokens->num_tokens);
    const struct pkv_prompt prompt = seq_tokens_at(rows, seq, of, first, count);
    for (int32_t i = 0; i < count; i++) {
        if (tokens->token_ids[i] != prompt.token_ids[i] ||
            prompt_extra(tokens, i) != prompt_extra(&prompt, i)) {
            return i;
        }
    }
    return -1;
}

static void record(struct seq_tokens_rows *rows, int32_t seq, struct seq_tokens *of, int32_t first,
                   const struct pkv_prompt *tokens)
{
    const size_t count = (size_t)tokens->num_tokens;
    if (count == 0) {
        return;
    }
    memcpy(seq_tokens_ids(rows, seq) + first, tokens->token_ids, count * sizeof *tokens->token_ids);
    uint64_t *extra = seq_tokens_extra(rows, seq);
    if (tokens->token_extra != NULL && !of->has_extra) {
        memset(extra, 0, (size_t)of->num_known * sizeof *extra);
        of->has_extra = true;
    }
    if (tokens->token_extra != NULL) {
        memcpy(extra + first, tokens->token_extra, count * sizeof *extra);
    } else if (of->has_extra) {
        memset(extra + first, 0, count * sizeof *extra);
    }
}

void seq_tokens_admit(struct seq_tokens_rows *rows, int32_t seq, struct seq_tokens *of,
                      const struct pkv_prompt *prompt)
{
    of->has_extra = false;
    record(rows, seq, of, 0, prompt);
    of->num_prompt = prompt->num_tokens;
    of->num_known = prompt->num_tokens;
}

void seq_tokens_write(struct seq_tokens_rows *rows, int32_t seq, struct seq_tokens *of,
                      int32_t first, const struct pkv_prompt *tokens)
{
    const int32_t end = first + tokens->num_tokens;
    if (tokens->num_tokens == 1 && first >= of->num_prompt && tokens->token_extra == NULL &&
        !of->has_extra) {
        seq_tokens_ids(rows, seq)[first] = tokens->token_ids[0]; /* most rows of most steps */
        of->num_known = end;
        return;
    }
    const int32_t known = min_i32(of->num_prompt, end) - first;
    const struct pkv_prompt before = seq_tokens_at(rows, seq, of, first, known);
    if (known > 0 && !seq_tokens_equal(&before, tokens, known)) {
        of->num_prompt = first; /* the sequence leaves its prompt here */
    }
    record(rows, seq, of, first, tokens);
    of->num_known = max_i32(of->num_prompt, end);
}

void seq_tokens_move(struct seq_tokens_rows *rows, int32_t seq, struct seq_tokens *of,
                     int32_t first, const int32_t *path, int32_t count)
{
    int32_t *ids = seq_tokens_ids(rows, seq) + first;
    uint64_t *extra = of->has_extra ? seq_tokens_extra(rows, seq) + first : NULL;
    for (int32_t k = 0; k < count; k++) {
        if (path[k] == k) {
            continue;
        }
        of->num_prompt = min_i32(of->num_prompt, first + k);
        ids[k] = ids[path[k]];
        if (extra != NULL) {
            extra[k] = extra[path[k]];
        }
    }
}

void seq_tokens_cut(struct seq_tokens *of, int32_t length)
{
    of->num_prompt = min_i32(of->num_prompt, length);
    of->num_known = length;
}

void seq_tokens_fork(struct seq_tokens_rows *rows, int32_t parent, const struct seq_tokens *from,
                     int32_t child, struct seq_tokens *to, int32_t at)
{
    const struct pkv_prompt tokens = seq_tokens_at(rows, parent, from, 0, at);
    record(rows, child, to, 0, &tokens);
    to->num_known = at;
}
