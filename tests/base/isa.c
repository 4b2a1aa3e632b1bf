/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "support/test.h"

static void a_name_is_found_again(void)
{
    for (int value = PKV_ISA_BEST; value < PKV_NUM_ISAS; value++) {
        enum pkv_isa isa = (enum pkv_isa)PKV_NUM_ISAS;
        ASSERT_STATUS(PKV_OK, pkv_isa_by_name(pkv_isa_name((enum pkv_isa)value), &isa));
        CU_ASSERT_EQUAL((int)isa, value);
    }
}

static void names_are_words_and_anything_else_is_unknown(void)
{
    CU_ASSERT_STRING_EQUAL(pkv_isa_name(PKV_ISA_BEST), "best");
    CU_ASSERT_STRING_EQUAL(pkv_isa_name(PKV_ISA_SCALAR), "scalar");
    CU_ASSERT_STRING_EQUAL(pkv_isa_name((enum pkv_isa)PKV_NUM_ISAS), "unknown isa");
    CU_ASSERT_STRING_EQUAL(pkv_isa_name((enum pkv_isa)(-1)), "unknown isa");
}

static void what_is_no_name_is_refused(void)
{
    enum pkv_isa isa = PKV_ISA_SCALAR;
    ASSERT_REFUSED(PKV_NOT_FOUND, "Scalar", pkv_isa_by_name("Scalar", &isa));
    ASSERT_STATUS(PKV_NOT_FOUND, pkv_isa_by_name("", &isa));
    ASSERT_STATUS(PKV_NOT_FOUND, pkv_isa_by_name("unknown isa", &isa));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "name", pkv_isa_by_name(NULL, &isa));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "isa", pkv_isa_by_name("scalar", NULL));
    CU_ASSERT_EQUAL(isa, PKV_ISA_SCALAR);
}

static void the_line_about_the_build_names_every_level_of_this_machine(void)
{
    for (int value = PKV_ISA_SCALAR; value < PKV_NUM_ISAS; value++) {
        const enum pkv_isa isa = (enum pkv_isa)value;
        char word[64];
        snprintf(word, sizeof word, " %s", pkv_isa_name(isa));
        if (test_has_isa(isa)) {
            CU_ASSERT(strstr(pkv_build_info(), word) != NULL);
        }
    }
}

static const struct test_case cases[] = {
    TEST(a_name_is_found_again),
    TEST(names_are_words_and_anything_else_is_unknown),
    TEST(what_is_no_name_is_refused),
    TEST(the_line_about_the_build_names_every_level_of_this_machine),
    TEST_END,
};

const struct test_suite suite_isa = {"isa", cases};
