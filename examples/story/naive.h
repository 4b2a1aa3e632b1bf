/* SPDX-License-Identifier: MIT
 *
 * naive.h: the yardstick: one request after another, one token at a time, keys and values in two
 * plain f32 arrays, and nothing of the library. */
#ifndef STORY_NAIVE_H
#define STORY_NAIVE_H

#include "request.h"

/* Decodes all requests. window 0 = none; kept_prefix keys are seen beside it. *margin is the
 * smallest lead of a chosen token over the second; a result is certain where it is far above the
 * rounding of the sums. */
bool naive_decode(const struct model *model, int32_t window, int32_t kept_prefix,
                  struct request_list *requests, float *margin);

#endif
