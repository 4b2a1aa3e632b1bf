/* SPDX-License-Identifier: MIT
 *
 * cpu.h: what this CPU can do. Capability only; which level is used is dispatch's choice. */
#ifndef PKV_ATTN_CPU_H
#define PKV_ATTN_CPU_H

#include "pagedkv/attn.h"

/* True when CPU and operating system support the level (never BEST). */
bool cpu_has(enum pkv_isa isa);

#endif
