/* SPDX-License-Identifier: MIT
 *
 * The Redis tier with a cluster of three nodes. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/redis_case.h"
#include "support/redis_server.h"
#include "tiers/redis_slots.h"
#include "tiers/tier.h"

enum { NUM_NODES = 3, SLOTS_A_NODE = 5462 };

static struct redis_server nodes[NUM_NODES];

static bool say(int node, const char *command, const char *expected)
{
    char reply[256];
    const bool right = redis_server_command(nodes[node].port, command, reply, sizeof reply) &&
                       strncmp(reply, expected, strlen(expected)) == 0;
    ASSERT_CASE(command, right);
    return right;
}

static void stop_cluster(void)
{
    for (int i = 0; i < NUM_NODES; i++) {
        redis_server_stop(&nodes[i], true);
    }
}

static int owner_of(const char *name)
{
    char key[128];
    snprintf(key, sizeof key, "pagedkv:%s", name);
    return redis_slots_of(key, strlen(key)) / SLOTS_A_NODE;
}

static bool launch(int node)
{
    static const char *const arguments[] = {"--cluster-enabled",
                                            "yes",
                                            "--cluster-require-full-coverage",
                                            "no",
                                            "--cluster-node-timeout",
                                            "5000",
                                            NULL};
    char command[128];
    const int last = node == NUM_NODES - 1 ? REDIS_NUM_SLOTS - 1 : (node + 1) * SLOTS_A_NODE - 1;
    snprintf(command, sizeof command, "CLUSTER ADDSLOTSRANGE %d %d", node * SLOTS_A_NODE, last);
    return redis_server_start(&nodes[node], 0, arguments) && say(node, command, "+OK");
}

/* Every node knows every slot. */
static bool start_cluster(void)
{
    if (!redis_server_can_run()) {
        return false;
    }
    memset(nodes, 0, sizeof nodes);
    bool runs = true;
    for (int i = 0; i < NUM_NODES && runs; i++) {
        runs = launch(i);
    }
    for (int i = 1; i < NUM_NODES && runs; i++) {
        char command[128];
        snprintf(command, sizeof command, "CLUSTER MEET 127.0.0.1 %d", nodes[i].port);
        runs = say(0, command, "+OK");
    }
    for (int i = 0; i < NUM_NODES && runs; i++) {
        runs = redis_server_wait(nodes[i].port, "CLUSTER INFO", "cluster_slots_ok:16384") &&
               redis_server_wait(nodes[i].port, "CLUSTER INFO", "cluster_state:ok");
    }
    CU_ASSERT(runs);
    if (!runs) {
        stop_cluster();
    }
    return runs;
}

/* The tier is told of one node alone. */
static pkv_tier *tier_of(int node)
{
    struct pkv_redis_config config = redis_case_config(nodes[node].port);
    config.is_cluster = true;
    config.command_timeout_ms = 2000;
    return redis_case_tier(&config);
}

enum { NUM_VALUES = 500 };

struct values {
    char names[NUM_VALUES][24];
    int numbers[NUM_VALUES];
    struct pkv_piece pieces[NUM_VALUES];
    struct pkv_tier_item items[NUM_VALUES];
};

static void number_values(struct values *values)
{
    for (int i = 0; i < NUM_VALUES; i++) {
        snprintf(values->names[i], sizeof values->names[i], "value-%d", i);
        values->numbers[i] = i;
        values->pieces[i] = (struct pkv_piece){&values->numbers[i], sizeof(int)};
        values->items[i] = (struct pkv_tier_item){.name = values->names[i],
                                                  .pieces = &values->pieces[i],
                                                  .num_pieces = 1,
                                                  .bytes = sizeof(int)};
    }
}

/* Reads all and counts the answers by status; a value that is found is the right one. */
static int read_values(const pkv_tier *tier, struct values *values, enum pkv_status status)
{
    for (int i = 0; i < NUM_VALUES; i++) {
        values->numbers[i] = -1;
    }
    tier_get(tier, values->items, NUM_VALUES);
    int count = 0;
    for (int i = 0; i < NUM_VALUES; i++) {
        count += values->items[i].status == status;
        CU_ASSERT(values->items[i].status != PKV_OK || values->numbers[i] == i);
    }
    return count;
}

