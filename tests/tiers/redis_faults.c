/* SPDX-License-Identifier: MIT
 *
 * The Redis tier with real servers that die, stop, refuse and evict. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/redis_case.h"
#include "support/redis_server.h"
#include "tiers/tier.h"

/* A bound that only a hang breaks. */
#define HANG_SECONDS 40.0

static struct redis_server server;

static bool start(const char *const *arguments)
{
    if (!redis_server_can_run()) {
        return false;
    }
    memset(&server, 0, sizeof server);
    const bool runs = redis_server_start(&server, 0, arguments);
    CU_ASSERT(runs);
    return runs;
}

static pkv_tier *tier_of_server(void)
{
    const struct pkv_redis_config config = redis_case_config(server.port);
    return redis_case_tier(&config);
}

static void stop(pkv_tier *tier)
{
    pkv_tier_destroy(tier);
    redis_server_stop(&server, true);
}

/* --- passwords */

static void expect_login(const char *user, const char *password, enum pkv_status status)
{
    struct pkv_redis_config config = redis_case_config(server.port);
    config.user = user;
    config.password = password;
    pkv_tier *tier = redis_case_tier(&config);
    ASSERT_STATUS(status, redis_case_put(tier, "a", "x", 1));
    ASSERT_STATUS(status, redis_case_find(tier, "a"));
    pkv_tier_destroy(tier);
}

static void a_wrong_password_fails_and_the_right_one_opens(void)
{
    static const char *const arguments[] = {"--requirepass", "right", NULL};
    if (!start(arguments)) {
        return;
    }
    char reply[256];
    CU_ASSERT(redis_server_command(server.port,
                                   "AUTH right\r\nACL SETUSER me on >secret ~pagedkv:* +@all\r\n"
                                   "ACL SETUSER other on >secret ~other:* +@all",
                                   reply, sizeof reply));
    expect_login(NULL, NULL, PKV_IO);
    expect_login(NULL, "wrong", PKV_IO);
    expect_login(NULL, "right", PKV_OK);
    expect_login("me", "secret", PKV_OK);
    expect_login("me", "wrong", PKV_IO);
    expect_login("nobody", "secret", PKV_IO);
    expect_login("other", "secret", PKV_IO); /* may not use these keys */
    stop(NULL);
}

static void a_unix_socket_is_as_good(void)
{
    char path[300];
    const char *const arguments[] = {"--unixsocket", path, NULL};
    snprintf(path, sizeof path, "%s", "./socket"); /* in the server's folder */
    if (!start(arguments)) {
        return;
    }
    snprintf(path, sizeof path, "%s/socket", server.folder);
    if (strlen(path) >= sizeof((struct sockaddr_un *)0)->sun_path) {
        printf("skipped: a socket in a folder whose name is too long for one\n");
        redis_server_stop(&server, true);
        return;
    }
    const struct pkv_redis_config config = {.size = sizeof config, .unix_socket = path};
    pkv_tier *tier = redis_case_tier(&config);
    ASSERT_STATUS(PKV_OK, redis_case_put(tier, "a", "x", 1));
    ASSERT_STATUS(PKV_OK, redis_case_find(tier, "a"));
    pkv_tier_destroy(tier);
    const struct pkv_redis_config none = {.size = sizeof none, .unix_socket = "not-there"};
    tier = redis_case_tier(&none);
    ASSERT_STATUS(PKV_IO, redis_case_find(tier, "a"));
    stop(tier);
}

/* --- death */

static void a_server_that_was_killed_works_again_after_a_restart(void)
{
    if (!start(NULL)) {
        return;
    }
    pkv_tier *tier = tier_of_server();
    ASSERT_STATUS(PKV_OK, redis_case_put(tier, "a", "x", 1));
    redis_server_stop(&server, false);
    for (int i = 0; i < 50; i++) {
        CU_ASSERT_EQUAL(redis_case_find(tier, "a"), PKV_IO);
    }
    CU_ASSERT_FATAL(redis_server_start(&server, server.port, NULL));
    CU_ASSERT(redis_case_recovers(tier));
    ASSERT_STATUS(PKV_NOT_FOUND, redis_case_find(tier, "a"));
    stop(tier);
}

static void *kill_soon(void *unused)
{
    usleep(30000);
    redis_server_signal(&server, SIGKILL);
    return unused;
}

