/* SPDX-License-Identifier: MIT
 *
 * Namespaces of the prefix index: who may see whose blocks, quotas, and what a flush or a reset
 * leaves. */
#include "prefix/prefix_index.h"

#include <string.h>

#include "prefix/prefix_quota.h"
#include "prefix_case.h"

#define BS 4
#define SALT 1
#define TENANT 2
#define ADAPTER 3

static const struct prefix_config one_group = {.block_size = BS, .num_groups = 1};

static struct pkv_namespace_field text(int32_t tag, const char *bytes)
{
    return (struct pkv_namespace_field){tag, (int32_t)strlen(bytes), bytes, 0};
}

static struct prefix_scope scope_of(struct prefix_case *fixture,
                                    const struct pkv_namespace_field *fields, int32_t num_fields)
{
    struct prefix_scope scope = {0};
    ASSERT_STATUS(PKV_OK, prefix_scope_open(fixture->index, fields, num_fields, &scope));
    CU_ASSERT_FATAL(scope.count > 0);
    return scope;
}

static int32_t hit_in(struct prefix_case *fixture, const struct pkv_namespace_field *fields,
                      int32_t num_fields, int32_t num_blocks)
{
    struct prefix_scope scope = {0};
    ASSERT_STATUS(PKV_OK, prefix_scope_find(fixture->index, fields, num_fields, &scope));
    return prefix_case_hit(fixture, &scope, prefix_case_tokens, num_blocks);
}

static void cache_in(struct prefix_case *fixture, const struct pkv_namespace_field *fields,
                     int32_t num_fields, int32_t num_blocks)
{
    struct prefix_scope scope = scope_of(fixture, fields, num_fields);
    prefix_case_cache(fixture, &scope, prefix_case_tokens, num_blocks);
    prefix_scope_close(fixture->index, &scope);
}

static enum pkv_status set_quota(struct prefix_case *fixture, int32_t tag, const char *bytes,
                                 int64_t quota)
{
    const struct pkv_namespace_field field = text(tag, bytes);
    return prefix_index_set_quota(fixture->index, &field, quota);
}

static enum pkv_status usage_of(const struct prefix_case *fixture, int32_t tag, const char *bytes,
                                struct prefix_usage *usage)
{
    const struct pkv_namespace_field field = text(tag, bytes);
    return prefix_index_usage(fixture->index, &field, usage);
}

/* D3: namespace fields carry tag and length, so no two lists of them run together. */
static void fields_are_told_apart_by_tag_and_length(void)
{
    const struct pkv_namespace_field sets[][2] = {
        {text(TENANT, "org_1"), text(SALT, "2345")}, {text(TENANT, "org_12345"), text(SALT, "")},
        {text(TENANT, "2345"), text(SALT, "org_1")}, {text(TENANT, ""), text(SALT, "org_12345")},
        {text(TENANT, ""), text(SALT, "")},          {text(ADAPTER, "org_1"), text(SALT, "2345")},
    };
    const int32_t num_sets = (int32_t)(sizeof sets / sizeof sets[0]);
    struct prefix_case fixture;
    prefix_case_open(&fixture, &one_group, 16);
    for (int32_t i = 0; i < num_sets; i++) {
        for (int32_t j = 0; j < num_sets; j++) {
            CU_ASSERT_EQUAL(hit_in(&fixture, sets[j], 2, 1), j < i);
        }
        cache_in(&fixture, sets[i], 2, 1);
    }
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), num_sets);
    prefix_case_close(&fixture);
}

/* D3: a field's tag is part of it, so one name under two tags is two namespaces. */
static void the_same_name_as_salt_and_as_adapter_is_two_namespaces(void)
{
    const struct pkv_namespace_field salt = text(SALT, "S");
    const struct pkv_namespace_field adapter = text(ADAPTER, "S");
    struct prefix_case fixture;
    prefix_case_open(&fixture, &one_group, 8);
    cache_in(&fixture, &salt, 1, 1);
    CU_ASSERT_EQUAL(hit_in(&fixture, &adapter, 1, 1), 0);
    CU_ASSERT_EQUAL(hit_in(&fixture, &salt, 1, 1), 1);
    prefix_case_close(&fixture);
}

/* D3: an empty field is not an absent one, and the order of fields has no meaning. */
static void absent_and_empty_differ_and_order_does_not_matter(void)
{
    const struct pkv_namespace_field empty = {SALT, 0, NULL, 0};
    const struct pkv_namespace_field two[] = {text(TENANT, "t"), text(SALT, "s")};
    const struct pkv_namespace_field swapped[] = {two[1], two[0]};
    struct prefix_case fixture;
    prefix_case_open(&fixture, &one_group, 8);
    cache_in(&fixture, NULL, 0, 1);
    CU_ASSERT_EQUAL(hit_in(&fixture, &empty, 1, 1), 0);
    cache_in(&fixture, &empty, 1, 1);
    CU_ASSERT_EQUAL(hit_in(&fixture, &empty, 1, 1), 1);
    CU_ASSERT_EQUAL(hit_in(&fixture, NULL, 0, 1), 1);
    CU_ASSERT_EQUAL(hit_in(&fixture, two, 2, 1), 0);
    cache_in(&fixture, two, 2, 1);
    CU_ASSERT_EQUAL(hit_in(&fixture, swapped, 2, 1), 1);
    CU_ASSERT_EQUAL(hit_in(&fixture, two, 1, 1), 0);
    CU_ASSERT_EQUAL(hit_in(&fixture, swapped, 1, 1), 0);
    prefix_case_close(&fixture);
}

