/* SPDX-License-Identifier: MIT
 *
 * The test runner: all suites, or those whose names are given. PKV_TEST_ISA and PKV_TEST_SEED steer
 * it; CUnit's summary closes the run and a failure is exit status 1. With --levels it prints the
 * instruction sets that PKV_TEST_ISA may name here. */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

#define SUITE(name) extern const struct test_suite name;
#include "suites.h"
#undef SUITE

static const struct test_suite *const suites[] = {
#define SUITE(name) &name,
#include "suites.h"
#undef SUITE
};

static bool is_wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return true;
        }
    }
    return argc < 2;
}

static bool add_suite(const struct test_suite *suite)
{
    CU_pSuite added = CU_add_suite(suite->name, NULL, NULL);
    for (const struct test_case *c = suite->cases; added != NULL && c->name != NULL; c++) {
        if (CU_add_test(added, c->name, c->run) == NULL) {
            return false;
        }
    }
    return added != NULL;
}

/* The levels that this machine has, a line each; the others are skips, said so. */
static int print_levels(void)
{
    for (int value = PKV_ISA_SCALAR; value < PKV_NUM_ISAS; value++) {
        const enum pkv_isa isa = (enum pkv_isa)value;
        if (test_has_isa(isa)) {
            printf("%s\n", pkv_isa_name(isa));
        } else {
            fprintf(stderr, "skipped: %s, not on this machine or not in this build\n",
                    pkv_isa_name(isa));
        }
    }
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--levels") == 0) {
        return print_levels();
    }
    if (!test_has_isa(test_isa())) {
        printf("skipped: this machine has no %s\n", pkv_isa_name(test_isa()));
        return EXIT_SUCCESS;
    }
    if (CU_initialize_registry() != CUE_SUCCESS) {
        return EXIT_FAILURE;
    }
    for (size_t i = 0; i < sizeof suites / sizeof suites[0]; i++) {
        if (is_wanted(suites[i]->name, argc, argv) && !add_suite(suites[i])) {
            fprintf(stderr, "%s\n", CU_get_error_msg());
            return EXIT_FAILURE;
        }
    }
    printf("%s; seed %llu\n", pkv_build_info(), (unsigned long long)test_seed());
    CU_basic_set_mode(CU_BRM_NORMAL);
    CU_basic_run_tests();
    const unsigned failures = CU_get_number_of_failures();
    const unsigned run = CU_get_number_of_tests_run();
    CU_cleanup_registry();
    return failures == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
