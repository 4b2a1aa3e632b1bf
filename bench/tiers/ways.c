/* SPDX-License-Identifier: MIT */
#include "ways.h"

#include <string.h>

#include "tiers/record.h"

static void copy_block(const struct host *host, int32_t block, char *memory, bool is_store)
{
    struct pkv_piece pieces[HOST_PIECES];
    host_pieces(host, block, pieces);
    memory += (size_t)block * HOST_PIECES * pieces[0].length;
    for (int32_t p = 0; p < HOST_PIECES; p++) {
        memcpy(is_store ? memory : pieces[p].bytes, is_store ? pieces[p].bytes : memory,
               pieces[p].length);
        memory += pieces[p].length;
    }
}

static double copy(const struct host *host, char *memory, int32_t num_blocks, int threads,
                   bool is_store)
{
    const double begin = measure_now();
#pragma omp parallel for num_threads(threads)
    for (int32_t i = 0; i < num_blocks; i++) {
        copy_block(host, i, memory, is_store);
    }
    (void)threads;
    return measure_now() - begin;
}

struct way_time way_copy(struct host *host, char *memory, int32_t num_tokens, int threads)
{
    const int32_t num_blocks = num_tokens / HOST_BLOCK;
    struct way_time time;
    time.store = copy(host, memory, num_blocks, threads, true);
    time.load = copy(host, memory, num_blocks, threads, false);
    return time;
}

double way_hash(struct host *host, int32_t num_tokens, uint64_t *digest)
{
    uint64_t sum = 0;
    const double begin = measure_now();
    for (int32_t i = 0; i < num_tokens / HOST_BLOCK; i++) {
        struct pkv_piece pieces[HOST_PIECES];
        host_pieces(host, i, pieces);
        sum += record_hash(pieces, HOST_PIECES);
    }
    *digest = sum;
    return measure_now() - begin;
}

struct way_time way_swap(struct host *host, int32_t num_tokens)
{
    struct way_time time;
    const pkv_seq seq = host_make(host, num_tokens, false);
    double begin = measure_now();
    measure_must(pkv_seq_swap_out(host->cache, seq, NULL), "pkv_seq_swap_out");
    time.store = measure_now() - begin;
    begin = measure_now();
    measure_must(pkv_seq_swap_in(host->cache, seq, NULL), "pkv_seq_swap_in");
    time.load = measure_now() - begin;
    host_end(host, seq);
    return time;
}

struct way_time way_file(struct host *host, const char *path, int32_t num_tokens)
{
    struct way_time time;
    pkv_seq seq = host_make(host, num_tokens, false);
    double begin = measure_now();
    measure_must(pkv_seq_save_file(host->cache, seq, path), "pkv_seq_save_file");
    time.store = measure_now() - begin;
    host_end(host, seq);
    begin = measure_now();
    measure_must(pkv_seq_load_file(host->cache, path, &seq, NULL), "pkv_seq_load_file");
    time.load = measure_now() - begin;
    host_end(host, seq);
    return time;
}

static struct pkv_prompt prompt_of(const struct host *host, int32_t num_tokens)
{
    return (struct pkv_prompt){
        .size = sizeof(struct pkv_prompt), .token_ids = host->tokens, .num_tokens = num_tokens + 1};
}

static struct pkv_ticket_info wait_for(struct host *host, pkv_ticket ticket)
{
    struct pkv_ticket_info info = {.size = sizeof info};
    measure_must(pkv_ticket_wait(host->cache, ticket, UINT64_MAX, &info), "pkv_ticket_wait");
    return info;
}

double way_store(struct host *host, int32_t num_tokens, bool has_helper, uint64_t *digest)
{
    pkv_ticket ticket;
    const struct pkv_prompt prompt = prompt_of(host, num_tokens);
    const pkv_seq seq = host_make(host, num_tokens, true);
    *digest = host_digest(host, seq, num_tokens);
    host_end(host, seq);
    if (has_helper) {
        host_start_helper(host);
    }
    const double begin = measure_now();
    measure_must(pkv_tier_store(host->cache, NULL, &prompt, 0, &ticket), "pkv_tier_store");
    const struct pkv_ticket_info info = wait_for(host, ticket);
    const double seconds = measure_now() - begin;
    if (has_helper) {
        host_end_helper(host);
    }
    measure_must(pkv_ticket_close(host->cache, ticket), "pkv_ticket_close");
    if (info.num_stored != num_tokens / HOST_BLOCK) {
        measure_fail("%d blocks stored: %s", info.num_stored, pkv_status_name(info.status));
    }
    return seconds;
}

/* As a server does it: the request arrives, its blocks come, it is admitted. */
static double restore(struct host *host, int32_t num_tokens, pkv_seq *seq)
{
    pkv_ticket ticket;
    struct pkv_admission admission = {.size = sizeof admission};
    const struct pkv_prompt prompt = prompt_of(host, num_tokens);
    const struct pkv_seq_options options = {.size = sizeof options, .no_publish = true};
    const double begin = measure_now();
    measure_must(pkv_tier_prefetch(host->cache, NULL, &prompt, num_tokens, 0, &ticket),
                 "pkv_tier_prefetch");
    const struct pkv_ticket_info info = wait_for(host, ticket);
    measure_must(pkv_seq_create(host->cache, &options, seq), "pkv_seq_create");
    measure_must(pkv_seq_admit(host->cache, *seq, &prompt, 0, prompt.num_tokens, &admission, NULL),
                 "pkv_seq_admit");
    measure_must(pkv_ticket_close(host->cache, ticket), "pkv_ticket_close");
    const double seconds = measure_now() - begin;
    if (admission.num_cached != num_tokens || info.num_loaded != num_tokens) {
        measure_fail("%d of %d tokens came back: %s", admission.num_cached, num_tokens,
                     pkv_status_name(info.status));
    }
    return seconds;
}

double way_prefetch(struct host *host, int32_t num_tokens, bool has_helper, uint64_t expected)
{
    pkv_seq seq;
    host_empty(host, expected != 0);
    if (has_helper) {
        host_start_helper(host);
    }
    const double seconds = restore(host, num_tokens, &seq);
    if (has_helper) {
        host_end_helper(host);
    }
    if (expected != 0 && host_digest(host, seq, num_tokens) != expected) {
        measure_fail("other keys and values came back");
    }
    host_end(host, seq);
    return seconds;
}