/* D4: another salt finds nothing, the same salt everything. */
static void another_salt_hits_nothing_and_the_same_hits_all(void)
{
    for (int32_t bits = 0; bits <= 128; bits += 64) {
        const struct pkv_namespace_field mine = text(SALT, "mine");
        const struct pkv_namespace_field yours = text(SALT, "yours");
        struct prefix_config config = one_group;
        struct prefix_case fixture;
        config.masked_key_bits = PREFIX_KEY_BITS - bits;
        prefix_case_open(&fixture, &config, 16);
        cache_in(&fixture, &mine, 1, 3);
        CU_ASSERT_EQUAL(hit_in(&fixture, &yours, 1, 3), 0);
        cache_in(&fixture, &yours, 1, 2);
        CU_ASSERT_EQUAL(hit_in(&fixture, &yours, 1, 3), 2);
        CU_ASSERT_EQUAL(hit_in(&fixture, &mine, 1, 3), 3);
        CU_ASSERT_EQUAL(hit_in(&fixture, NULL, 0, 3), 0);
        prefix_case_close(&fixture);
    }
}

/* D4: a salt may begin at a later token; the blocks before it are shared. */
static void a_salt_from_an_offset_leaves_the_blocks_before_it_shared(void)
{
    struct pkv_namespace_field mine[] = {text(SALT, "mine"), text(TENANT, "t")};
    struct pkv_namespace_field yours[] = {text(SALT, "yours"), text(TENANT, "t")};
    struct prefix_case fixture;
    prefix_case_open(&fixture, &one_group, 32);
    mine[0].begins_at = yours[0].begins_at = 2 * BS; /* the first token of block 2 */
    cache_in(&fixture, mine, 2, 4);
    CU_ASSERT_EQUAL(hit_in(&fixture, mine, 2, 4), 4);
    CU_ASSERT_EQUAL(hit_in(&fixture, yours, 2, 4), 2);
    CU_ASSERT_EQUAL(hit_in(&fixture, &yours[1], 1, 4), 2);
    yours[0].begins_at = 2 * BS - 1; /* the last token of block 1: it is the salt's own */
    CU_ASSERT_EQUAL(hit_in(&fixture, yours, 2, 4), 1);
    mine[0].begins_at = 2 * BS - 1;
    CU_ASSERT_EQUAL(hit_in(&fixture, mine, 2, 4), 1);
    mine[0].begins_at = 3 * BS - 1;
    CU_ASSERT_EQUAL(hit_in(&fixture, mine, 2, 4), 4);
    cache_in(&fixture, yours, 2, 4);
    CU_ASSERT_EQUAL(hit_in(&fixture, yours, 2, 4), 4);
    CU_ASSERT_EQUAL(hit_in(&fixture, mine, 2, 4), 4);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 7);
    prefix_case_close(&fixture);
}

/* D5: the version of an adapter is part of the key. */
static void another_version_of_an_adapter_hits_nothing(void)
{
    struct pkv_namespace_field fields[] = {text(ADAPTER, "lora"), text(4, "version 1")};
    struct prefix_case fixture;
    prefix_case_open(&fixture, &one_group, 8);
    cache_in(&fixture, fields, 2, 2);
    CU_ASSERT_EQUAL(hit_in(&fixture, fields, 2, 2), 2);
    fields[1] = text(4, "version 2");
    CU_ASSERT_EQUAL(hit_in(&fixture, fields, 2, 2), 0);
    prefix_case_close(&fixture);
}

