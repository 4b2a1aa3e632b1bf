/* SPDX-License-Identifier: MIT
 *
 * The Redis tier with servers that answer what no server should. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/fake_server.h"
#include "support/redis_case.h"
#include "support/redis_server.h"
#include "tiers/tier.h"

/* A bound that only a hang breaks: calls that would not end otherwise. */
#define HANG_SECONDS 20.0

static int num_open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    while (folder != NULL && readdir(folder) != NULL) {
        count++;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return count;
}

static pkv_tier *tier_of(const struct fake_server *server, bool is_cluster)
{
    struct pkv_redis_config config = redis_case_config(server->port);
    config.command_timeout_ms = 50;
    config.min_backoff_ms = 1;
    config.max_backoff_ms = 1;
    config.is_cluster = is_cluster;
    return redis_case_tier(&config);
}

static bool is_known(enum pkv_status status)
{
    return status == PKV_OK || status == PKV_NOT_FOUND || status == PKV_CORRUPT || status == PKV_IO;
}

/* All functions, each with two items; returns how many of the ten answers are PKV_IO. */
static int call_all(const pkv_tier *tier)
{
    char bytes[2][16] = {"", ""};
    const struct pkv_piece pieces[2] = {{bytes[0], 16}, {bytes[1], 16}};
    struct pkv_tier_item items[2] = {
        {.name = "a", .pieces = &pieces[0], .num_pieces = 1, .bytes = 16},
        {.name = "b", .pieces = &pieces[1], .num_pieces = 1, .bytes = 16}};
    struct pkv_tier_counter counters[2] = {{.name = "c", .add = 1}, {.name = "d"}};
    void (*const calls[])(const pkv_tier *, struct pkv_tier_item *,
                          int32_t) = {tier_put, tier_get, tier_find, tier_remove};
    int failed = 0;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        calls[i](tier, items, 2);
        CU_ASSERT(is_known(items[0].status) && is_known(items[1].status));
        failed += (items[0].status == PKV_IO) + (items[1].status == PKV_IO);
        usleep(1500);
    }
    tier_count(tier, counters, 2);
    failed += (counters[0].status == PKV_IO) + (counters[1].status == PKV_IO);
    usleep(1500);
    return failed;
}

static void fails_all(const char *text, size_t length, void (*answer)(struct fake_server *, int))
{
    struct fake_server server = {.answer = answer, .text = text, .length = length};
    for (int is_cluster = 0; is_cluster < 2; is_cluster++) {
        server.is_ending = false;
        CU_ASSERT_FATAL(fake_server_start(&server));
        pkv_tier *tier = tier_of(&server, is_cluster != 0);
        ASSERT_CASE(text, call_all(tier) == 10);
        pkv_tier_destroy(tier);
        fake_server_stop(&server);
    }
}

static void garbage_truncated_and_refusing_answers_fail_and_leave_nothing_open(void)
{
    static const char *const texts[] = {
        "",
        "x",
        "\r\n",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "$",
        "$16\r\nabc",
        "$16\r\n0123456789abcdefxx", /* of the right length, with another end */
        "$-2\r\n",
        "$99999999999999999999999\r\n",
        "$9223372036854775807\r\n",
        "$999999999999\r\n",
        "$x\r\n",
        ":12a\r\n",
        ":99999999999999999999999\r\n",
        ":-5\r\n",
        "*2147483647\r\n",
        "*9223372036854775807\r\n",
        "*-7\r\n",
        "*1\r\n$16\r\n0123456789abcdef\r\n",
        "*0\r\n",
        "-NOAUTH Authentication required.\r\n",
        "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-CLUSTERDOWN The cluster is down\r\n",
        "-ERR max number of clients reached\r\n",
        "-MOVED 1 256.0.0.1:1\r\n",
        "-ASK 99999 127.0.0.1:1\r\n",
        "-MOVED\r\n",
        "-\r\n",
        "+\r\n",
        "+NO\r\n",
        "%1\r\n+a\r\n+b\r\n",
        "#t\r\n",
    };
    if (!redis_server_can_run()) {
        return;
    }
    const int before = num_open_files();
    const double begin = redis_case_now();
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        fails_all(texts[i], strlen(texts[i]), fake_server_say);
    }
    CU_ASSERT(redis_case_now() - begin < 10 * HANG_SECONDS);
    CU_ASSERT_EQUAL(num_open_files(), before);
}

