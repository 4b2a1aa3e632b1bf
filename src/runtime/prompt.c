/* SPDX-License-Identifier: MIT
 *
 * The check of a prompt, in the order of its fields. The ids themselves are not looked at: any
 * int32 is an id. */
#include "runtime/prompt.h"

#include "attn/token_range.h"
#include "base/error.h"
#include "base/sized.h"

/* Refuses range number `at`, which `what` completes. */
static enum pkv_status refuse_range(const struct prompt_ranges *ranges, int32_t at,
                                    const char *what)
{
    const struct pkv_token_range *range = &ranges->at[at];
    if (ranges->row == PROMPT_NO_ROW) {
        return INVALID("prompt->bidirectional[%d] = [%d, %d) %s", at, range->begin, range->end,
                       what);
    }
    return INVALID("row %d: bidirectional[%d] = [%d, %d) %s", ranges->row, ranges->first_index + at,
                   range->begin, range->end, what);
}

static bool has_extras(const struct prompt_ranges *ranges, const struct pkv_token_range *range)
{
    for (int32_t i = range->begin; i < range->end; i++) {
        if (ranges->extra == NULL || ranges->extra[i - ranges->past] == 0) {
            return false;
        }
    }
    return true;
}

enum pkv_status prompt_ranges_check(const struct prompt_ranges *ranges, bool for_reuse)
{
    const struct token_range_fault fault =
        token_ranges_check(ranges->at, ranges->count, ranges->past, ranges->length);
    if (fault.text != NULL) {
        return refuse_range(ranges, fault.at, fault.text);
    }
    for (int32_t i = 0; for_reuse && i < ranges->count; i++) {
        if (ranges->at[i].begin >= ranges->past && !has_extras(ranges, &ranges->at[i])) {
            return refuse_range(ranges, i,
                                "has a token whose token_extra is 0: the prefix cache could not "
                                "tell it from another range");
        }
    }
    return PKV_OK;
}

enum pkv_status prompt_take(const struct pkv_prompt *given, bool for_reuse,
                            struct pkv_prompt *prompt)
{
    const enum pkv_status status = sized_read("prompt", given, num_bidirectional, prompt);
    if (status != PKV_OK) {
        return status;
    }
    if (prompt->num_tokens < 0) {
        return INVALID("prompt->num_tokens = %d, below 0", prompt->num_tokens);
    }
    if (prompt->token_ids == NULL && prompt->num_tokens > 0) {
        return INVALID("prompt->token_ids is NULL, num_tokens = %d", prompt->num_tokens);
    }
    if (prompt->num_bidirectional < 0 ||
        (prompt->bidirectional == NULL && prompt->num_bidirectional > 0)) {
        return INVALID("prompt->bidirectional is NULL or num_bidirectional = %d below 0",
                       prompt->num_bidirectional);
    }
    const struct prompt_ranges ranges = {
        .at = prompt->bidirectional,
        .count = prompt->num_bidirectional,
        .row = PROMPT_NO_ROW,
        .length = prompt->num_tokens,
        .extra = prompt->token_extra,
    };
    return prompt_ranges_check(&ranges, for_reuse);
}
