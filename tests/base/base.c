/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "support/test.h"

static void version_text_is_the_three_numbers(void)
{
    CU_ASSERT_STRING_EQUAL(pkv_version(), "0.1.0");
}

static void every_status_has_its_own_name(void)
{
    for (int i = PKV_NOT_FOUND; i <= PKV_OK; i++) {
        for (int j = PKV_NOT_FOUND; j < i; j++) {
            CU_ASSERT_STRING_NOT_EQUAL(pkv_status_name((enum pkv_status)i),
                                       pkv_status_name((enum pkv_status)j));
        }
    }
    CU_ASSERT_STRING_EQUAL(pkv_status_name((enum pkv_status)7), "unknown status");
}

static void dtype_sizes_are_those_of_the_formats(void)
{
    CU_ASSERT_EQUAL(pkv_dtype_bytes(PKV_F32), 4);
    CU_ASSERT_EQUAL(pkv_dtype_bytes(PKV_F16), 2);
    CU_ASSERT_EQUAL(pkv_dtype_bytes(PKV_BF16), 2);
    CU_ASSERT_EQUAL(pkv_dtype_bytes(PKV_INT8), 1);
    CU_ASSERT_EQUAL(pkv_dtype_bytes(PKV_E4M3), 1);
    CU_ASSERT_EQUAL(pkv_dtype_bytes((enum pkv_dtype)99), 0);
}

static const struct test_case cases[] = {
    TEST(version_text_is_the_three_numbers),
    TEST(every_status_has_its_own_name),
    TEST(dtype_sizes_are_those_of_the_formats),
    TEST_END,
};
const struct test_suite suite_base = {"base", cases};
