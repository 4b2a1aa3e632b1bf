/* SPDX-License-Identifier: MIT
 *
 * error.h: refusing with a reason. The text is thread-local, the one mutable global of the library.
 */
#ifndef PKV_BASE_ERROR_H
#define PKV_BASE_ERROR_H

#include "pagedkv/base.h"

/* Records the last error of this thread and returns status, so that a refusal is one line:
 *     return refuse(PKV_NO_MEMORY, "no memory for %d rows", num_rows);  */
enum pkv_status refuse(enum pkv_status status, const char *format, ...) PKV_PRINTF(2, 3);

/* The same for what most refusals are, an argument that may not be as it is:
 *     return INVALID("slot_ids[%d] = %d, outside [0, %d)", i, id, max);  */
#define INVALID(...) refuse(PKV_INVALID_ARGUMENT, __VA_ARGS__)

/* Invariants of our own, never the caller's mistakes: on in test builds, nothing in release. */
#if defined(PKV_ASSERTIONS)
#include <assert.h>
#define pkv_assert(condition) assert(condition)
#else
#define pkv_assert(condition) ((void)sizeof((condition) ? 1 : 0))
#endif

#endif