/* It writes until the server is gone; a SIGPIPE would end this program. */
static void a_server_may_be_killed_while_values_are_on_their_way(void)
{
    if (!start(NULL)) {
        return;
    }
    enum { NUM = 8, BYTES = 4 << 20 };
    pkv_tier *tier = tier_of_server();
    char *bytes = calloc(1, BYTES);
    struct pkv_piece piece = {bytes, BYTES};
    struct pkv_tier_item items[NUM];
    static const char *const names[NUM] = {"0", "1", "2", "3", "4", "5", "6", "7"};
    bool has_failed = false;
    pthread_t killer;
    pthread_create(&killer, NULL, kill_soon, NULL);
    while (!has_failed) {
        for (int i = 0; i < NUM; i++) {
            items[i] = (struct pkv_tier_item){
                .name = names[i], .pieces = &piece, .num_pieces = 1, .bytes = BYTES};
        }
        tier_put(tier, items, NUM);
        tier_get(tier, items, NUM);
        has_failed = items[NUM - 1].status == PKV_IO;
    }
    pthread_join(killer, NULL);
    redis_server_stop(&server, false);
    CU_ASSERT_FATAL(redis_server_start(&server, server.port, NULL));
    CU_ASSERT(redis_case_recovers(tier));
    free(bytes);
    stop(tier);
}

/* A tier that has a connection and no failure behind it, which would keep it away for
 * min_backoff_ms, however late the server answered one before it. */
static pkv_tier *connected(const struct pkv_redis_config *config)
{
    const double begin = redis_case_now();
    pkv_tier *tier = redis_case_tier(config);
    while (redis_case_put(tier, "a", "x", 1) != PKV_OK) {
        CU_ASSERT_FATAL(redis_case_now() - begin < HANG_SECONDS);
        pkv_tier_destroy(tier);
        tier = redis_case_tier(config);
    }
    return tier;
}

/* 200 calls that each waited would take twice as long as the bound. */
static void a_stopped_server_costs_one_time_out_and_then_nothing(void)
{
    if (!start(NULL)) {
        return;
    }
    struct pkv_redis_config config = redis_case_config(server.port);
    config.command_timeout_ms = 400;
    config.min_backoff_ms = 600000;
    config.max_backoff_ms = 600000;
    pkv_tier *tier = connected(&config);
    config.min_backoff_ms = 10;
    config.max_backoff_ms = 20;
    pkv_tier *hasty = connected(&config);
    redis_server_signal(&server, SIGSTOP);
    const double begin = redis_case_now();
    for (int i = 0; i < 200; i++) {
        CU_ASSERT_EQUAL(redis_case_find(tier, "a"), PKV_IO);
    }
    CU_ASSERT_EQUAL(redis_case_find(hasty, "a"), PKV_IO);
    CU_ASSERT(redis_case_now() - begin < HANG_SECONDS);
    redis_server_signal(&server, SIGCONT);
    CU_ASSERT(redis_case_recovers(hasty));
    CU_ASSERT_EQUAL(redis_case_find(tier, "a"), PKV_IO);
    pkv_tier_destroy(hasty);
    stop(tier);
}

/* --- memory */

enum { NUM_VALUES = 60, VALUE_BYTES = 1 << 20 };

static enum pkv_status put_numbered(const pkv_tier *tier, char *bytes, int number)
{
    char name[16];
    snprintf(name, sizeof name, "v%d", number);
    memset(bytes, number + 1, VALUE_BYTES);
    return redis_case_put(tier, name, bytes, VALUE_BYTES);
}

static enum pkv_status get_numbered(const pkv_tier *tier, char *bytes, int number)
{
    char name[16];
    snprintf(name, sizeof name, "v%d", number);
    memset(bytes, 0, VALUE_BYTES);
    const enum pkv_status status = redis_case_get(tier, name, bytes, VALUE_BYTES);
    CU_ASSERT(status != PKV_OK || (bytes[0] == number + 1 && bytes[VALUE_BYTES - 1] == number + 1));
    return status;
}

