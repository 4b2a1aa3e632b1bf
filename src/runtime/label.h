/* SPDX-License-Identifier: MIT
 *
 * label.h: the name that a cache's metrics bear: what may be one, and how the Prometheus text has
 * it. O(bytes), no memory. */
#ifndef PKV_RUNTIME_LABEL_H
#define PKV_RUNTIME_LABEL_H

#include "base/carve.h"
#include "pagedkv/cache.h"

/* What label_write writes at most, NUL included: every byte of a label escaped. */
#define LABEL_TEXT_BYTES                                                                           \
    (2 * (PKV_MAX_LABEL_BYTES + LABEL_MAX_TIER) + sizeof "{cache=\"\",tier=\"0\",tier_name=\"\"}")
#define LABEL_MAX_TIER 31 /* bytes of the name of a tier */
#define LABEL_NO_TIER (-1)

/* PKV_INVALID_ARGUMENT for what is no label; NULL is none, and sound. */
enum pkv_status label_check(const char *label);

/* A copy of a sound label; NULL for none, and while counting. */
char *label_copy(const char *label, struct carver *carver);

/* Writes what follows a metric's name: the labels cache, not for NULL, and tier and tier_name, not
 * for LABEL_NO_TIER; nothing without any. */
void label_write(const char *label, int32_t tier, const char *tier_name, char *text);

#endif
