/* SPDX-License-Identifier: MIT
 *
 * ways.h: the ways in which the keys and values of a prompt leave a cache and come back, each timed
 * once. */
#ifndef BENCH_WAYS_H
#define BENCH_WAYS_H

#include "host.h"

/* Seconds of both directions. */
struct way_time {
    double store, load;
};

/* Copies between the pages of the prompt's blocks and other memory [host_bytes of num_tokens], on
 * so many threads. */
struct way_time way_copy(struct host *host, char *memory, int32_t num_tokens, int threads);

/* What the checksums of a tier's values cost. *digest receives something of them. */
double way_hash(struct host *host, int32_t num_tokens, uint64_t *digest);

/* pkv_seq_swap_out, pkv_seq_swap_in. */
struct way_time way_swap(struct host *host, int32_t num_tokens);

/* pkv_seq_save_file, pkv_seq_load_file. */
struct way_time way_file(struct host *host, const char *path, int32_t num_tokens);

/* pkv_tier_store until it is done, of the prompt, which is computed first in no time; *digest
 * receives the digest of what is stored. */
double way_store(struct host *host, int32_t num_tokens, bool has_helper, uint64_t *digest);

/* pkv_tier_prefetch until the request is admitted. Checks that all came back, and with `expected`
 * not 0 that it is what it was; ends with nothing cached. */
double way_prefetch(struct host *host, int32_t num_tokens, bool has_helper, uint64_t expected);

#endif
