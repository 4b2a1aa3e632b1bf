/* SPDX-License-Identifier: MIT
 *
 * The Redis tier with a real server. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/redis_case.h"
#include "support/redis_server.h"
#include "tiers/tier.h"

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

/* --- creating */

static void a_build_without_hiredis_has_no_redis_tier(void)
{
    if (strstr(pkv_build_info(), ", no hiredis,") != NULL) {
        const struct pkv_redis_config config = redis_case_config(1);
        pkv_tier *tier = NULL;
        ASSERT_REFUSED(PKV_UNSUPPORTED, "built without hiredis",
                       pkv_tier_create_redis(&config, &tier));
        CU_ASSERT_PTR_NULL(tier);
    } else {
        CU_ASSERT_PTR_NOT_NULL(strstr(pkv_build_info(), ", hiredis "));
    }
}

static void refuse(const struct pkv_redis_config *config, enum pkv_status status, const char *part)
{
    pkv_tier *tier = NULL;
    ASSERT_CASE_REFUSED(part, status, part, pkv_tier_create_redis(config, &tier));
    ASSERT_CASE(part, tier == NULL);
}

static void a_wrong_config_is_refused_by_the_name_of_its_field(void)
{
    if (!redis_server_can_run()) {
        return;
    }
    char lengthy[5000];
    memset(lengthy, 'x', sizeof lengthy);
    lengthy[sizeof lengthy - 1] = '\0';
    const size_t size = sizeof(struct pkv_redis_config);
    const struct {
        struct pkv_redis_config config;
        const char *part;
    } rows[] = {
        {{.size = 8}, "config->size"},
        {{.size = size, .host = lengthy}, "config.host"},
        {{.size = size, .unix_socket = lengthy}, "config.unix_socket"},
        {{.size = size, .user = lengthy, .password = "x"}, "config.user"},
        {{.size = size, .user = "me"}, "config.user"},
        {{.size = size, .password = lengthy}, "config.password"},
        {{.size = size, .key_prefix = lengthy}, "config.key_prefix"},
        {{.size = size, .port = 65536}, "config.port"},
        {{.size = size, .port = -1}, "config.port"},
        {{.size = size, .database = -1}, "config.database"},
        {{.size = size, .ttl_seconds = -1}, "config.ttl_seconds"},
        {{.size = size, .connect_timeout_ms = 600001}, "config.connect_timeout_ms"},
        {{.size = size, .command_timeout_ms = -1}, "config.command_timeout_ms"},
        {{.size = size, .min_backoff_ms = -1}, "config.min_backoff_ms"},
        {{.size = size, .max_backoff_ms = -1}, "config.max_backoff_ms"},
        {{.size = size, .unix_socket = "s", .port = 1}, "config.unix_socket"},
        {{.size = size, .more_nodes = "a:1"}, "config.more_nodes"},
        {{.size = size, .is_cluster = true, .database = 1}, "config.database"},
        {{.size = size, .is_cluster = true, .unix_socket = "s"}, "config.unix_socket"},
        {{.size = size, .is_cluster = true, .more_nodes = "a:1,b"}, "\"b\""},
        {{.size = size, .is_cluster = true, .more_nodes = ":1"}, "config.more_nodes"},
        {{.size = size, .is_cluster = true, .more_nodes = "a:99999"}, "config.more_nodes"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        refuse(&rows[i].config, PKV_INVALID_ARGUMENT, rows[i].part);
    }
    const struct pkv_redis_config tls = {.size = size, .use_tls = true};
    refuse(&tls, PKV_UNSUPPORTED, "config.use_tls");
    const struct pkv_redis_config config = redis_case_config(1);
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "tier", pkv_tier_create_redis(&config, NULL));
}

static void a_dead_server_is_no_error_of_create_and_all_of_its_items_fail(void)
{
    if (!redis_server_can_run()) {
        return;
    }
    int32_t port = 0;
    const int listener = redis_server_listen(&port);
    close(listener);
    const struct pkv_redis_config config = redis_case_config(port);
    pkv_tier *tier = redis_case_tier(&config);
    for (int i = 0; i < 20; i++) {
        ASSERT_STATUS(PKV_IO, redis_case_put(tier, "a", "x", 1));
        ASSERT_STATUS(PKV_IO, redis_case_find(tier, "a"));
        CU_ASSERT_EQUAL(redis_case_count(tier, "a", 1), -1);
    }
    pkv_tier_destroy(tier);
}

/* --- values */

