/* SPDX-License-Identifier: MIT
 *
 * Namespaces and scopes: which sequences share blocks, and from which block on they do not. */
#include "prefix/prefix_scope.h"

#include <string.h>

#include "prefix_case.h"

#define BS 4

/* D3: namespace fields carry tag and length, so no two lists of them run together. */
static void fields_are_told_apart_by_tag_and_length(void)
{
    const struct pkv_namespace_field sets[][2] = {
        {prefix_case_field(PREFIX_CASE_TENANT, "org_1"),
         prefix_case_field(PREFIX_CASE_SALT, "2345")},
        {prefix_case_field(PREFIX_CASE_TENANT, "org_12345"),
         prefix_case_field(PREFIX_CASE_SALT, "")},
        {prefix_case_field(PREFIX_CASE_TENANT, "2345"),
         prefix_case_field(PREFIX_CASE_SALT, "org_1")},
        {prefix_case_field(PREFIX_CASE_TENANT, ""),
         prefix_case_field(PREFIX_CASE_SALT, "org_12345")},
        {prefix_case_field(PREFIX_CASE_TENANT, ""), prefix_case_field(PREFIX_CASE_SALT, "")},
        {prefix_case_field(PREFIX_CASE_ADAPTER, "org_1"),
         prefix_case_field(PREFIX_CASE_SALT, "2345")},
    };
    const int32_t num_sets = (int32_t)(sizeof sets / sizeof sets[0]);
    struct prefix_case fixture;
    prefix_case_open(&fixture, &prefix_case_one_group, 16);
    for (int32_t i = 0; i < num_sets; i++) {
        for (int32_t j = 0; j < num_sets; j++) {
            CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, sets[j], 2, 1), j < i);
        }
        prefix_case_cache_in(&fixture, sets[i], 2, 1);
    }
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), num_sets);
    prefix_case_close(&fixture);
}

/* D3: a field's tag is part of it, so one name under two tags is two namespaces. */
static void the_same_name_as_salt_and_as_adapter_is_two_namespaces(void)
{
    const struct pkv_namespace_field salt = prefix_case_field(PREFIX_CASE_SALT, "S");
    const struct pkv_namespace_field adapter = prefix_case_field(PREFIX_CASE_ADAPTER, "S");
    struct prefix_case fixture;
    prefix_case_open(&fixture, &prefix_case_one_group, 8);
    prefix_case_cache_in(&fixture, &salt, 1, 1);
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, &adapter, 1, 1), 0);
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, &salt, 1, 1), 1);
    prefix_case_close(&fixture);
}

/* D3: an empty field is not an absent one, and the order of fields has no meaning. */
static void absent_and_empty_differ_and_order_does_not_matter(void)
{
    const struct pkv_namespace_field empty = {PREFIX_CASE_SALT, 0, NULL, 0};
    const struct pkv_namespace_field two[] = {prefix_case_field(PREFIX_CASE_TENANT, "t"),
                                              prefix_case_field(PREFIX_CASE_SALT, "s")};
    const struct pkv_namespace_field swapped[] = {two[1], two[0]};
    struct prefix_case fixture;
    prefix_case_open(&fixture, &prefix_case_one_group, 8);
    prefix_case_cache_in(&fixture, NULL, 0, 1);
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, &empty, 1, 1), 0);
    prefix_case_cache_in(&fixture, &empty, 1, 1);
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, &empty, 1, 1), 1);
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, NULL, 0, 1), 1);
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, two, 2, 1), 0);
    prefix_case_cache_in(&fixture, two, 2, 1);
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, swapped, 2, 1), 1);
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, two, 1, 1), 0);
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, swapped, 1, 1), 0);
    prefix_case_close(&fixture);
}

/* D4: another salt finds nothing, the same salt everything. */
static void another_salt_hits_nothing_and_the_same_hits_all(void)
{
    for (int32_t bits = 0; bits <= 128; bits += 64) {
        const struct pkv_namespace_field mine = prefix_case_field(PREFIX_CASE_SALT, "mine");
        const struct pkv_namespace_field yours = prefix_case_field(PREFIX_CASE_SALT, "yours");
        struct prefix_config config = prefix_case_one_group;
        struct prefix_case fixture;
        config.masked_key_bits = PREFIX_KEY_BITS - bits;
        prefix_case_open(&fixture, &config, 16);
        prefix_case_cache_in(&fixture, &mine, 1, 3);
        CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, &yours, 1, 3), 0);
        prefix_case_cache_in(&fixture, &yours, 1, 2);
        CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, &yours, 1, 3), 2);
        CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, &mine, 1, 3), 3);
        CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, NULL, 0, 3), 0);
        prefix_case_close(&fixture);
    }
}

/* D4: a salt may begin at a later token; the blocks before it are shared. */
static void a_salt_from_an_offset_leaves_the_blocks_before_it_shared(void)
{
    struct pkv_namespace_field mine[] = {prefix_case_field(PREFIX_CASE_SALT, "mine"),
                                         prefix_case_field(PREFIX_CASE_TENANT, "t")};
    struct pkv_namespace_field yours[] = {prefix_case_field(PREFIX_CASE_SALT, "yours"),
                                          prefix_case_field(PREFIX_CASE_TENANT, "t")};
    struct prefix_case fixture;
    prefix_case_open(&fixture, &prefix_case_one_group, 32);
    mine[0].begins_at = yours[0].begins_at = 2 * BS; /* the first token of block 2 */
    prefix_case_cache_in(&fixture, mine, 2, 4);
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, mine, 2, 4), 4);
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, yours, 2, 4), 2);
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, &yours[1], 1, 4), 2);
    yours[0].begins_at = 2 * BS - 1; /* the last token of block 1: it is the salt's own */
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, yours, 2, 4), 1);
    mine[0].begins_at = 2 * BS - 1;
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, mine, 2, 4), 1);
    mine[0].begins_at = 3 * BS - 1;
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, mine, 2, 4), 4);
    prefix_case_cache_in(&fixture, yours, 2, 4);
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, yours, 2, 4), 4);
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, mine, 2, 4), 4);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 7);
    prefix_case_close(&fixture);
}

