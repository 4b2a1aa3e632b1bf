/* SPDX-License-Identifier: MIT
 *
 * prompt.h: the check of a prompt that a caller passes: to admission, to a probe, to a pin. What is
 * checked is the struct itself; whether the prompt fits a cache is the question of those calls. */
#ifndef PKV_RUNTIME_PROMPT_H
#define PKV_RUNTIME_PROMPT_H

#include "pagedkv/cache.h"

/* PKV_INVALID_ARGUMENT names what is wrong. A prompt of no tokens is sound. O(1). */
enum pkv_status prompt_check(const struct pkv_prompt *prompt);

#endif
