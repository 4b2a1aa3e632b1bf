/* SPDX-License-Identifier: MIT
 *
 * Request life from several threads while one thread steps: the step's attention is checked against
 * dense attention all along, and in the end everything is released. For the thread sanitiser. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "reuse_case.h"

#define NUM_THREADS 4
#define NUM_STEPS 150

struct client {
    pkv_cache *cache;
    atomic_bool *is_over;
    struct test_random random;
    int32_t ids[48];
    int64_t num_wrong; /* answers that no order of calls explains */
    int64_t num_calls;
};

static bool is_among(enum pkv_status status, enum pkv_status other)
{
    return status == PKV_OK || status == PKV_NO_BLOCKS || status == other;
}

static void live_once(struct client *client)
{
    const struct pkv_namespace_field own = {3, 1, "c", 8};
    const struct pkv_seq_options options = {.size = sizeof options,
                                            .tag = 7,
                                            .namespace_fields = &own,
                                            .num_namespace_fields =
                                                random_between(&client->random, 0, 1)};
    const int32_t n = random_between(&client->random, 1, 40);
    pkv_seq seq = {0}, child = {0};
    pkv_pin pin = {0};
    struct pkv_admission admission = {.size = sizeof admission};
    struct pkv_probe probe = {.size = sizeof probe};
    int32_t num_pinned = 0;
    if (pkv_seq_create(client->cache, &options, &seq) != PKV_OK) {
        return;
    }
    enum pkv_status status =
        pkv_cache_probe(client->cache, &options, PROMPT(client->ids, n), 4, n, &probe, NULL);
    client->num_wrong += status != PKV_OK;
    status = pkv_seq_admit(client->cache, seq, PROMPT(client->ids, n), 4, n, &admission, NULL);
    client->num_wrong += !is_among(status, PKV_NEVER_FITS);
    if (status == PKV_OK) {
        client->num_wrong += admission.num_cached + admission.num_to_write != n;
        status = pkv_seq_fork(client->cache, seq, admission.num_cached, 1, &child);
        client->num_wrong += !is_among(status, PKV_NO_BLOCKS);
        client->num_wrong +=
            pkv_seq_truncate(client->cache, seq, admission.num_cached / 2) != PKV_OK;
    }
    status = pkv_prefix_pin(client->cache, NULL, PROMPT(client->ids, n), 0, 0, &pin, &num_pinned);
    client->num_wrong += !is_among(status, PKV_OK);
    client->num_wrong += child.id != 0 && pkv_seq_destroy(client->cache, child) != PKV_OK;
    if (pin.id != 0) {
        status = pkv_prefix_unpin(client->cache, pin);
        client->num_wrong += !is_among(status, PKV_STALE_HANDLE); /* flushed meanwhile */
    }
    client->num_wrong += pkv_seq_destroy(client->cache, seq) != PKV_OK;
    if (random_between(&client->random, 0, 20) == 0) {
        client->num_wrong += pkv_namespace_flush(client->cache, &own, NULL) != PKV_OK;
    }
    client->num_calls++;
}

static void *live(void *context)
{
    struct client *client = context;
    while (!atomic_load(client->is_over)) {
        live_once(client);
    }
    return NULL;
}

static void step_once(struct runtime_case *c, struct prefix_seq *seqs, struct test_random *random)
{
    struct case_step step = {0};
    for (int32_t i = 0; i < 2; i++) {
        if (seqs[i].seq.length > 36) {
            prefix_destroy(c, &seqs[i]);
            ASSERT_STATUS(PKV_OK, prefix_create(c, &seqs[i], 0, NULL));
            ASSERT_STATUS(PKV_OK, prefix_admit(c, &seqs[i], 20, 0, NULL));
        }
        case_row(&step, &seqs[i].seq, random_between(random, 1, 3));
    }
    ASSERT_STATUS(PKV_OK, prefix_begin(c, &step, 2));
    case_attend_all(c, &step);
    case_commit(c, &step, NULL);
}

static void requests_come_and_go_while_a_step_runs(void)
{
    static struct client clients[NUM_THREADS];
    static struct prefix_seq seqs[2];
    struct test_random random = {test_seed()};
    pthread_t threads[NUM_THREADS];
    atomic_bool is_over = false;
    struct runtime_case c;
    prefix_init(&c);
    c.config.max_seqs = 32;
    c.groups[0].num_blocks = 160;
    c.config.max_pinned_blocks = 16;
    case_open(&c);
    for (int32_t i = 0; i < 2; i++) {
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &seqs[i], 0, NULL));
    }
    for (int32_t t = 0; t < NUM_THREADS; t++) {
        clients[t] = (struct client){.cache = c.cache, .is_over = &is_over};
        clients[t].random.state = test_seed() + (uint64_t)t;
        memcpy(clients[t].ids, seqs[0].ids, sizeof clients[t].ids);
        CU_ASSERT_EQUAL(pthread_create(&threads[t], NULL, live, &clients[t]), 0);
    }
    for (int32_t i = 0; i < NUM_STEPS; i++) {
        step_once(&c, seqs, &random);
        CU_ASSERT(i % 16 != 0 || case_check(&c) == 0);
    }
    atomic_store(&is_over, true);
    for (int32_t t = 0; t < NUM_THREADS; t++) {
        pthread_join(threads[t], NULL);
        CU_ASSERT_EQUAL(clients[t].num_wrong, 0);
    }
    prefix_destroy(&c, &seqs[0]);
    prefix_destroy(&c, &seqs[1]);
    CU_ASSERT_EQUAL(case_held(&c, 0), 0);
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(requests_come_and_go_while_a_step_runs),
    TEST_END,
};
const struct test_suite suite_runtime_reuse_thread = {"runtime_reuse_thread", cases};