static void what_a_server_has_evicted_is_a_miss(void)
{
    static const char *const arguments[] = {"--maxmemory", "20mb", "--maxmemory-policy",
                                            "allkeys-lru", NULL};
    if (!start(arguments)) {
        return;
    }
    pkv_tier *tier = tier_of_server();
    char *bytes = malloc(VALUE_BYTES);
    int found = 0;
    int missed = 0;
    for (int i = 0; i < NUM_VALUES; i++) {
        CU_ASSERT_EQUAL(put_numbered(tier, bytes, i), PKV_OK);
    }
    for (int i = 0; i < NUM_VALUES; i++) {
        const enum pkv_status status = get_numbered(tier, bytes, i);
        found += status == PKV_OK;
        missed += status == PKV_NOT_FOUND;
    }
    CU_ASSERT(found > 0 && missed > 0 && found + missed == NUM_VALUES);
    free(bytes);
    stop(tier);
}

static void counters_outlive_values_where_only_what_has_a_time_to_live_is_evicted(void)
{
    static const char *const arguments[] = {"--maxmemory", "20mb", "--maxmemory-policy",
                                            "volatile-lru", NULL};
    if (!start(arguments)) {
        return;
    }
    struct pkv_redis_config config = redis_case_config(server.port);
    config.ttl_seconds = 10000;
    pkv_tier *tier = redis_case_tier(&config);
    char *bytes = malloc(VALUE_BYTES);
    CU_ASSERT_EQUAL(redis_case_count(tier, "epoch", 5), 5);
    for (int i = 0; i < NUM_VALUES; i++) {
        CU_ASSERT_EQUAL(put_numbered(tier, bytes, i), PKV_OK);
    }
    ASSERT_STATUS(PKV_NOT_FOUND, get_numbered(tier, bytes, 0));
    CU_ASSERT_EQUAL(redis_case_count(tier, "epoch", 0), 5);
    free(bytes);
    stop(tier);
}

/* The rest of a call that writes is not sent after the first refusal. */
static void a_full_server_refuses_writes_and_goes_on_to_read(void)
{
    static const char *const arguments[] = {"--maxmemory", "20mb", "--maxmemory-policy",
                                            "noeviction", NULL};
    if (!start(arguments)) {
        return;
    }
    pkv_tier *tier = tier_of_server();
    char *bytes = malloc(VALUE_BYTES);
    int refused = 0;
    for (int i = 0; i < NUM_VALUES; i++) {
        refused += put_numbered(tier, bytes, i) == PKV_IO;
    }
    CU_ASSERT(refused > 10 && refused < NUM_VALUES);
    struct pkv_piece piece = {bytes, VALUE_BYTES};
    struct pkv_tier_item items[NUM_VALUES];
    char names[NUM_VALUES][24];
    for (int i = 0; i < NUM_VALUES; i++) {
        snprintf(names[i], sizeof names[i], "w%d", i);
        items[i] = (struct pkv_tier_item){
            .name = names[i], .pieces = &piece, .num_pieces = 1, .bytes = VALUE_BYTES};
    }
    tier_put(tier, items, NUM_VALUES);
    refused = 0;
    for (int i = 0; i < NUM_VALUES; i++) {
        refused += items[i].status == PKV_IO;
    }
    CU_ASSERT(refused >= NUM_VALUES - 1);
    ASSERT_STATUS(PKV_OK, get_numbered(tier, bytes, 0));
    ASSERT_STATUS(PKV_NOT_FOUND, get_numbered(tier, bytes, NUM_VALUES - 1));
    free(bytes);
    stop(tier);
}

static void a_replica_refuses_writes_and_goes_on_to_read(void)
{
    if (!start(NULL)) {
        return;
    }
    pkv_tier *tier = tier_of_server();
    char reply[64];
    ASSERT_STATUS(PKV_OK, redis_case_put(tier, "a", "x", 1));
    CU_ASSERT(redis_server_command(server.port, "REPLICAOF 127.0.0.1 1", reply, sizeof reply));
    ASSERT_STATUS(PKV_IO, redis_case_put(tier, "a", "y", 1));
    ASSERT_STATUS(PKV_OK, redis_case_find(tier, "a"));
    stop(tier);
}

/* --- threads */

enum { NUM_THREADS = 12, NUM_ROUNDS = 40, THREAD_BYTES = 50000 };

struct worker {
    const pkv_tier *tier;
    int number;
    int failures;
};

