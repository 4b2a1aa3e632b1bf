/* SPDX-License-Identifier: MIT
 *
 * reuse_oracle.h: what a cache must answer, recomputed from its index without a hash. */
#ifndef PKV_TEST_RUNTIME_REUSE_ORACLE_H
#define PKV_TEST_RUNTIME_REUSE_ORACLE_H

#include "reuse_case.h"

/* Does a block of every group end behind so many tokens? */
bool reuse_ends_in_all(const struct runtime_case *c, int32_t length);

/* The hit of the first num_tokens ids of seq, in tokens of whole blocks; *num_copied (may be NULL)
 * are the ones behind them. O(nodes * tokens). */
int32_t reuse_reference_hit(const struct runtime_case *c, const struct prefix_seq *seq,
                            int32_t num_tokens, int32_t *num_copied);

/* D8: without a window, whatever is indexed is indexed with all that comes before it, and a block
 * whose priority is lower goes first. */
void reuse_check_chains(const struct runtime_case *c, bool has_orphans);

#endif
