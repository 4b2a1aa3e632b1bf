/* SPDX-License-Identifier: MIT
 *
 * prompt.h: reads and checks a prompt that a caller passes: to admission, to a probe, to a pin; and
 * the bidirectional ranges of a prompt or of a row of a step. What is checked is the struct itself;
 * whether the prompt fits a cache is the question of those calls. */
#ifndef PKV_RUNTIME_PROMPT_H
#define PKV_RUNTIME_PROMPT_H

#include "pagedkv/cache.h"

#define PROMPT_NO_ROW (-1)

/* The extra of token i. */
static inline uint64_t prompt_extra(const struct pkv_prompt *prompt, int32_t i)
{
    return prompt->token_extra != NULL ? prompt->token_extra[i] : 0;
}

/* Ranges of tokens [past, length), as they are named when they are refused. */
struct prompt_ranges {
    const struct pkv_token_range *at;
    int32_t count;
    int32_t first_index; /* of at[0] in the caller's list */
    int32_t row;         /* of a batch; PROMPT_NO_ROW */
    int32_t past;
    int32_t length;
    const uint64_t *extra; /* [length - past]; NULL = all 0 */
};

/* Reads it into *prompt. PKV_INVALID_ARGUMENT names what is wrong; PKV_UNSUPPORTED for a field of a
 * later version. A prompt of no tokens is sound. for_reuse: its tokens are looked up in a prefix
 * cache. O(ranges and their tokens). */
enum pkv_status prompt_take(const struct pkv_prompt *given, bool for_reuse,
                            struct pkv_prompt *prompt);

/* The same of ranges. for_reuse: each of their tokens needs an extra, because two ranges of equal
 * ids but other tokens behind them have other keys. */
enum pkv_status prompt_ranges_check(const struct prompt_ranges *ranges, bool for_reuse);

#endif