static void scopes_say_where_each_field_begins(void)
{
    struct pkv_namespace_field fields[] = {text(9, "d"), text(3, "b"), text(7, "c"), text(1, "a")};
    struct prefix_case fixture;
    struct pkv_namespace_field read[PKV_MAX_NAMESPACE_FIELDS];
    prefix_case_open(&fixture, &one_group, 8);
    fields[0].begins_at = 5 * BS;
    fields[2].begins_at = 5 * BS + 3;
    fields[3].begins_at = 1 * BS;
    struct prefix_scope scope = scope_of(&fixture, fields, 4);
    CU_ASSERT_EQUAL_FATAL(scope.count, 3);
    CU_ASSERT(scope.from[0] == 0 && scope.from[1] == 1 && scope.from[2] == 5);
    CU_ASSERT_EQUAL(prefix_scope_at(&scope, 0), scope.namespace_id[0]);
    CU_ASSERT_EQUAL(prefix_scope_at(&scope, 1), scope.namespace_id[1]);
    CU_ASSERT_EQUAL(prefix_scope_at(&scope, 4), scope.namespace_id[1]);
    CU_ASSERT_EQUAL(prefix_scope_at(&scope, 999), scope.namespace_id[2]);
    CU_ASSERT_EQUAL(prefix_index_fields(fixture.index, scope.namespace_id[0], read), 1);
    CU_ASSERT(read[0].tag == 3 && read[0].length == 1 && memcmp(read[0].bytes, "b", 1) == 0);
    CU_ASSERT_EQUAL(prefix_index_fields(fixture.index, scope.namespace_id[1], read), 2);
    CU_ASSERT(read[0].tag == 1 && read[1].tag == 3);
    CU_ASSERT_EQUAL(prefix_index_fields(fixture.index, scope.namespace_id[2], read), 4);
    CU_ASSERT(read[2].tag == 7 && read[3].tag == 9);
    struct prefix_scope copy = scope;
    prefix_scope_share(fixture.index, &copy);
    prefix_scope_close(fixture.index, &scope);
    CU_ASSERT_EQUAL(scope.count, 0);
    struct prefix_scope found;
    ASSERT_STATUS(PKV_OK, prefix_scope_find(fixture.index, fields, 4, &found));
    CU_ASSERT_EQUAL(found.namespace_id[2], copy.namespace_id[2]);
    prefix_scope_close(fixture.index, &copy);
    ASSERT_STATUS(PKV_OK, prefix_scope_find(fixture.index, fields, 4, &found));
    CU_ASSERT(found.count == 3 && prefix_scope_at(&found, 0) == PREFIX_NONE);
    ASSERT_STATUS(PKV_OK, prefix_scope_find(fixture.index, fields, 1, &found));
    CU_ASSERT(prefix_scope_at(&found, 4) == 0 && prefix_scope_at(&found, 5) == PREFIX_NONE);
    prefix_case_close(&fixture);
}

static void check_refuses_what_is_no_field(void)
{
    static const char bytes[PKV_MAX_NAMESPACE_BYTES + 1];
    const struct {
        struct pkv_namespace_field field;
        const char *named;
    } bad[] = {{{1, -1, bytes, 0}, "length"},
               {{1, PKV_MAX_NAMESPACE_BYTES + 1, bytes, 0}, "length"},
               {{1, 1, NULL, 0}, "bytes"},
               {{1, 1, bytes, -1}, "begins_at"}};
    const struct pkv_namespace_field good[] = {{1, 0, NULL, 0},
                                               {0, PKV_MAX_NAMESPACE_BYTES, bytes, INT32_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ASSERT_REFUSED(PKV_INVALID_ARGUMENT, bad[i].named, prefix_field_check(&bad[i].field));
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        ASSERT_STATUS(PKV_OK, prefix_field_check(&good[i]));
    }
}

static void open_refuses_a_tag_twice(void)
{
    const struct pkv_namespace_field twice[] = {text(2, ""), text(1, ""), text(2, "x")};
    struct prefix_case fixture;
    struct prefix_scope scope = {.count = 55};
    prefix_case_open(&fixture, &one_group, 8);
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "tag 2",
                   prefix_scope_open(fixture.index, twice, 3, &scope));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "tag 2",
                   prefix_scope_find(fixture.index, twice, 3, &scope));
    CU_ASSERT_EQUAL(scope.count, 55);
    prefix_case_close(&fixture);
}

static void a_full_table_of_namespaces_refuses_and_changes_nothing(void)
{
    struct pkv_namespace_field fields[] = {text(1, "a"), text(2, "b"), text(3, "c")};
    struct prefix_config config = one_group;
    struct prefix_case fixture;
    struct prefix_scope scope = {.count = 55};
    config.max_namespaces = 3; /* the empty one and two more */
    prefix_case_open(&fixture, &config, 8);
    fields[1].begins_at = BS;
    fields[2].begins_at = 2 * BS;
    ASSERT_STATUS(PKV_NO_BLOCKS, prefix_scope_open(fixture.index, fields, 3, &scope));
    CU_ASSERT_EQUAL(scope.count, 55);
    CU_ASSERT_EQUAL(prefix_index_check(fixture.index), 0);
    struct prefix_scope two = scope_of(&fixture, fields, 2);
    ASSERT_STATUS(PKV_NO_BLOCKS, prefix_scope_open(fixture.index, &fields[2], 1, &scope));
    ASSERT_STATUS(PKV_OK, set_quota(&fixture, 9, "q", 5));
    ASSERT_STATUS(PKV_NO_BLOCKS, set_quota(&fixture, 9, "r", 5));
    prefix_scope_close(fixture.index, &two);
    two = scope_of(&fixture, fields, 2);
    prefix_scope_close(fixture.index, &two);
    ASSERT_STATUS(PKV_OK, set_quota(&fixture, 9, "q", INT64_MAX));
    const struct pkv_namespace_field four[] = {text(1, ""), text(2, ""), text(3, ""), text(4, "")};
    ASSERT_STATUS(PKV_NO_BLOCKS, prefix_scope_open(fixture.index, four, 4, &scope));
    two = scope_of(&fixture, four, 3);
    prefix_scope_close(fixture.index, &two);
    prefix_case_close(&fixture);
}