/* Each thread writes and reads values of its own, and all add to one counter. */
static void *work(void *argument)
{
    struct worker *worker = argument;
    char *bytes = malloc(THREAD_BYTES);
    for (int i = 0; i < NUM_ROUNDS; i++) {
        char name[32];
        snprintf(name, sizeof name, "t%d-%d", worker->number, i % 5);
        memset(bytes, worker->number * NUM_ROUNDS + i, THREAD_BYTES);
        const char expected = bytes[0];
        worker->failures += redis_case_put(worker->tier, name, bytes, THREAD_BYTES) != PKV_OK;
        memset(bytes, 0, THREAD_BYTES);
        worker->failures += redis_case_get(worker->tier, name, bytes, THREAD_BYTES) != PKV_OK;
        worker->failures += bytes[0] != expected || bytes[THREAD_BYTES - 1] != expected;
        worker->failures += redis_case_count(worker->tier, "all", 1) < 1;
    }
    free(bytes);
    return NULL;
}

static void threads_have_connections_of_their_own_and_few_stay_open(void)
{
    if (!start(NULL)) {
        return;
    }
    pkv_tier *tier = tier_of_server();
    pthread_t threads[NUM_THREADS];
    struct worker workers[NUM_THREADS];
    for (int i = 0; i < NUM_THREADS; i++) {
        workers[i] = (struct worker){.tier = tier, .number = i};
        pthread_create(&threads[i], NULL, work, &workers[i]);
    }
    for (int i = 0; i < NUM_THREADS; i++) {
        pthread_join(threads[i], NULL);
        CU_ASSERT_EQUAL(workers[i].failures, 0);
    }
    CU_ASSERT_EQUAL(redis_case_count(tier, "all", 0), NUM_THREADS * NUM_ROUNDS);
    char reply[4096];
    int num_clients = 0;
    CU_ASSERT(redis_server_wait(server.port, "INFO clients", "connected_clients:"));
    CU_ASSERT(redis_server_command(server.port, "INFO clients", reply, sizeof reply));
    const char *line = strstr(reply, "connected_clients:");
    CU_ASSERT(line != NULL && sscanf(line, "connected_clients:%d", &num_clients) == 1);
    CU_ASSERT(num_clients >= 2 && num_clients <= 8 + 2); /* and those that ask */
    stop(tier);
}

/* A stop in the middle of threads' work, and again: no call hangs, all goes on afterwards. */
static void threads_live_through_a_server_that_stops_again_and_again(void)
{
    if (!start(NULL)) {
        return;
    }
    struct pkv_redis_config config = redis_case_config(server.port);
    config.command_timeout_ms = 100;
    pkv_tier *tier = redis_case_tier(&config);
    pthread_t threads[4];
    struct worker workers[4];
    const double begin = redis_case_now();
    for (int i = 0; i < 4; i++) {
        workers[i] = (struct worker){.tier = tier, .number = i};
        pthread_create(&threads[i], NULL, work, &workers[i]);
    }
    for (int i = 0; i < 5; i++) {
        redis_server_signal(&server, SIGSTOP);
        usleep(150000);
        redis_server_signal(&server, SIGCONT);
        usleep(30000);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    CU_ASSERT(redis_case_recovers(tier));
    CU_ASSERT(redis_case_now() - begin < 2 * HANG_SECONDS);
    stop(tier);
}

static const struct test_case cases[] = {
    TEST(a_wrong_password_fails_and_the_right_one_opens),
    TEST(a_unix_socket_is_as_good),
    TEST(a_server_that_was_killed_works_again_after_a_restart),
    TEST(a_server_may_be_killed_while_values_are_on_their_way),
    TEST(a_stopped_server_costs_one_time_out_and_then_nothing),
    TEST(what_a_server_has_evicted_is_a_miss),
    TEST(counters_outlive_values_where_only_what_has_a_time_to_live_is_evicted),
    TEST(a_full_server_refuses_writes_and_goes_on_to_read),
    TEST(a_replica_refuses_writes_and_goes_on_to_read),
    TEST(threads_have_connections_of_their_own_and_few_stay_open),
    TEST(threads_live_through_a_server_that_stops_again_and_again),
    TEST_END,
};

const struct test_suite suite_tier_redis_faults = {"tier_redis_faults", cases};
