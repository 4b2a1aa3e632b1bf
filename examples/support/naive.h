/* SPDX-License-Identifier: MIT
 *
 * naive.h: the yardstick: one request after another, one token at a time, keys and values in two
 * plain f32 arrays, and nothing of the library. */
#ifndef SUPPORT_NAIVE_H
#define SUPPORT_NAIVE_H

#include "request.h"

/* Decodes all requests. *margin is the smallest lead of a chosen token over the second; a result is
 * certain where it is far above the rounding of the sums. Complains about a model that norms heads
 * or turns other pairs of channels than adjacent ones. */
bool naive_decode(const struct model *model, struct request_list *requests, float *margin);

#endif