static void names_come_and_go_in_any_order(void)
{
    enum { MANY = 100 };
    static int32_t values[MANY];
    struct prefix_scope scopes[MANY];
    struct prefix_config config = one_group;
    struct prefix_case fixture;
    config.max_namespaces = MANY + 1;
    prefix_case_open(&fixture, &config, 8);
    for (int32_t round = 0; round < 3; round++) {
        for (int32_t i = 0; i < MANY; i++) {
            if (round == 0 || i % (round + 1) == 0) {
                values[i] = round * MANY + i;
                const struct pkv_namespace_field field = {SALT, sizeof values[i], &values[i], 0};
                scopes[i] = scope_of(&fixture, &field, 1);
            }
        }
        CU_ASSERT_EQUAL(prefix_index_check(fixture.index), 0);
        for (int32_t i = 0; i < MANY; i++) {
            struct pkv_namespace_field read[PKV_MAX_NAMESPACE_FIELDS];
            CU_ASSERT_EQUAL(prefix_index_fields(fixture.index, scopes[i].namespace_id[0], read), 1);
            CU_ASSERT_EQUAL(memcmp(read[0].bytes, &values[i], sizeof values[i]), 0);
        }
        for (int32_t i = 0; i < MANY; i++) {
            if (round == 2 || i % (round + 2) == 0) {
                prefix_scope_close(fixture.index, &scopes[i]);
                CU_ASSERT_EQUAL(prefix_index_check(fixture.index), 0);
            }
        }
    }
    prefix_case_close(&fixture);
}

static void quotas_are_per_field_value(void)
{
    const struct pkv_namespace_field both[] = {text(TENANT, "t"), text(SALT, "s")};
    struct prefix_usage usage = {55, 55, 55};
    struct prefix_case fixture;
    prefix_case_open(&fixture, &one_group, 8);
    ASSERT_STATUS(PKV_NOT_FOUND, usage_of(&fixture, TENANT, "t", &usage));
    ASSERT_STATUS(PKV_OK, set_quota(&fixture, TENANT, "t", INT64_MAX));
    CU_ASSERT_EQUAL(usage.held, 55);
    ASSERT_STATUS(PKV_OK, set_quota(&fixture, TENANT, "t", 9));
    ASSERT_STATUS(PKV_OK, set_quota(&fixture, TENANT, "t", 10));
    struct prefix_scope scope = scope_of(&fixture, both, 2);
    struct prefix_scope tenant = scope_of(&fixture, both, 1);
    CU_ASSERT_EQUAL(prefix_index_room(fixture.index, 0), INT64_MAX);
    CU_ASSERT_EQUAL(prefix_index_room(fixture.index, scope.namespace_id[0]), 10);
    prefix_index_charge(fixture.index, scope.namespace_id[0], 4);
    prefix_index_charge(fixture.index, tenant.namespace_id[0], 3);
    prefix_index_charge(fixture.index, 0, 100);
    CU_ASSERT_EQUAL(prefix_index_room(fixture.index, scope.namespace_id[0]), 3);
    ASSERT_STATUS(PKV_OK, set_quota(&fixture, SALT, "s", 5));
    CU_ASSERT_EQUAL(prefix_index_room(fixture.index, scope.namespace_id[0]), 1);
    CU_ASSERT_EQUAL(prefix_index_room(fixture.index, tenant.namespace_id[0]), 3);
    prefix_index_charge(fixture.index, scope.namespace_id[0], -4);
    prefix_case_cache(&fixture, &scope, prefix_case_tokens, 3);
    prefix_case_cache(&fixture, &tenant, prefix_case_tokens, 2);
    ASSERT_STATUS(PKV_OK, usage_of(&fixture, TENANT, "t", &usage));
    CU_ASSERT(usage.held == 3 && usage.quota == 10 && usage.cached == 5);
    ASSERT_STATUS(PKV_OK, usage_of(&fixture, SALT, "s", &usage));
    CU_ASSERT(usage.held == 0 && usage.quota == 5 && usage.cached == 3);
    prefix_index_charge(fixture.index, tenant.namespace_id[0], -3);
    prefix_scope_close(fixture.index, &scope);
    prefix_scope_close(fixture.index, &tenant);
    prefix_case_evict(&fixture, 5);
    ASSERT_STATUS(PKV_OK, usage_of(&fixture, SALT, "s", &usage));
    CU_ASSERT_EQUAL(usage.cached, 0);
    ASSERT_STATUS(PKV_OK, set_quota(&fixture, SALT, "s", INT64_MAX));
    ASSERT_STATUS(PKV_NOT_FOUND, usage_of(&fixture, SALT, "s", &usage));
    prefix_case_close(&fixture);
}

/* --- epochs */

static void sweep_all(struct prefix_case *fixture, struct prefix_swept *swept)
{
    *swept = (struct prefix_swept){0, 0};
    while (!prefix_index_sweep(fixture->index, 2, swept)) {
        CU_ASSERT_EQUAL(prefix_index_check(fixture->index), 0);
    }
    CU_ASSERT_TRUE(prefix_index_sweep(fixture->index, 1000, swept));
}

