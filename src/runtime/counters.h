/* SPDX-License-Identifier: MIT
 *
 * counters.h: what a cache counts where it happens. Counters only grow; the mutex guards them.
 * metrics.c fills pkv_stats from them; what grows and shrinks, such as the held blocks, it counts
 * when it is called. */
#ifndef PKV_RUNTIME_COUNTERS_H
#define PKV_RUNTIME_COUNTERS_H

#include <stdint.h>

/* Each is the field of that name in pkv_stats. */
struct counters {
    uint64_t num_admissions;
    uint64_t queried_tokens;
    uint64_t hit_tokens;
    uint64_t readmitted_tokens;
    uint64_t rehit_tokens;
    uint64_t copied_hit_tokens;
    uint64_t stored_blocks;
    uint64_t deduplicated_blocks;
    uint64_t unpublished_blocks;
    uint64_t evicted_age_ns;
    uint64_t copied_blocks;
    uint64_t expired_pins;
    uint64_t attention_bytes;
    uint64_t swap_outs;
    uint64_t swap_ins;
    uint64_t swap_out_bytes;
    uint64_t swap_in_bytes;
};

#endif