/* Writes and reads a value of seeded bytes, in pieces of different lengths, some of them empty. */
static void go_round(const pkv_tier *tier, size_t bytes, int32_t num_pieces)
{
    struct test_random random = {test_seed() + bytes};
    unsigned char *written = malloc(bytes + 1);
    unsigned char *read = malloc(bytes + 1);
    struct pkv_piece *out = calloc((size_t)num_pieces, sizeof *out);
    struct pkv_piece *in = calloc((size_t)num_pieces, sizeof *in);
    for (size_t i = 0; i < bytes; i++) {
        written[i] = (unsigned char)random_u64(&random);
    }
    memset(read, 0xaa, bytes + 1);
    size_t at = 0;
    for (int32_t i = 0; i < num_pieces; i++) {
        const size_t length = i == num_pieces - 1 ? bytes - at
                              : i % 5 == 3        ? 0
                                                  : (bytes - at) / (size_t)(num_pieces - i);
        out[i] = (struct pkv_piece){written + at, length};
        in[num_pieces - 1 - i] = (struct pkv_piece){NULL, 0};
        at += length;
    }
    at = 0;
    for (int32_t i = 0; i < num_pieces; i++) { /* other pieces than those that were written */
        const size_t length =
            i == num_pieces - 1 ? bytes - at : (bytes - at) / (size_t)(num_pieces - i);
        in[i] = (struct pkv_piece){read + at, length};
        at += length;
    }
    struct pkv_tier_item item = {
        .name = "value", .pieces = out, .num_pieces = num_pieces, .bytes = bytes};
    tier_put(tier, &item, 1);
    CU_ASSERT_EQUAL(item.status, PKV_OK);
    item.pieces = in;
    tier_get(tier, &item, 1);
    CU_ASSERT_EQUAL(item.status, PKV_OK);
    CU_ASSERT_EQUAL(memcmp(written, read, bytes), 0);
    CU_ASSERT_EQUAL(read[bytes], 0xaa);
    free(written);
    free(read);
    free(out);
    free(in);
}

static void a_value_of_any_length_in_any_pieces_comes_back(void)
{
    if (!start(NULL)) {
        return;
    }
    pkv_tier *tier = tier_of_server();
    go_round(tier, 0, 1);
    go_round(tier, 1, 1);
    go_round(tier, 1, 7);
    go_round(tier, 1000, 3);
    go_round(tier, 1 << 20, 1);
    go_round(tier, 1 << 20, 500);
    go_round(tier, 8 << 20, 3000);
    struct pkv_tier_item empty = {.name = "empty"};
    tier_put(tier, &empty, 1);
    CU_ASSERT_EQUAL(empty.status, PKV_OK);
    tier_get(tier, &empty, 1);
    CU_ASSERT_EQUAL(empty.status, PKV_OK);
    stop(tier);
}

static void a_value_is_found_until_it_is_removed_and_a_miss_is_a_miss(void)
{
    if (!start(NULL)) {
        return;
    }
    pkv_tier *tier = tier_of_server();
    char byte = 'z';
    ASSERT_STATUS(PKV_NOT_FOUND, redis_case_get(tier, "a", &byte, 1));
    ASSERT_STATUS(PKV_NOT_FOUND, redis_case_find(tier, "a"));
    ASSERT_STATUS(PKV_NOT_FOUND, redis_case_remove(tier, "a"));
    ASSERT_STATUS(PKV_OK, redis_case_put(tier, "a", "old", 3));
    ASSERT_STATUS(PKV_OK, redis_case_put(tier, "a", "x", 1));
    ASSERT_STATUS(PKV_OK, redis_case_find(tier, "a"));
    ASSERT_STATUS(PKV_OK, redis_case_get(tier, "a", &byte, 1));
    CU_ASSERT_EQUAL(byte, 'x');
    ASSERT_STATUS(PKV_OK, redis_case_remove(tier, "a"));
    ASSERT_STATUS(PKV_NOT_FOUND, redis_case_get(tier, "a", &byte, 1));
    char reply[64];
    ASSERT_STATUS(PKV_OK, redis_case_put(tier, "a.b-1", "x", 1));
    CU_ASSERT(redis_server_command(server.port, "EXISTS pagedkv:a.b-1", reply, sizeof reply));
    CU_ASSERT_STRING_EQUAL(reply, ":1\r\n");
    stop(tier);
}