static void flush_takes_the_nodes_of_one_field_value(void)
{
    const struct pkv_namespace_field old[] = {text(TENANT, "t"), text(ADAPTER, "x")};
    const struct pkv_namespace_field other[] = {text(TENANT, "t"), text(ADAPTER, "y")};
    struct prefix_case fixture;
    struct prefix_swept swept;
    prefix_case_open(&fixture, &one_group, 32);
    struct prefix_scope scope = scope_of(&fixture, old, 2);
    struct prefix_chain held =
        prefix_case_publish(&fixture, &scope, prefix_case_tokens, NULL, 2, 0);
    prefix_case_cache(&fixture, &scope, prefix_case_tokens, 4);
    cache_in(&fixture, other, 2, 3);
    const uint64_t before = prefix_index_epoch(fixture.index);
    prefix_index_flush(fixture.index, &(struct pkv_namespace_field){ADAPTER, 1, "z", 0});
    CU_ASSERT_EQUAL(prefix_index_epoch(fixture.index), before);
    prefix_index_flush(fixture.index, &(struct pkv_namespace_field){ADAPTER, 1, "x", 0});
    CU_ASSERT_EQUAL(prefix_index_epoch(fixture.index), before + 1);
    CU_ASSERT_EQUAL(hit_in(&fixture, old, 2, 4), 0); /* at once */
    CU_ASSERT_EQUAL(hit_in(&fixture, other, 2, 3), 3);
    CU_ASSERT_FALSE(prefix_index_is_live(fixture.index, held.nodes[0]));
    CU_ASSERT_EQUAL(prefix_index_attach(fixture.index, held.nodes[1], 0, 30), PREFIX_NONE);
    CU_ASSERT_EQUAL(prefix_index_check(fixture.index), 0);
    sweep_all(&fixture, &swept);
    CU_ASSERT(swept.freed == 2 && swept.held == 2);
    CU_ASSERT_EQUAL(block_pool_num_free(fixture.pools[0], PREFIX_CLASS_PRIORITY), 3);
    prefix_case_release(&fixture, &held);
    CU_ASSERT_EQUAL(block_pool_num_free(fixture.pools[0], PREFIX_CLASS_UNINDEXED), 32 - 3);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 3);
    prefix_scope_close(fixture.index, &scope);
    prefix_case_close(&fixture);
}

static void a_sequence_publishes_only_into_its_own_epoch(void)
{
    const struct pkv_namespace_field field = text(ADAPTER, "x");
    struct prefix_case fixture;
    struct prefix_ref node = {55, 55};
    struct prefix_swept swept;
    prefix_case_open(&fixture, &one_group, 8);
    struct prefix_scope scope = scope_of(&fixture, &field, 1);
    const int32_t id = scope.namespace_id[0];
    const uint64_t old = prefix_index_epoch(fixture.index);
    struct prefix_chain chain =
        prefix_case_publish(&fixture, &scope, prefix_case_tokens, NULL, 1, 0);
    prefix_index_flush(fixture.index, &(struct pkv_namespace_field){ADAPTER, 1, "x", 0});
    const uint64_t now = prefix_index_epoch(fixture.index);
    CU_ASSERT_TRUE(prefix_index_is_current(fixture.index, id, now));
    CU_ASSERT_FALSE(prefix_index_is_current(fixture.index, id, old));
    CU_ASSERT_TRUE(prefix_index_is_current(fixture.index, 0, old));
    CU_ASSERT_EQUAL(prefix_index_insert(fixture.index, PREFIX_ROOT, id, old, prefix_case_tokens,
                                        NULL, 0, &node),
                    PREFIX_FLUSHED);
    CU_ASSERT_EQUAL(prefix_index_insert(fixture.index, chain.nodes[0], id, now,
                                        prefix_case_tokens + BS, NULL, 0, &node),
                    PREFIX_FLUSHED);
    CU_ASSERT_EQUAL(node.index, 55);
    /* A new one stands beside the old, before and after the sweep. */
    struct prefix_chain fresh =
        prefix_case_publish(&fixture, &scope, prefix_case_tokens, NULL, 1, 0);
    CU_ASSERT_NOT_EQUAL(fresh.blocks[0][0], chain.blocks[0][0]);
    CU_ASSERT_EQUAL(prefix_index_counters(fixture.index).collisions, 0);
    sweep_all(&fixture, &swept);
    CU_ASSERT(swept.held == 1 && swept.freed == 0);
    CU_ASSERT_EQUAL(hit_in(&fixture, &field, 1, 1), 1);
    prefix_case_release(&fixture, &chain);
    prefix_case_release(&fixture, &fresh);
    CU_ASSERT_EQUAL(hit_in(&fixture, &field, 1, 1), 1);
    prefix_scope_close(fixture.index, &scope);
    prefix_case_close(&fixture);
}

/* D9: after a reset nothing is found, and what is held stays valid for its holders. */
static void reset_orphans_everything(void)
{
    struct prefix_case fixture;
    struct prefix_swept swept;
    prefix_case_open(&fixture, &one_group, 16);
    struct prefix_chain held =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 3, 2);
    prefix_case_cache(&fixture, &prefix_case_plain, prefix_case_tokens, 5);
    const int32_t block = held.blocks[0][1];
    prefix_index_reset(fixture.index);
    CU_ASSERT_EQUAL(prefix_case_hit(&fixture, &prefix_case_plain, prefix_case_tokens, 5), 0);
    CU_ASSERT_FALSE(prefix_index_is_current(fixture.index, 0, 1));
    sweep_all(&fixture, &swept);
    CU_ASSERT(swept.freed == 2 && swept.held == 3);
    CU_ASSERT_EQUAL(pkv_pool_ref_count(fixture.pools[0], block), 1); /* its holder goes on */
    CU_ASSERT_EQUAL(prefix_index_node_of(fixture.index, 0, block).index, PREFIX_NONE);
    prefix_case_release(&fixture, &held);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 0);
    CU_ASSERT_EQUAL(pkv_pool_num_free(fixture.pools[0]), 16);
    CU_ASSERT_EQUAL(block_pool_num_free(fixture.pools[0], PREFIX_CLASS_UNINDEXED), 16);
    prefix_case_cache(&fixture, &prefix_case_plain, prefix_case_tokens, 5);
    CU_ASSERT_EQUAL(prefix_case_hit(&fixture, &prefix_case_plain, prefix_case_tokens, 5), 5);
    prefix_case_close(&fixture);
}