static int count_of_node(const struct values *values, int node)
{
    int count = 0;
    for (int i = 0; i < NUM_VALUES; i++) {
        count += owner_of(values->names[i]) == node;
    }
    return count;
}

static void values_and_counters_lie_on_the_nodes_of_their_slots(void)
{
    if (!start_cluster()) {
        return;
    }
    static struct values values;
    number_values(&values);
    pkv_tier *tier = tier_of(1);
    tier_put(tier, values.items, NUM_VALUES);
    CU_ASSERT_EQUAL(read_values(tier, &values, PKV_OK), NUM_VALUES);
    for (int i = 0; i < NUM_NODES; i++) {
        char expected[32];
        snprintf(expected, sizeof expected, ":%d\r\n", count_of_node(&values, i));
        say(i, "DBSIZE", expected);
    }
    pkv_tier *other = tier_of(2);
    CU_ASSERT_EQUAL(redis_case_count(tier, "a", 2), 2);
    CU_ASSERT_EQUAL(redis_case_count(tier, "b", 3), 3);
    CU_ASSERT_EQUAL(redis_case_count(other, "a", 1), 3);
    tier_remove(other, values.items, NUM_VALUES);
    CU_ASSERT_EQUAL(read_values(tier, &values, PKV_NOT_FOUND), NUM_VALUES);
    pkv_tier_destroy(other);
    pkv_tier_destroy(tier);
    stop_cluster();
}

static void node_id(int node, char *id)
{
    char reply[256] = "";
    redis_server_command(nodes[node].port, "CLUSTER MYID", reply, sizeof reply);
    const char *begin = strstr(reply, "\r\n");
    snprintf(id, 64, "%.40s", begin != NULL ? begin + 2 : "");
}

static void set_slot(int node, int32_t slot, const char *state, int other)
{
    char id[64];
    char command[256];
    node_id(other, id);
    snprintf(command, sizeof command, "CLUSTER SETSLOT %d %s %s", slot, state, id);
    say(node, command, "+OK");
}

/* Names with one slot: the first is `name` itself. */
static void find_sibling(const char *name, char *sibling, size_t size)
{
    char key[128];
    snprintf(key, sizeof key, "pagedkv:%s", name);
    const int32_t slot = redis_slots_of(key, strlen(key));
    for (int i = 0; i < 10000000; i++) {
        snprintf(sibling, size, "s%d", i);
        snprintf(key, sizeof key, "pagedkv:%s", sibling);
        if (redis_slots_of(key, strlen(key)) == slot) {
            return;
        }
    }
}

/* A slot moves from node to node as redis-cli does it: importing, migrating, keys, then its new
 * owner. Everything in it is there at every moment. */
static void a_slot_may_move_while_its_values_are_used(void)
{
    if (!start_cluster()) {
        return;
    }
    char sibling[32];
    char command[256];
    char value = 0;
    static const char name[] = "moving";
    find_sibling(name, sibling, sizeof sibling);
    const int32_t slot = redis_slots_of("pagedkv:moving", strlen("pagedkv:moving"));
    const int from = owner_of(name);
    const int to = (from + 1) % NUM_NODES;
    pkv_tier *tier = tier_of(from);
    ASSERT_STATUS(PKV_OK, redis_case_put(tier, name, "x", 1));
    set_slot(to, slot, "IMPORTING", from);
    set_slot(from, slot, "MIGRATING", to);
    ASSERT_STATUS(PKV_OK, redis_case_get(tier, name, &value, 1)); /* still here */
    CU_ASSERT_EQUAL(value, 'x');
    ASSERT_STATUS(PKV_OK, redis_case_put(tier, sibling, "y", 1)); /* ASK: already there */
    ASSERT_STATUS(PKV_OK, redis_case_get(tier, sibling, &value, 1));
    CU_ASSERT_EQUAL(value, 'y');
    snprintf(command, sizeof command, "MIGRATE 127.0.0.1 %d pagedkv:moving 0 5000", nodes[to].port);
    say(from, command, "+OK");
    ASSERT_STATUS(PKV_OK, redis_case_get(tier, name, &value, 1)); /* ASK */
    CU_ASSERT_EQUAL(value, 'x');
    set_slot(to, slot, "NODE", to);
    set_slot(from, slot, "NODE", to);
    ASSERT_STATUS(PKV_OK, redis_case_get(tier, name, &value, 1)); /* MOVED */
    CU_ASSERT_EQUAL(value, 'x');
    ASSERT_STATUS(PKV_OK, redis_case_find(tier, sibling));
    ASSERT_STATUS(PKV_OK, redis_case_remove(tier, name));
    ASSERT_STATUS(PKV_NOT_FOUND, redis_case_get(tier, name, &value, 1));
    pkv_tier_destroy(tier);
    stop_cluster();
}

