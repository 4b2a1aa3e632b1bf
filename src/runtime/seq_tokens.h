/* SPDX-License-Identifier: MIT
 *
 * seq_tokens.h: the tokens that each sequence records, because the prefix index compares content
 * and not hashes: its prompt from admission on, then what its steps write. Present only with the
 * prefix cache; without rows nothing here may be called. The mutex is held. O(tokens given). */
#ifndef PKV_RUNTIME_SEQ_TOKENS_H
#define PKV_RUNTIME_SEQ_TOKENS_H

#include "base/build.h"
#include "base/hooks.h"
#include "pagedkv/cache.h"

/* What a sequence's row holds: tokens [0, length) are committed, [length, num_known) are its prompt
 * or written by the open step. Its extras are recorded from the first that is given on. */
struct seq_tokens {
    int32_t num_prompt; /* tokens of its admission, less what was written otherwise */
    int32_t num_known;
    bool has_extra;
};

/* The rows of all sequences: reserved address space, room for max_seq_len tokens a row. */
struct seq_tokens_rows {
    int32_t *ids;    /* [max_seqs][id_stride] */
    uint64_t *extra; /* [max_seqs][extra_stride] */
    size_t id_stride;
    size_t extra_stride;
    size_t id_bytes;
    size_t extra_bytes;
};

/* Bytes of the rows; false when they overflow. */
bool seq_tokens_size(int32_t max_seqs, int32_t max_seq_len, size_t *bytes);

/* Maps the rows. PKV_NO_MEMORY; free them in either case. */
enum pkv_status seq_tokens_map(struct seq_tokens_rows *rows, int32_t max_seqs, int32_t max_seq_len,
                               const struct pkv_hooks *hooks);
void seq_tokens_unmap(struct seq_tokens_rows *rows, const struct pkv_hooks *hooks);

static inline int32_t *seq_tokens_ids(const struct seq_tokens_rows *rows, int32_t seq)
{
    return rows->ids + (size_t)seq * rows->id_stride;
}

static inline uint64_t *seq_tokens_extra(const struct seq_tokens_rows *rows, int32_t seq)
{
    return rows->extra + (size_t)seq * rows->extra_stride;
}

/* Tokens [first, first + num_tokens) of a sequence, in place. */
struct pkv_prompt seq_tokens_at(const struct seq_tokens_rows *rows, int32_t seq,
                                const struct seq_tokens *of, int32_t first, int32_t num_tokens);

/* The first `count` tokens of both are the same; so many both have. */
bool seq_tokens_equal(const struct pkv_prompt *a, const struct pkv_prompt *b, int32_t count);

/* The first of `tokens`, which are to stand from position `first` on, that is not that of the
 * admission's prompt; -1 when there is none. */
int32_t seq_tokens_mismatch(const struct seq_tokens_rows *rows, int32_t seq,
                            const struct seq_tokens *of, int32_t first,
                            const struct pkv_prompt *tokens);

/* Records the prompt of an admission. */
void seq_tokens_admit(struct seq_tokens_rows *rows, int32_t seq, struct seq_tokens *of,
                      const struct pkv_prompt *prompt);

/* Records the tokens that the step at hand writes from `first` on. */
void seq_tokens_write(struct seq_tokens_rows *rows, int32_t seq, struct seq_tokens *of,
                      int32_t first, const struct pkv_prompt *tokens);

/* Token first + path[k], which the step at hand wrote, becomes token first + k; path [count]
 * ascends, path[k] >= k. Where this writes over the prompt, the sequence leaves it. */
void seq_tokens_move(struct seq_tokens_rows *rows, int32_t seq, struct seq_tokens *of,
                     int32_t first, const int32_t *path, int32_t count);

/* Prefetches the place of token `at`. */
static inline void seq_tokens_prefetch(const struct seq_tokens_rows *rows, int32_t seq, int32_t at)
{
    PKV_PREFETCH(seq_tokens_ids(rows, seq) + at);
}

/* The step is over, and left the sequence `length` tokens. */
static inline void seq_tokens_end_step(struct seq_tokens *of, int32_t length)
{
    of->num_known = of->num_prompt > length ? of->num_prompt : length;
}

/* The sequence was cut to `length`. */
void seq_tokens_cut(struct seq_tokens *of, int32_t length);

/* A fresh child has the first `at` tokens of its parent. */
void seq_tokens_fork(struct seq_tokens_rows *rows, int32_t parent, const struct seq_tokens *from,
                     int32_t child, struct seq_tokens *to, int32_t at);

#endif
