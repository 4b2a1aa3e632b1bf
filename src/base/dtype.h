/* SPDX-License-Identifier: MIT
 *
 * dtype.h: kinds of element types. */
#ifndef PKV_BASE_DTYPE_H
#define PKV_BASE_DTYPE_H

#include "pagedkv/base.h"

/* A type of activations; a cache may hold others as well. */
static inline bool dtype_is_float(enum pkv_dtype dtype)
{
    return dtype == PKV_F32 || dtype == PKV_F16 || dtype == PKV_BF16;
}

#endif