static void a_dead_node_costs_its_own_values_alone(void)
{
    if (!start_cluster()) {
        return;
    }
    static struct values values;
    number_values(&values);
    pkv_tier *tier = tier_of(0);
    tier_put(tier, values.items, NUM_VALUES);
    const int lost = count_of_node(&values, 1);
    redis_server_stop(&nodes[1], false);
    for (int i = 0; i < 5; i++) {
        CU_ASSERT_EQUAL(read_values(tier, &values, PKV_OK), NUM_VALUES - lost);
        CU_ASSERT_EQUAL(read_values(tier, &values, PKV_IO), lost);
    }
    pkv_tier_destroy(tier);
    tier = tier_of(1); /* the node that is told is the dead one */
    CU_ASSERT_EQUAL(read_values(tier, &values, PKV_IO), NUM_VALUES);
    pkv_tier_destroy(tier);
    char more[64];
    snprintf(more, sizeof more, "127.0.0.1:%d,127.0.0.1:%d", nodes[1].port, nodes[2].port);
    struct pkv_redis_config config = redis_case_config(nodes[1].port);
    config.is_cluster = true;
    config.more_nodes = more;
    tier = redis_case_tier(&config);
    CU_ASSERT_EQUAL(read_values(tier, &values, PKV_OK), NUM_VALUES - lost);
    pkv_tier_destroy(tier);
    stop_cluster();
}

static void a_stopped_node_costs_its_own_values_alone(void)
{
    if (!start_cluster()) {
        return;
    }
    static struct values values;
    number_values(&values);
    struct pkv_redis_config config = redis_case_config(nodes[0].port);
    config.is_cluster = true;
    config.command_timeout_ms = 1000; /* for a busy machine too: one that is late stays away */
    config.min_backoff_ms = 600000;
    config.max_backoff_ms = 600000;
    pkv_tier *tier = redis_case_tier(&config);
    tier_put(tier, values.items, NUM_VALUES);
    const int lost = count_of_node(&values, 2);
    redis_server_signal(&nodes[2], SIGSTOP);
    for (int i = 0; i < 5; i++) {
        CU_ASSERT_EQUAL(read_values(tier, &values, PKV_OK), NUM_VALUES - lost);
    }
    redis_server_signal(&nodes[2], SIGCONT);
    pkv_tier_destroy(tier);
    stop_cluster();
}

/* A tier that is not told that it is one sees its own node's share. */
static void a_cluster_that_is_taken_for_a_server_fails_what_is_elsewhere(void)
{
    if (!start_cluster()) {
        return;
    }
    static struct values values;
    number_values(&values);
    const struct pkv_redis_config config = redis_case_config(nodes[0].port);
    pkv_tier *tier = redis_case_tier(&config);
    tier_put(tier, values.items, NUM_VALUES);
    CU_ASSERT_EQUAL(read_values(tier, &values, PKV_OK), count_of_node(&values, 0));
    pkv_tier_destroy(tier);
    stop_cluster();
}

static const struct test_case cases[] = {
    TEST(values_and_counters_lie_on_the_nodes_of_their_slots),
    TEST(a_slot_may_move_while_its_values_are_used),
    TEST(a_dead_node_costs_its_own_values_alone),
    TEST(a_stopped_node_costs_its_own_values_alone),
    TEST(a_cluster_that_is_taken_for_a_server_fails_what_is_elsewhere),
    TEST_END,
};

const struct test_suite suite_tier_redis_cluster = {"tier_redis_cluster", cases};