static void arrays_in_arrays_end_at_a_bound(void)
{
    if (!redis_server_can_run()) {
        return;
    }
    char text[4001] = ""; /* with a NUL: it names its case */
    for (size_t i = 0; i + 4 < sizeof text; i += 4) {
        memcpy(text + i, "*1\r\n", 4);
    }
    fails_all(text, sizeof text - 1, fake_server_say);
}

/* Text that never ends is not kept: the server is cut off soon after what a right answer has. */
static void what_is_held_of_an_answer_is_bounded_by_what_was_asked(void)
{
    static const char *const begins[] = {"$999999999999\r\n", "+", "-", ":"};
    if (!redis_server_can_run()) {
        return;
    }
    enum { BYTES = 65536 };
    char *text = malloc(BYTES);
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        memset(text, 'x', BYTES);
        memcpy(text, begins[i], strlen(begins[i]));
        struct fake_server server = {.answer = fake_server_flood, .text = text, .length = BYTES};
        CU_ASSERT_FATAL(fake_server_start(&server));
        pkv_tier *tier = tier_of(&server, false);
        char bytes[16];
        const enum pkv_status status = redis_case_get(tier, "a", bytes, sizeof bytes);
        ASSERT_CASE(begins[i], status == PKV_IO || status == PKV_CORRUPT);
        pkv_tier_destroy(tier);
        fake_server_stop(&server);
        /* Buffers of both sockets, not gigabytes. */
        ASSERT_CASE(begins[i], server.bytes_sent < (64 << 20));
    }
    free(text);
}

static void a_server_that_sends_a_byte_now_and_then_does_not_stretch_a_call(void)
{
    static const char *const begins[] = {"+", "$100000\r\n", "$100000000\r\n"};
    if (!redis_server_can_run()) {
        return;
    }
    const double begin = redis_case_now();
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        struct fake_server server = {
            .answer = fake_server_drip, .text = begins[i], .length = strlen(begins[i])};
        CU_ASSERT_FATAL(fake_server_start(&server));
        struct pkv_redis_config config = redis_case_config(server.port);
        config.connect_timeout_ms = 100;
        config.command_timeout_ms = 200;
        pkv_tier *tier = redis_case_tier(&config);
        char *bytes = malloc(100000);
        ASSERT_STATUS(PKV_IO, redis_case_get(tier, "a", bytes, 100000));
        free(bytes);
        pkv_tier_destroy(tier);
        fake_server_stop(&server);
    }
    CU_ASSERT(redis_case_now() - begin < HANG_SECONDS);
}

/* Nothing comes at all. The calls after the first are answered by the back-off: they do not
 * connect. */
static void a_silent_server_is_waited_for_once_and_then_left_alone(void)
{
    if (!redis_server_can_run()) {
        return;
    }
    struct fake_server server = {.answer = fake_server_stay, .text = "", .length = 0};
    CU_ASSERT_FATAL(fake_server_start(&server));
    struct pkv_redis_config config = redis_case_config(server.port);
    config.command_timeout_ms = 300;
    config.min_backoff_ms = 600000;
    config.max_backoff_ms = 600000;
    pkv_tier *tier = redis_case_tier(&config);
    const double begin = redis_case_now();
    for (int i = 0; i < 1000; i++) {
        CU_ASSERT_EQUAL(redis_case_find(tier, "a"), PKV_IO);
    }
    CU_ASSERT(redis_case_now() - begin < HANG_SECONDS);
    pkv_tier_destroy(tier);
    fake_server_stop(&server);
    CU_ASSERT(server.num_connections <= 1); /* 0: its thread had no turn before the time-out */
}

/* --- a server that sends the reader to another place, for ever */

static void send_away(struct fake_server *server, int fd)
{
    char text[128];
    snprintf(text, sizeof text, "-%s 1 127.0.0.1:%d\r\n", server->seed % 2 == 0 ? "MOVED" : "ASK",
             server->port);
    while (fake_server_wait(server, fd) && fake_server_send(server, fd, text, strlen(text))) {
    }
}

