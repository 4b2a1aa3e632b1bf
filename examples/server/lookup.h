/* SPDX-License-Identifier: MIT
 *
 * lookup.h: drafts for speculative decoding without a draft model: where the last few tokens of a
 * text have stood before, what followed them is proposed again (prompt lookup decoding). */
#ifndef SERVER_LOOKUP_H
#define SERVER_LOOKUP_H

#include <stdint.h>

/* Up to max_drafts tokens that may follow tokens [num_tokens]: those behind the latest earlier
 * place of its last three tokens, or else of its last two. Returns how many; O(num_tokens). */
int32_t lookup_drafts(const int32_t *tokens, int32_t num_tokens, int32_t max_drafts,
                      int32_t *drafts);

#endif
