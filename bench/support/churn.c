/* SPDX-License-Identifier: MIT
 *
 * churn.c: one loop of admissions and decode steps. Before each step of a pool that is to hand out
 * ids in the order in which they became free, all blocks without content are put into a queue of
 * the pool. */
#include "churn.h"

#include <stdlib.h>

#include "alloc/block_pool.h"
#include "runtime/cache.h"
#include "server.h"

enum {
    LIVE = CHURN_MAX_ROWS,
    BEGINNINGS = 16,
    MAX_TOKENS = 1600,
    MAX_ANSWER = 192,
    STEPS_BETWEEN = 32
};
enum { MIN_WATERMARK = 24 }; /* what forked children may take */

struct request {
    pkv_seq seq;
    int32_t left; /* tokens to come */
    bool is_kept; /* at its end, for its table */
};

struct churn {
    struct server server;
    struct churn_pool pool;
    uint64_t random;
    struct request live[LIVE];
    int32_t num_live, num_ended;
    int32_t *prompt, num_tokens; /* of the prompt that waits; 0 none */
    bool is_long;                /* the prompt that waits is that of a row to keep */
    int32_t keys, num_long, num_due;
    pkv_seq kept[LIVE];
    int32_t num_kept;
    double num_blocks, num_runs;
};

static int32_t pick(struct churn *churn, int32_t low, int32_t high)
{
    return low + (int32_t)(measure_random(&churn->random) % (uint64_t)(high - low + 1));
}

static int32_t long_answer(const struct churn *churn)
{
    const int32_t part = churn->keys / CHURN_MIN_KEYS;
    return part > MAX_ANSWER ? MAX_ANSWER : part;
}

/* Of 8 to 1024 tokens, short ones as often as long ones. */
static void make_prompt(struct churn *churn)
{
    churn->is_long = churn->num_due > 0;
    if (churn->is_long) {
        churn->num_due--;
        churn->num_tokens = churn->keys - long_answer(churn);
        server_tokens(churn->prompt, churn->num_tokens, measure_random(&churn->random));
        return;
    }
    const int32_t limit = 16 << pick(churn, 0, 6);
    churn->num_tokens = pick(churn, limit / 2, limit);
    server_tokens(churn->prompt, churn->num_tokens, measure_random(&churn->random));
    if (pick(churn, 0, 1) == 0) {
        const int32_t beginning = pick(churn, 1, BEGINNINGS);
        const int32_t shared = 24 * beginning;
        server_tokens(churn->prompt, shared, (uint64_t)beginning);
        churn->num_tokens += shared;
    }
}

static void add_live(struct churn *churn, pkv_seq seq, int32_t left, bool is_kept)
{
    churn->live[churn->num_live++] = (struct request){seq, left, is_kept};
}

/* One of ten requests has two answers. */
static void begin_decoding(struct churn *churn, pkv_seq seq)
{
    if (churn->is_long) {
        add_live(churn, seq, long_answer(churn), true);
        return;
    }
    add_live(churn, seq, pick(churn, 1, MAX_ANSWER), false);
    if (churn->num_live < LIVE && pick(churn, 0, 9) == 0) {
        pkv_seq child;
        measure_must(pkv_seq_fork(churn->server.cache, seq, churn->num_tokens, 1, &child),
                     "pkv_seq_fork");
        add_live(churn, child, pick(churn, 1, 64), false);
    }
}

static void put_in_order(struct churn *churn)
{
    pkv_pool *pool = churn->server.cache->groups[0].blocks.pool;
    while (churn->pool.in_order && block_pool_num_free(pool, 0) > 0) {
        block_pool_move(pool, block_pool_head(pool, 0), 1);
    }
}

/* False when there is no room now. A watermark is left for what forked children will need. */
static bool start_request(struct churn *churn)
{
    struct pkv_admission admission = {.size = sizeof admission};
    if (churn->num_tokens == 0) {
        make_prompt(churn);
    }
    const struct pkv_prompt prompt = server_prompt(churn->prompt, churn->num_tokens);
    const pkv_seq seq = server_seq(&churn->server);
    const enum pkv_status status = pkv_seq_admit(churn->server.cache, seq, &prompt, MAX_ANSWER,
                                                 churn->num_tokens, &admission, NULL);
    if (status == PKV_NO_BLOCKS) {
        server_end(&churn->server, seq);
        return false;
    }
    measure_must(status, "pkv_seq_admit");
    put_in_order(churn);
    server_write(&churn->server, seq, churn->prompt, admission.num_cached, churn->num_tokens);
    begin_decoding(churn, seq);
    churn->num_tokens = 0;
    return true;
}