static void redirections_in_a_circle_end(void)
{
    if (!redis_server_can_run()) {
        return;
    }
    for (uint64_t seed = 0; seed < 2; seed++) {
        struct fake_server server = {.answer = send_away, .seed = seed};
        CU_ASSERT_FATAL(fake_server_start(&server));
        pkv_tier *tier = tier_of(&server, true);
        CU_ASSERT_EQUAL(call_all(tier), 10);
        pkv_tier_destroy(tier);
        tier = tier_of(&server, false);
        CU_ASSERT_EQUAL(call_all(tier), 10);
        pkv_tier_destroy(tier);
        fake_server_stop(&server);
    }
}

/* --- random answers */

static size_t random_reply(struct test_random *random, int32_t port, char *text, size_t size)
{
    static const char *const parts[] = {"+OK\r\n",    ":1\r\n",
                                        ":0\r\n",     "$16\r\n0123456789abcdef\r\n",
                                        "$-1\r\n",    "$0\r\n\r\n",
                                        "*2\r\n",     "*3\r\n",
                                        "*-1\r\n",    "*0\r\n",
                                        "$5\r\nab",   "-ERR no\r\n",
                                        "-OOM x\r\n", "-READONLY x\r\n",
                                        "\r\n",       "$9999999\r\n",
                                        "-",          "*",
                                        ":",          "$3\r\n123\r\n"};
    const int32_t kind = random_between(random, 0, 29);
    if (kind < 20) {
        return (size_t)snprintf(text, size, "%s", parts[kind]);
    }
    if (kind < 23) {
        return (size_t)snprintf(text, size, "-%s %d 127.0.0.1:%d\r\n", kind == 20 ? "ASK" : "MOVED",
                                random_between(random, 0, 16383), port);
    }
    if (kind < 27) { /* a table of slots, or almost */
        return (size_t)snprintf(
            text, size, "*1\r\n*3\r\n:%d\r\n:%d\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n",
            random_between(random, -1, 1), random_between(random, 0, 16384), port);
    }
    const size_t length = (size_t)random_between(random, 1, 60);
    for (size_t i = 0; i < length; i++) {
        text[i] = (char)random_u64(random);
    }
    return length;
}

static void say_at_random(struct fake_server *server, int fd)
{
    struct test_random random = {server->seed + 1000 * (uint64_t)server->num_connections};
    const int32_t num_replies = random_between(&random, 0, 20);
    for (int32_t i = 0; i < num_replies; i++) {
        char text[256];
        const size_t length = random_reply(&random, server->port, text, sizeof text);
        if (i % 3 == 0 && !fake_server_wait(server, fd)) {
            return;
        }
        if (!fake_server_send(server, fd, text, length)) {
            return;
        }
    }
}

static void random_answers_break_nothing(void)
{
    if (!redis_server_can_run()) {
        return;
    }
    const int before = num_open_files();
    const double begin = redis_case_now();
    struct fake_server server = {.answer = say_at_random, .seed = test_seed()};
    CU_ASSERT_FATAL(fake_server_start(&server));
    for (int is_cluster = 0; is_cluster < 2; is_cluster++) {
        pkv_tier *tier = tier_of(&server, is_cluster != 0);
        for (int i = 0; i < 60; i++) {
            call_all(tier);
        }
        pkv_tier_destroy(tier);
    }
    fake_server_stop(&server);
    CU_ASSERT(server.num_connections > 50);
    CU_ASSERT_EQUAL(num_open_files(), before);
    CU_ASSERT(redis_case_now() - begin < 10 * HANG_SECONDS);
}

static const struct test_case cases[] = {
    TEST(garbage_truncated_and_refusing_answers_fail_and_leave_nothing_open),
    TEST(arrays_in_arrays_end_at_a_bound),
    TEST(what_is_held_of_an_answer_is_bounded_by_what_was_asked),
    TEST(a_server_that_sends_a_byte_now_and_then_does_not_stretch_a_call),
    TEST(a_silent_server_is_waited_for_once_and_then_left_alone),
    TEST(redirections_in_a_circle_end),
    TEST(random_answers_break_nothing),
    TEST_END,
};

const struct test_suite suite_tier_redis_garbage = {"tier_redis_garbage", cases};