/* --- blocks that are stored while a sweep is under way */

/* A cached chain of two blocks in "y", then one in "x" of three blocks in both groups, held in
 * group 0 and free in group 1. */
struct two_chains {
    struct prefix_case fixture;
    struct prefix_scope x;
    struct prefix_chain old;
    struct prefix_key keys[3]; /* of its nodes */
};

static void open_two_chains(struct two_chains *c, int32_t masked_key_bits)
{
    const struct pkv_namespace_field y = text(ADAPTER, "y");
    const struct pkv_namespace_field x = text(ADAPTER, "x");
    const struct prefix_config config = {
        .block_size = BS, .num_groups = 2, .masked_key_bits = masked_key_bits};
    prefix_case_open(&c->fixture, &config, 32);
    cache_in(&c->fixture, &y, 1, 2);
    c->x = scope_of(&c->fixture, &x, 1);
    c->old = prefix_case_publish(&c->fixture, &c->x, prefix_case_tokens, NULL, 3, 0);
    for (int32_t i = 2; i >= 0; i--) {
        c->keys[i] = prefix_index_node(c->fixture.index, c->old.nodes[i])->key;
        (void)prefix_index_drop(c->fixture.index, 1, c->old.blocks[1][i], false);
    }
    c->fixture.log.count = 0;
}

static void close_two_chains(struct two_chains *c)
{
    for (int32_t i = 2; i >= 0; i--) {
        CU_ASSERT_EQUAL(pkv_pool_ref_count(c->fixture.pools[0], c->old.blocks[0][i]), 1);
        (void)prefix_index_drop(c->fixture.index, 0, c->old.blocks[0][i], false);
    }
    prefix_index_release(c->fixture.index, c->old.nodes[2]);
    prefix_scope_close(c->fixture.index, &c->x);
    prefix_case_close(&c->fixture);
}

/* What the observer was told from change `from` on: the end of each of the chain's nodes, then its
 * beginning. */
static void assert_exchanged(const struct two_chains *c, int32_t from)
{
    const struct prefix_case_log *log = &c->fixture.log;
    CU_ASSERT_EQUAL_FATAL(log->count, from + 2 * 3);
    for (int32_t i = 0; i < 2 * 3; i++) {
        const struct prefix_key *key = &c->keys[i / 2];
        CU_ASSERT_EQUAL(log->change[from + i], i % 2 == 0 ? PREFIX_REMOVED : PREFIX_STORED);
        CU_ASSERT(log->key[from + i].low == key->low && log->key[from + i].high == key->high);
    }
}

static void flush_x(struct two_chains *c, bool everything)
{
    if (everything) {
        prefix_index_reset(c->fixture.index);
    } else {
        prefix_index_flush(c->fixture.index, &(struct pkv_namespace_field){ADAPTER, 1, "x", 0});
    }
}

static void an_old_block_ends_before_an_equal_one_is_stored(void)
{
    for (int32_t everything = 0; everything < 2; everything++) {
        struct two_chains c;
        struct prefix_swept swept = {0, 0};
        open_two_chains(&c, 0);
        flush_x(&c, everything);
        CU_ASSERT_FALSE(prefix_index_sweep(c.fixture.index, 1, &swept)); /* one of "y" */
        CU_ASSERT(swept.held == 0 && swept.freed == 2 * everything);
        c.fixture.log.count = 0;
        struct prefix_chain fresh =
            prefix_case_publish(&c.fixture, &c.x, prefix_case_tokens, NULL, 3, 0);
        assert_exchanged(&c, 0);
        for (int32_t i = 0; i < 3; i++) { /* the old one's holder goes on, without a node */
            const int32_t block = c.old.blocks[0][i];
            CU_ASSERT_NOT_EQUAL(fresh.blocks[0][i], block);
            CU_ASSERT_EQUAL(prefix_index_node_of(c.fixture.index, 0, block).index, PREFIX_NONE);
        }
        CU_ASSERT_EQUAL(prefix_case_hit(&c.fixture, &c.x, prefix_case_tokens, 3), 3);
        sweep_all(&c.fixture, &swept);
        CU_ASSERT(swept.held == 3 && swept.freed == 3 + 2 * everything);
        sweep_all(&c.fixture, &swept); /* told once */
        CU_ASSERT(swept.held == 0 && swept.freed == 0);
        CU_ASSERT_EQUAL(c.fixture.log.count, 6 + everything); /* the other node of "y" */
        CU_ASSERT_EQUAL(prefix_case_hit(&c.fixture, &c.x, prefix_case_tokens, 3), 3);
        prefix_case_release(&c.fixture, &fresh);
        close_two_chains(&c);
    }
}

