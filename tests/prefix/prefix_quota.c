/* SPDX-License-Identifier: MIT
 *
 * What the fields of a namespace hold and may hold. */
#include "prefix/prefix_quota.h"

#include "prefix_case.h"

static enum pkv_status usage_of(const struct prefix_case *fixture, int32_t tag, const char *bytes,
                                struct prefix_usage *usage)
{
    const struct pkv_namespace_field field = prefix_case_field(tag, bytes);
    return prefix_index_usage(fixture->index, &field, usage);
}

static void quotas_are_per_field_value(void)
{
    const struct pkv_namespace_field both[] = {prefix_case_field(PREFIX_CASE_TENANT, "t"),
                                               prefix_case_field(PREFIX_CASE_SALT, "s")};
    struct prefix_usage usage = {55, 55, 55};
    struct prefix_case fixture;
    prefix_case_open(&fixture, &prefix_case_one_group, 8);
    ASSERT_STATUS(PKV_NOT_FOUND, usage_of(&fixture, PREFIX_CASE_TENANT, "t", &usage));
    ASSERT_STATUS(PKV_OK, prefix_case_set_quota(&fixture, PREFIX_CASE_TENANT, "t", INT64_MAX));
    CU_ASSERT_EQUAL(usage.held, 55);
    ASSERT_STATUS(PKV_OK, prefix_case_set_quota(&fixture, PREFIX_CASE_TENANT, "t", 9));
    ASSERT_STATUS(PKV_OK, prefix_case_set_quota(&fixture, PREFIX_CASE_TENANT, "t", 10));
    struct prefix_scope scope = prefix_case_scope(&fixture, both, 2);
    struct prefix_scope tenant = prefix_case_scope(&fixture, both, 1);
    CU_ASSERT_EQUAL(prefix_index_room(fixture.index, 0), INT64_MAX);
    CU_ASSERT_EQUAL(prefix_index_room(fixture.index, scope.namespace_id[0]), 10);
    prefix_index_charge(fixture.index, scope.namespace_id[0], 4);
    prefix_index_charge(fixture.index, tenant.namespace_id[0], 3);
    prefix_index_charge(fixture.index, 0, 100);
    CU_ASSERT_EQUAL(prefix_index_room(fixture.index, scope.namespace_id[0]), 3);
    ASSERT_STATUS(PKV_OK, prefix_case_set_quota(&fixture, PREFIX_CASE_SALT, "s", 5));
    CU_ASSERT_EQUAL(prefix_index_room(fixture.index, scope.namespace_id[0]), 1);
    CU_ASSERT_EQUAL(prefix_index_room(fixture.index, tenant.namespace_id[0]), 3);
    prefix_index_charge(fixture.index, scope.namespace_id[0], -4);
    prefix_case_cache(&fixture, &scope, prefix_case_tokens, 3);
    prefix_case_cache(&fixture, &tenant, prefix_case_tokens, 2);
    ASSERT_STATUS(PKV_OK, usage_of(&fixture, PREFIX_CASE_TENANT, "t", &usage));
    CU_ASSERT(usage.held == 3 && usage.quota == 10 && usage.cached == 5);
    ASSERT_STATUS(PKV_OK, usage_of(&fixture, PREFIX_CASE_SALT, "s", &usage));
    CU_ASSERT(usage.held == 0 && usage.quota == 5 && usage.cached == 3);
    prefix_index_charge(fixture.index, tenant.namespace_id[0], -3);
    prefix_scope_close(fixture.index, &scope);
    prefix_scope_close(fixture.index, &tenant);
    prefix_case_evict(&fixture, 5);
    ASSERT_STATUS(PKV_OK, usage_of(&fixture, PREFIX_CASE_SALT, "s", &usage));
    CU_ASSERT_EQUAL(usage.cached, 0);
    ASSERT_STATUS(PKV_OK, prefix_case_set_quota(&fixture, PREFIX_CASE_SALT, "s", INT64_MAX));
    ASSERT_STATUS(PKV_NOT_FOUND, usage_of(&fixture, PREFIX_CASE_SALT, "s", &usage));
    prefix_case_close(&fixture);
}

static const struct test_case cases[] = {
    TEST(quotas_are_per_field_value),
    TEST_END,
};
const struct test_suite suite_prefix_quota = {"prefix_quota", cases};
