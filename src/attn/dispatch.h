/* SPDX-License-Identifier: MIT
 *
 * dispatch.h: which table of kernels a workspace uses. */
#ifndef PKV_ATTN_DISPATCH_H
#define PKV_ATTN_DISPATCH_H

#include "attn/kernels.h"

/* The table of a level, or for PKV_ISA_BEST the best one; NULL when this CPU or build lacks it. */
const struct kernels *dispatch_kernels(enum pkv_isa isa);

#endif