static void a_flush_during_a_sweep_ends_what_was_stored_meanwhile(void)
{
    const struct pkv_namespace_field x = text(ADAPTER, "x");
    struct two_chains c;
    struct prefix_swept swept = {0, 0};
    open_two_chains(&c, 0);
    for (int32_t round = 0; round < 3; round++) {
        flush_x(&c, false);
        cache_in(&c.fixture, &x, 1, 3);
        assert_exchanged(&c, 6 * round);
    }
    sweep_all(&c.fixture, &swept);
    CU_ASSERT(swept.held == 3 && swept.freed == 3 + 2 * 2 * 3);
    CU_ASSERT_EQUAL(c.fixture.log.count, 3 * 6);
    close_two_chains(&c);
}

static void a_part_of_a_chain_that_is_stored_again_leaves_the_rest_to_the_sweep(void)
{
    const struct pkv_namespace_field x = text(ADAPTER, "x");
    struct two_chains c;
    struct prefix_swept swept = {0, 0};
    open_two_chains(&c, 0);
    flush_x(&c, false);
    CU_ASSERT_FALSE(prefix_index_sweep(c.fixture.index, 3, &swept)); /* the first of "x" too */
    CU_ASSERT(swept.held == 1 && swept.freed == 1);
    cache_in(&c.fixture, &x, 1, 2);
    const enum prefix_change expected[] = {PREFIX_REMOVED, PREFIX_STORED, PREFIX_REMOVED,
                                           PREFIX_STORED, PREFIX_REMOVED};
    const int32_t of[] = {0, 0, 1, 1, 2};
    CU_ASSERT_TRUE(prefix_index_sweep(c.fixture.index, 1000, &swept));
    CU_ASSERT(swept.held == 3 && swept.freed == 3);
    CU_ASSERT_EQUAL_FATAL(c.fixture.log.count, 5);
    for (int32_t i = 0; i < 5; i++) {
        CU_ASSERT_EQUAL(c.fixture.log.change[i], expected[i]);
        CU_ASSERT_EQUAL(c.fixture.log.key[i].low, c.keys[of[i]].low);
    }
    close_two_chains(&c);
}

/* With every node in one bucket and every key alike to a search. */
static void only_the_flushed_of_an_equal_key_end_early(void)
{
    const struct pkv_namespace_field y = text(ADAPTER, "y");
    struct two_chains c;
    struct prefix_swept swept = {0, 0};
    open_two_chains(&c, PREFIX_KEY_BITS);
    flush_x(&c, false);
    cache_in(&c.fixture, &y, 1, 3);   /* two are found, the third is new */
    cache_in(&c.fixture, NULL, 0, 2); /* both new */
    CU_ASSERT_EQUAL(c.fixture.log.count, 3);
    for (int32_t i = 0; i < c.fixture.log.count; i++) {
        CU_ASSERT_EQUAL(c.fixture.log.change[i], PREFIX_STORED);
    }
    for (int32_t i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(prefix_index_block(c.fixture.index, c.old.nodes[i], 0), c.old.blocks[0][i]);
    }
    sweep_all(&c.fixture, &swept);
    CU_ASSERT(swept.held == 3 && swept.freed == 3);
    CU_ASSERT_EQUAL(hit_in(&c.fixture, &y, 1, 3), 3);
    CU_ASSERT_EQUAL(hit_in(&c.fixture, NULL, 0, 3), 2);
    close_two_chains(&c);
}

static void after_the_sweep_nothing_ends_early(void)
{
    const struct pkv_namespace_field x = text(ADAPTER, "x");
    struct two_chains c;
    struct prefix_swept swept = {0, 0};
    open_two_chains(&c, 0);
    cache_in(&c.fixture, &x, 1, 3); /* no flush: found, all three */
    CU_ASSERT_EQUAL(c.fixture.log.count, 0);
    flush_x(&c, false);
    sweep_all(&c.fixture, &swept);
    CU_ASSERT(swept.held == 3 && swept.freed == 3);
    CU_ASSERT_EQUAL(c.fixture.log.count, 3);
    cache_in(&c.fixture, &x, 1, 3);
    CU_ASSERT_EQUAL(c.fixture.log.count, 6);
    CU_ASSERT_EQUAL(c.fixture.log.change[3], PREFIX_STORED);
    sweep_all(&c.fixture, &swept);
    CU_ASSERT(swept.held == 0 && swept.freed == 0);
    close_two_chains(&c);
}

/* A live node without block and holder, whose one child was flushed and has a free block. */
static struct prefix_ref parent_of_a_flushed_child(struct prefix_case *fixture,
                                                   struct prefix_scope *scope,
                                                   struct prefix_ref *child)
{
    struct pkv_namespace_field x = text(ADAPTER, "x");
    x.begins_at = BS;
    *scope = scope_of(fixture, &x, 1);
    struct prefix_chain chain = prefix_case_publish(fixture, scope, prefix_case_tokens, NULL, 2, 0);
    const struct prefix_ref parent = chain.nodes[0];
    const int32_t block = chain.blocks[0][0];
    *child = chain.nodes[1];
    prefix_case_release(fixture, &chain);
    prefix_index_detach(fixture->index, 0, block);
    prefix_index_flush(fixture->index, &(struct pkv_namespace_field){ADAPTER, 1, "x", 0});
    CU_ASSERT_TRUE(prefix_index_is_live(fixture->index, parent));
    fixture->log.count = 0;
    return parent;
}