/* D5: the version of an adapter is part of the key. */
static void another_version_of_an_adapter_hits_nothing(void)
{
    struct pkv_namespace_field fields[] = {prefix_case_field(PREFIX_CASE_ADAPTER, "lora"),
                                           prefix_case_field(4, "version 1")};
    struct prefix_case fixture;
    prefix_case_open(&fixture, &prefix_case_one_group, 8);
    prefix_case_cache_in(&fixture, fields, 2, 2);
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, fields, 2, 2), 2);
    fields[1] = prefix_case_field(4, "version 2");
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, fields, 2, 2), 0);
    prefix_case_close(&fixture);
}

static void scopes_say_where_each_field_begins(void)
{
    struct pkv_namespace_field fields[] = {prefix_case_field(9, "d"), prefix_case_field(3, "b"),
                                           prefix_case_field(7, "c"), prefix_case_field(1, "a")};
    struct prefix_case fixture;
    struct pkv_namespace_field read[PKV_MAX_NAMESPACE_FIELDS];
    prefix_case_open(&fixture, &prefix_case_one_group, 8);
    fields[0].begins_at = 5 * BS;
    fields[2].begins_at = 5 * BS + 3;
    fields[3].begins_at = 1 * BS;
    struct prefix_scope scope = prefix_case_scope(&fixture, fields, 4);
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
    const struct pkv_namespace_field twice[] = {prefix_case_field(2, ""), prefix_case_field(1, ""),
                                                prefix_case_field(2, "x")};
    struct prefix_case fixture;
    struct prefix_scope scope = {.count = 55};
    prefix_case_open(&fixture, &prefix_case_one_group, 8);
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "tag 2",
                   prefix_scope_open(fixture.index, twice, 3, &scope));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "tag 2",
                   prefix_scope_find(fixture.index, twice, 3, &scope));
    CU_ASSERT_EQUAL(scope.count, 55);
    prefix_case_close(&fixture);
}

static void a_full_table_of_namespaces_refuses_and_changes_nothing(void)
{
    struct pkv_namespace_field fields[] = {prefix_case_field(1, "a"), prefix_case_field(2, "b"),
                                           prefix_case_field(3, "c")};
    struct prefix_config config = prefix_case_one_group;
    struct prefix_case fixture;
    struct prefix_scope scope = {.count = 55};
    config.max_namespaces = 3; /* the empty one and two more */
    prefix_case_open(&fixture, &config, 8);
    fields[1].begins_at = BS;
    fields[2].begins_at = 2 * BS;
    ASSERT_STATUS(PKV_NO_BLOCKS, prefix_scope_open(fixture.index, fields, 3, &scope));
    CU_ASSERT_EQUAL(scope.count, 55);
    CU_ASSERT_EQUAL(prefix_index_check(fixture.index), 0);
    struct prefix_scope two = prefix_case_scope(&fixture, fields, 2);
    ASSERT_STATUS(PKV_NO_BLOCKS, prefix_scope_open(fixture.index, &fields[2], 1, &scope));
    ASSERT_STATUS(PKV_OK, prefix_case_set_quota(&fixture, 9, "q", 5));
    ASSERT_STATUS(PKV_NO_BLOCKS, prefix_case_set_quota(&fixture, 9, "r", 5));
    prefix_scope_close(fixture.index, &two);
    two = prefix_case_scope(&fixture, fields, 2);
    prefix_scope_close(fixture.index, &two);
    ASSERT_STATUS(PKV_OK, prefix_case_set_quota(&fixture, 9, "q", INT64_MAX));
    const struct pkv_namespace_field four[] = {prefix_case_field(1, ""), prefix_case_field(2, ""),
                                               prefix_case_field(3, ""), prefix_case_field(4, "")};
    ASSERT_STATUS(PKV_NO_BLOCKS, prefix_scope_open(fixture.index, four, 4, &scope));
    two = prefix_case_scope(&fixture, four, 3);
    prefix_scope_close(fixture.index, &two);
    prefix_case_close(&fixture);
}

static void names_come_and_go_in_any_order(void)
{
    enum { MANY = 100 };
    static int32_t values[MANY];
    struct prefix_scope scopes[MANY];
    struct prefix_config config = prefix_case_one_group;
    struct prefix_case fixture;
    config.max_namespaces = MANY + 1;
    prefix_case_open(&fixture, &config, 8);
    for (int32_t round = 0; round < 3; round++) {
        for (int32_t i = 0; i < MANY; i++) {
            if (round == 0 || i % (round + 1) == 0) {
                values[i] = round * MANY + i;
                const struct pkv_namespace_field field = {PREFIX_CASE_SALT, sizeof values[i],
                                                          &values[i], 0};
                scopes[i] = prefix_case_scope(&fixture, &field, 1);
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
    TEST_END,
};
const struct test_suite suite_prefix_scope = {"prefix_scope", cases};
