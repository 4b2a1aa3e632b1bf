/* SPDX-License-Identifier: MIT
 *
 * check_cache.h: the caches of a raw call. */
#ifndef PKV_ATTN_CHECK_CACHE_H
#define PKV_ATTN_CHECK_CACHE_H

#include "attn/call.h"

/* Fills call's past, present and cache; its shape and strides are there. PKV_INVALID_ARGUMENT when
 * a view's geometry is not the call's, strides are below widths, or sizes overflow. O(1). */
enum pkv_status check_caches(const struct pkv_gqa_args *args, struct call *call);

/* The strides of a resolved view's keys, or values, and that their bytes do not overflow. name is
 * the view's. PKV_INVALID_ARGUMENT. */
enum pkv_status check_view_half(const struct pkv_kv_view *view, const char *name, bool is_key);

#endif