static void the_end_of_an_only_child_leaves_its_parent_to_the_next(void)
{
    struct prefix_case fixture;
    struct prefix_scope scope;
    struct prefix_swept swept = {0, 0};
    struct prefix_ref old, made;
    prefix_case_open(&fixture, &one_group, 8);
    const struct prefix_ref parent = parent_of_a_flushed_child(&fixture, &scope, &old);
    CU_ASSERT_EQUAL(prefix_index_insert(fixture.index, parent, scope.namespace_id[1],
                                        prefix_index_epoch(fixture.index), prefix_case_tokens + BS,
                                        NULL, 0, &made),
                    PREFIX_NEW);
    CU_ASSERT(fixture.log.count == 1 && fixture.log.change[0] == PREFIX_REMOVED);
    CU_ASSERT_PTR_NULL(prefix_index_node(fixture.index, old));
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 2);
    CU_ASSERT_PTR_NOT_NULL_FATAL(prefix_index_node(fixture.index, parent));
    CU_ASSERT_EQUAL(prefix_index_node(fixture.index, parent)->num_children, 1);
    CU_ASSERT_EQUAL(prefix_index_node(fixture.index, parent)->num_holders, 0);
    CU_ASSERT_EQUAL(prefix_index_node(fixture.index, made)->parent.index, parent.index);
    CU_ASSERT_EQUAL(prefix_index_check(fixture.index), 0);
    prefix_index_release(fixture.index, made);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 0);
    sweep_all(&fixture, &swept);
    CU_ASSERT(swept.freed == 1 && swept.held == 0);
    prefix_scope_close(fixture.index, &scope);
    prefix_case_close(&fixture);
}

/* The old one is taken apart for nothing when its holder keeps the last node there is. */
static void an_end_that_frees_no_node_leaves_all_sound(void)
{
    struct prefix_config config = one_group;
    struct prefix_case fixture;
    struct prefix_scope scope;
    struct prefix_swept swept = {0, 0};
    struct prefix_ref old;
    struct prefix_ref made = {55, 55};
    config.num_nodes = 2;
    prefix_case_open(&fixture, &config, 8);
    const struct prefix_ref parent = parent_of_a_flushed_child(&fixture, &scope, &old);
    prefix_index_hold(fixture.index, old);
    const uint64_t epoch = prefix_index_epoch(fixture.index);
    CU_ASSERT_EQUAL(prefix_index_insert(fixture.index, parent, scope.namespace_id[1], epoch,
                                        prefix_case_tokens + BS, NULL, 0, &made),
                    PREFIX_NOT_NOW);
    CU_ASSERT_EQUAL(made.index, 55);
    CU_ASSERT_EQUAL(prefix_index_counters(fixture.index).not_indexed, 1);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 2);
    CU_ASSERT_EQUAL(prefix_index_check(fixture.index), 0);
    prefix_index_release(fixture.index, old);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 0);
    sweep_all(&fixture, &swept);
    CU_ASSERT(swept.freed == 1 && swept.held == 0 && fixture.log.count == 1);
    prefix_scope_close(fixture.index, &scope);
    prefix_case_close(&fixture);
}

static const struct test_case cases[] = {
    TEST(fields_are_told_apart_by_tag_and_length),
    TEST(the_same_name_as_salt_and_as_adapter_is_two_namespaces),
    TEST(absent_and_empty_differ_and_order_does_not_matter),
    TEST(another_salt_hits_nothing_and_the_same_hits_all),
    TEST(a_salt_from_an_offset_leaves_the_blocks_before_it_shared),
    TEST(another_version_of_an_adapter_hits_nothing),
    TEST(scopes_say_where_each_field_begins),
    TEST(check_refuses_what_is_no_field),
    TEST(open_refuses_a_tag_twice),
    TEST(a_full_table_of_namespaces_refuses_and_changes_nothing),
    TEST(names_come_and_go_in_any_order),
    TEST(quotas_are_per_field_value),
    TEST(flush_takes_the_nodes_of_one_field_value),
    TEST(a_sequence_publishes_only_into_its_own_epoch),
    TEST(reset_orphans_everything),
    TEST(an_old_block_ends_before_an_equal_one_is_stored),
    TEST(a_flush_during_a_sweep_ends_what_was_stored_meanwhile),
    TEST(a_part_of_a_chain_that_is_stored_again_leaves_the_rest_to_the_sweep),
    TEST(only_the_flushed_of_an_equal_key_end_early),
    TEST(after_the_sweep_nothing_ends_early),
    TEST(the_end_of_an_only_child_leaves_its_parent_to_the_next),
    TEST(an_end_that_frees_no_node_leaves_all_sound),
    TEST_END,
};
const struct test_suite suite_prefix_names = {"prefix_names", cases};