/* Also longer than all that may be held of an answer; what comes behind it is still read. */
static void a_value_of_another_length_is_corrupt_and_those_beside_it_are_read(void)
{
    if (!start(NULL)) {
        return;
    }
    pkv_tier *tier = tier_of_server();
    char *lengthy = calloc(1, 4 << 20);
    ASSERT_STATUS(PKV_OK, redis_case_put(tier, "long", lengthy, 4 << 20));
    ASSERT_STATUS(PKV_OK, redis_case_put(tier, "short", "xy", 2));
    ASSERT_STATUS(PKV_OK, redis_case_put(tier, "right", "xyz", 3));
    char bytes[3][3] = {{0}};
    const struct pkv_piece pieces[3] = {{bytes[0], 3}, {bytes[1], 3}, {bytes[2], 3}};
    struct pkv_tier_item items[4] = {
        {.name = "long", .pieces = &pieces[0], .num_pieces = 1, .bytes = 3},
        {.name = "short", .pieces = &pieces[1], .num_pieces = 1, .bytes = 3},
        {.name = "right", .pieces = &pieces[2], .num_pieces = 1, .bytes = 3},
        {.name = "none", .pieces = &pieces[1], .num_pieces = 1, .bytes = 3}};
    tier_get(tier, items, 4);
    CU_ASSERT_EQUAL(items[0].status, PKV_CORRUPT);
    CU_ASSERT_EQUAL(items[1].status, PKV_CORRUPT);
    CU_ASSERT_EQUAL(items[2].status, PKV_OK);
    CU_ASSERT_EQUAL(items[3].status, PKV_NOT_FOUND);
    CU_ASSERT_EQUAL(memcmp(bytes[2], "xyz", 3), 0);
    char reply[64];
    CU_ASSERT(redis_server_command(server.port, "LPUSH pagedkv:list x", reply, sizeof reply));
    ASSERT_STATUS(PKV_CORRUPT, redis_case_get(tier, "list", bytes, 3));
    ASSERT_STATUS(PKV_OK, redis_case_remove(tier, "list"));
    free(lengthy);
    stop(tier);
}

