/* SPDX-License-Identifier: MIT
 *
 * The test runner: all suites, or those whose names are given. PKV_TEST_ISA and PKV_TEST_SEED steer
 * it; CUnit's summary closes the run and a failure is exit status 1. */
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

/* A level that this CPU lacks is a skip, said in a word, not a run at another level. */
static bool level_is_there(void)
{
    pkv_workspace *workspace = NULL;
    const enum pkv_status status = pkv_workspace_create(1, test_isa(), NULL, &workspace);
    pkv_workspace_destroy(workspace);
    return status != PKV_UNSUPPORTED;
}

int main(int argc, char **argv)
{
    if (!level_is_there()) {
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