static void end_request(struct churn *churn, const struct request *request)
{
    if (request->is_kept) {
        churn->kept[churn->num_kept++] = request->seq;
        return;
    }
    server_end(&churn->server, request->seq);
    churn->num_ended++;
}

static void decode(struct churn *churn)
{
    pkv_seq seqs[LIVE];
    int32_t tokens[LIVE];
    for (int32_t i = 0; i < churn->num_live; i++) {
        seqs[i] = churn->live[i].seq;
        tokens[i] = pick(churn, 0, INT32_MAX - 1);
    }
    put_in_order(churn);
    server_step(&churn->server, seqs, NULL, tokens, churn->num_live);
    for (int32_t i = churn->num_live - 1; i >= 0; i--) {
        if (--churn->live[i].left == 0) {
            end_request(churn, &churn->live[i]);
            churn->live[i] = churn->live[--churn->num_live];
        }
    }
}

static void take_turn(struct churn *churn)
{
    while (churn->num_live < LIVE && start_request(churn)) {
    }
    decode(churn);
}

static void sample(struct churn *churn)
{
    struct pkv_stats stats = {.size = sizeof stats};
    measure_must(pkv_cache_stats(churn->server.cache, &stats), "pkv_cache_stats");
    churn->num_blocks += (double)stats.table_blocks;
    churn->num_runs += (double)stats.table_runs;
}

static struct churn *open_churn(const struct churn_pool *pool, int32_t rows, int32_t keys)
{
    struct churn *churn = measure_calloc(1, sizeof *churn);
    const int32_t longest = keys > 2 * MAX_TOKENS ? keys : 2 * MAX_TOKENS;
    const int32_t watermark = pool->num_blocks / 20;
    churn->pool = *pool;
    churn->random = 1;
    churn->keys = keys;
    churn->prompt = measure_calloc((size_t)longest, sizeof churn->prompt[0]);
    server_init(&churn->server, LIVE + rows, longest, pool->num_blocks);
    churn->server.group.block_size = pool->block_size;
    churn->server.config.prefix_cache = pool->prefix_cache;
    churn->server.config.min_blank_percent = pool->min_blank_percent;
    churn->server.config.watermark_blocks = watermark > MIN_WATERMARK ? watermark : MIN_WATERMARK;
    server_open(&churn->server);
    churn->server.skips_attention = true;
    return churn;
}

static void close_churn(struct churn *churn)
{
    for (int32_t i = 0; i < churn->num_live; i++) {
        server_end(&churn->server, churn->live[i].seq);
    }
    for (int32_t i = 0; i < churn->num_kept; i++) {
        server_end(&churn->server, churn->kept[i]);
    }
    server_close(&churn->server);
    free(churn->prompt);
    free(churn);
}

static void serve_all(struct churn *churn)
{
    for (int32_t step = 0; churn->num_ended < CHURN_REQUESTS; step++) {
        take_turn(churn);
        if (churn->num_ended > CHURN_REQUESTS / 2 && step % 16 == 0) {
            sample(churn);
        }
    }
}

double churn_mean_run(const struct churn_pool *pool, struct pkv_stats *stats)
{
    struct churn *churn = open_churn(pool, 0, 0);
    serve_all(churn);
    measure_must(pkv_cache_stats(churn->server.cache, stats), "pkv_cache_stats");
    const double mean = churn->num_blocks / churn->num_runs;
    close_churn(churn);
    return mean;
}

void churn_tables(const struct churn_pool *pool, int32_t rows, int32_t keys, int32_t *tables)
{
    const int32_t num_blocks = (keys + pool->block_size - 1) / pool->block_size;
    struct churn *churn = open_churn(pool, rows, keys);
    serve_all(churn);
    for (int32_t step = 0; churn->num_kept < rows; step++) {
        if (step % STEPS_BETWEEN == 0 && churn->num_long < rows) {
            churn->num_long++;
            churn->num_due++;
        }
        take_turn(churn);
    }
    for (int32_t row = 0; row < rows; row++) {
        int32_t *table = tables + (size_t)row * (size_t)num_blocks, count = 0;
        measure_must(
            pkv_seq_table(churn->server.cache, churn->kept[row], 0, table, num_blocks, &count),
            "pkv_seq_table");
    }
    close_churn(churn);
}
