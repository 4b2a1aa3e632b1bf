/* SPDX-License-Identifier: MIT
 *
 * The check of a prompt, in the order of its fields. The ids themselves are
 * not looked at: any int32 is an id. O(1). */
#include "runtime/prompt.h"

#include "base/error.h"

enum pkv_status prompt_check(const struct pkv_prompt *prompt)
{
    if (prompt == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "prompt is NULL");
    }
    if (prompt->size != sizeof *prompt) {
        return refuse(PKV_INVALID_ARGUMENT, "prompt->size = %zu, not %zu", prompt->size,
                      sizeof *prompt);
    }
    if (prompt->num_tokens < 0) {
        return refuse(PKV_INVALID_ARGUMENT, "prompt->num_tokens = %d, below 0", prompt->num_tokens);
    }
    if (prompt->token_ids == NULL && prompt->num_tokens > 0) {
        return refuse(PKV_INVALID_ARGUMENT, "prompt->token_ids is NULL, num_tokens = %d",
                      prompt->num_tokens);
    }
    return PKV_OK;
}