/* Puts, finds and gets that many values in one call each. */
static void go_round_at_once(const pkv_tier *tier, int32_t num, size_t bytes)
{
    enum { MAX_VALUES = 60 };
    unsigned char *all = malloc((size_t)num * bytes);
    struct pkv_tier_item items[MAX_VALUES] = {{.name = NULL}};
    struct pkv_piece pieces[MAX_VALUES];
    char names[MAX_VALUES][24];
    for (int i = 0; i < num; i++) {
        snprintf(names[i], sizeof names[i], "v%d", i);
        memset(all + (size_t)i * bytes, i + 1, bytes);
        pieces[i] = (struct pkv_piece){all + (size_t)i * bytes, bytes};
        items[i] = (struct pkv_tier_item){
            .name = names[i], .pieces = &pieces[i], .num_pieces = 1, .bytes = bytes};
    }
    tier_put(tier, items, num);
    memset(all, 0, (size_t)num * bytes);
    tier_find(tier, items, num);
    CU_ASSERT_EQUAL(items[num - 1].status, PKV_OK);
    tier_get(tier, items, num);
    int wrong = 0;
    for (int i = 0; i < num; i++) {
        wrong += items[i].status != PKV_OK;
        wrong += all[(size_t)i * bytes] != i + 1 || all[(size_t)(i + 1) * bytes - 1] != i + 1;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    free(all);
}

/* 60 MiB in one call: several windows of what may be on the way. */
static void many_values_go_in_one_call(void)
{
    if (!start(NULL)) {
        return;
    }
    pkv_tier *tier = tier_of_server();
    go_round_at_once(tier, 60, 1 << 20);
    stop(tier);
}

/* Of two values that are more than a window together, the second is sent when the first is
 * answered, though nothing else wakes the call then. */
static void values_that_fill_the_window_go_one_after_the_other(void)
{
    if (!start(NULL)) {
        return;
    }
    pkv_tier *tier = tier_of_server();
    go_round_at_once(tier, 4, 9 << 20);
    stop(tier);
}

static void a_value_that_no_server_takes_is_refused(void)
{
    if (!start(NULL)) {
        return;
    }
    pkv_tier *tier = tier_of_server();
    struct pkv_tier_item items[2] = {{.name = "large", .bytes = ((size_t)512 << 20) + 1},
                                     {.name = "small"}};
    tier_put(tier, items, 2);
    CU_ASSERT_EQUAL(items[0].status, PKV_NO_BLOCKS);
    CU_ASSERT_EQUAL(items[1].status, PKV_OK);
    stop(tier);
}

static void counters_are_shared_by_all_tiers_of_a_server(void)
{
    if (!start(NULL)) {
        return;
    }
    pkv_tier *first = tier_of_server();
    pkv_tier *second = tier_of_server();
    CU_ASSERT_EQUAL(redis_case_count(first, "n", 0), 0);
    CU_ASSERT_EQUAL(redis_case_count(first, "n", 3), 3);
    CU_ASSERT_EQUAL(redis_case_count(second, "n", 4), 7);
    CU_ASSERT_EQUAL(redis_case_count(first, "n", 0), 7);
    CU_ASSERT_EQUAL(redis_case_count(first, "m", 0), 0);
    /* A value may have the name of a counter. */
    ASSERT_STATUS(PKV_OK, redis_case_put(first, "n", "x", 1));
    CU_ASSERT_EQUAL(redis_case_count(second, "n", 1), 8);
    char reply[64];
    CU_ASSERT(redis_server_command(server.port, "SET pagedkv:+n no-number", reply, sizeof reply));
    CU_ASSERT_EQUAL(redis_case_count(second, "n", 1), -1);
    CU_ASSERT_EQUAL(redis_case_count(second, "n", 0), -1);
    CU_ASSERT_EQUAL(redis_case_count(second, "m", UINT64_MAX), -1);
    pkv_tier_destroy(second);
    stop(first);
}

static void values_live_as_long_as_they_are_told(void)
{
    if (!start(NULL)) {
        return;
    }
    struct pkv_redis_config config = redis_case_config(server.port);
    char reply[64];
    config.ttl_seconds = 1000;
    pkv_tier *tier = redis_case_tier(&config);
    ASSERT_STATUS(PKV_OK, redis_case_put(tier, "a", "x", 1));
    CU_ASSERT_EQUAL(redis_case_count(tier, "c", 1), 1);
    CU_ASSERT(redis_server_command(server.port, "TTL pagedkv:a", reply, sizeof reply));
    const int ttl = atoi(reply + 1);
    CU_ASSERT(ttl > 900 && ttl <= 1000);
    CU_ASSERT(redis_server_command(server.port, "TTL pagedkv:+c", reply, sizeof reply));
    CU_ASSERT_STRING_EQUAL(reply, ":-1\r\n");
    pkv_tier_destroy(tier);
    config.ttl_seconds = 1;
    tier = redis_case_tier(&config);
    ASSERT_STATUS(PKV_OK, redis_case_put(tier, "b", "x", 1));
    CU_ASSERT(redis_server_wait(server.port, "EXISTS pagedkv:b", ":0"));
    ASSERT_STATUS(PKV_NOT_FOUND, redis_case_find(tier, "b"));
    stop(tier);
}

static void keys_begin_with_the_prefix_and_lie_in_the_database(void)
{
    if (!start(NULL)) {
        return;
    }
    struct pkv_redis_config config = redis_case_config(server.port);
    pkv_tier *usual = redis_case_tier(&config);
    config.key_prefix = "mine:";
    pkv_tier *mine = redis_case_tier(&config);
    config.database = 3;
    pkv_tier *third = redis_case_tier(&config);
    ASSERT_STATUS(PKV_OK, redis_case_put(mine, "a", "x", 1));
    ASSERT_STATUS(PKV_NOT_FOUND, redis_case_find(usual, "a"));
    ASSERT_STATUS(PKV_NOT_FOUND, redis_case_find(third, "a"));
    ASSERT_STATUS(PKV_OK, redis_case_find(mine, "a"));
    config.database = 1000; /* there are 16 */
    pkv_tier *none = redis_case_tier(&config);
    ASSERT_STATUS(PKV_IO, redis_case_find(none, "a"));
    pkv_tier_destroy(none);
    pkv_tier_destroy(third);
    pkv_tier_destroy(mine);
    stop(usual);
}

static const struct test_case cases[] = {
    TEST(a_build_without_hiredis_has_no_redis_tier),
    TEST(a_wrong_config_is_refused_by_the_name_of_its_field),
    TEST(a_dead_server_is_no_error_of_create_and_all_of_its_items_fail),
    TEST(a_value_of_any_length_in_any_pieces_comes_back),
    TEST(a_value_is_found_until_it_is_removed_and_a_miss_is_a_miss),
    TEST(a_value_of_another_length_is_corrupt_and_those_beside_it_are_read),
    TEST(many_values_go_in_one_call),
    TEST(values_that_fill_the_window_go_one_after_the_other),
    TEST(a_value_that_no_server_takes_is_refused),
    TEST(counters_are_shared_by_all_tiers_of_a_server),
    TEST(values_live_as_long_as_they_are_told),
    TEST(keys_begin_with_the_prefix_and_lie_in_the_database),
    TEST_END,
};

const struct test_suite suite_tier_redis = {"tier_redis", cases};
