/* SPDX-License-Identifier: MIT */
#include "tiers/redis_slots.h"

#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static int32_t slot_of(const char *key)
{
    return redis_slots_of(key, strlen(key));
}

/* As CLUSTER KEYSLOT answers. */
static void keys_have_the_slots_of_the_cluster_specification(void)
{
    CU_ASSERT_EQUAL(slot_of("123456789"), 0x31c3);
    CU_ASSERT_EQUAL(slot_of(""), 0);
    CU_ASSERT_EQUAL(slot_of("foo"), 12182);
    CU_ASSERT_EQUAL(slot_of("{user1000}.following"), slot_of("user1000"));
    CU_ASSERT_EQUAL(slot_of("foo{bar}{zap}"), slot_of("bar"));
    CU_ASSERT_EQUAL(slot_of("foo{{bar}}zap"), slot_of("{bar"));
    CU_ASSERT_NOT_EQUAL(slot_of("foo{}{bar}"), slot_of("bar"));
    CU_ASSERT_EQUAL(redis_slots_of("\xff\0\x80", 3), redis_slots_of("\xff\0\x80", 3));
}

static bool redirected(const char *error, struct redis_slots_redirect *redirect)
{
    return redis_slots_redirected(error, strlen(error), redirect);
}

static void a_redirection_is_read_and_nothing_else(void)
{
    struct redis_slots_redirect redirect;
    CU_ASSERT(redirected("MOVED 3999 127.0.0.1:6381", &redirect));
    CU_ASSERT(!redirect.is_ask && redirect.slot == 3999 && redirect.address.port == 6381);
    CU_ASSERT_STRING_EQUAL(redirect.address.host, "127.0.0.1");
    CU_ASSERT(redirected("ASK 16383 ::1:65535", &redirect));
    CU_ASSERT(redirect.is_ask && redirect.slot == 16383 && redirect.address.port == 65535);
    CU_ASSERT_STRING_EQUAL(redirect.address.host, "::1");
    CU_ASSERT(redirected("MOVED 0 :1", &redirect));
    CU_ASSERT_STRING_EQUAL(redirect.address.host, "");
    static const char *const wrong[] = {"",
                                        "MOVED",
                                        "MOVED ",
                                        "MOVED 1",
                                        "MOVED 1 ",
                                        "MOVED x:1",
                                        "MOVED 16384 a:1",
                                        "MOVED -1 a:1",
                                        "MOVED 1 a",
                                        "MOVED 1 a:",
                                        "MOVED 1 a:0",
                                        "MOVED 1 a:65536",
                                        "MOVED 1 a:999999",
                                        "MOVED 1 a:1x",
                                        "ASKED 1 a:1",
                                        "ERR MOVED 1 a:1",
                                        "MOVED 99999999999999999999 a:1",
                                        "A"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ASSERT_CASE(wrong[i], !redirected(wrong[i], &redirect));
    }
    char lengthy[400] = "MOVED 1 ";
    memset(lengthy + 8, 'h', 300);
    strcpy(lengthy + 308, ":1");
    CU_ASSERT(!redirected(lengthy, &redirect));
}

static struct redis_value number(int64_t integer, int32_t depth, int32_t range, int32_t a,
                                 int32_t b)
{
    return (struct redis_value){
        .type = REDIS_INTEGER, .integer = integer, .depth = depth, .places = {range, a, b}};
}

static void read_range(struct redis_slots *slots, int32_t range, int64_t first, int64_t last,
                       const char *host, int64_t port)
{
    const struct redis_value values[] = {
        {.type = REDIS_ARRAY, .depth = 1, .places = {range}},
        number(first, 2, range, 0, 0),
        number(last, 2, range, 1, 0),
        {.type = REDIS_ARRAY, .depth = 2, .places = {range, 2}},
        {.type = host != NULL ? REDIS_TEXT : REDIS_NIL,
         .text = host,
         .length = host != NULL ? strlen(host) : 0,
         .depth = 3,
         .places = {range, 2, 0}},
        number(port, 3, range, 2, 1),
        {.type = REDIS_ARRAY, .depth = 2, .places = {range, 3}}, /* a replica */
        {.type = REDIS_TEXT, .text = "other", .length = 5, .depth = 3, .places = {range, 3, 0}},
        number(1, 3, range, 3, 1),
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        CU_ASSERT(redis_slots_read(slots, &values[i]));
    }
}

static void a_table_is_read_range_by_range_and_a_malformed_range_is_nobodys(void)
{
    struct redis_slots *slots = malloc(sizeof *slots);
    redis_slots_clear(slots);
    const struct redis_value whole = {.type = REDIS_ARRAY};
    CU_ASSERT(redis_slots_read(slots, &whole));
    read_range(slots, 0, 0, 99, "a", 1);
    read_range(slots, 1, 100, 199, "b", 2);
    read_range(slots, 2, 200, 200, "a", 1);
    read_range(slots, 3, 201, 201, NULL, 7);
    read_range(slots, 4, 300, 16384, "b", 2);
    read_range(slots, 5, -1, 400, "b", 2);
    read_range(slots, 6, 500, 400, "b", 2);
    read_range(slots, 7, 600, 700, "b", 0);
    CU_ASSERT_EQUAL(slots->num_nodes, 3);
    CU_ASSERT_EQUAL(slots->node_of[0], 0);
    CU_ASSERT_EQUAL(slots->node_of[99], 0);
    CU_ASSERT_EQUAL(slots->node_of[100], 1);
    CU_ASSERT_EQUAL(slots->node_of[200], 0);
    CU_ASSERT_EQUAL(slots->node_of[201], 2);
    CU_ASSERT_STRING_EQUAL(slots->nodes[2].host, "");
    for (int32_t i = 202; i < REDIS_NUM_SLOTS; i++) {
        CU_ASSERT_EQUAL_FATAL(slots->node_of[i], -1);
    }
    const struct redis_value text = {.type = REDIS_TEXT, .text = "", .depth = 1};
    CU_ASSERT(!redis_slots_read(slots, &text));
    free(slots);
}

static void nodes_past_the_bound_have_no_slots(void)
{
    struct redis_slots *slots = malloc(sizeof *slots);
    redis_slots_clear(slots);
    for (int32_t i = 0; i < REDIS_MAX_NODES + 5; i++) {
        read_range(slots, i, i, i, "a", i + 1);
    }
    CU_ASSERT_EQUAL(slots->num_nodes, REDIS_MAX_NODES);
    CU_ASSERT_EQUAL(slots->node_of[REDIS_MAX_NODES - 1], REDIS_MAX_NODES - 1);
    CU_ASSERT_EQUAL(slots->node_of[REDIS_MAX_NODES], -1);
    free(slots);
}

static const struct test_case cases[] = {
    TEST(keys_have_the_slots_of_the_cluster_specification),
    TEST(a_redirection_is_read_and_nothing_else),
    TEST(a_table_is_read_range_by_range_and_a_malformed_range_is_nobodys),
    TEST(nodes_past_the_bound_have_no_slots),
    TEST_END,
};

const struct test_suite suite_tier_redis_slots = {"tier_redis_slots", cases};
