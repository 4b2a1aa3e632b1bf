/* SPDX-License-Identifier: MIT
 *
 * check_pointers.h: pointers that a run needs are there, and its outputs overlap neither inputs nor
 * caches nor each other. */
#ifndef PKV_ATTN_CHECK_POINTERS_H
#define PKV_ATTN_CHECK_POINTERS_H

#include "attn/call.h"
#include "attn/gqa_layer.h"

/* Of a raw call that is checked in all else. PKV_INVALID_ARGUMENT. O(1). */
enum pkv_status check_call_pointers(const struct call *call);

/* Of a layer whose caches and constants are the library's own. PKV_INVALID_ARGUMENT. O(1). */
enum pkv_status check_layer_pointers(const struct gqa_layer *layer, const struct gqa_shape *shape,
                                     int32_t num_tokens);

#endif
