/* SPDX-License-Identifier: MIT
 *
 * test.h: what every suite uses. A suite is one file that defines `const struct test_suite
 * suite_<module>` and is listed in tests/suites.h; a case is named after the promise that it holds.
 */
#ifndef PKV_TEST_H
#define PKV_TEST_H

#include <CUnit/CUnit.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pagedkv.h"

struct test_case {
    const char *name;
    void (*run)(void);
};

/* cases ends with a NULL name */
struct test_suite {
    const char *name;
    const struct test_case *cases;
};

#define TEST(function)                                                                             \
    {                                                                                              \
#function, function                                                                        \
    }
#define TEST_END                                                                                   \
    {                                                                                              \
        NULL, NULL                                                                                 \
    }

/* The call answers this status; what fails is printed with the last error. */
#define ASSERT_STATUS(expected, call)                                                              \
    test_assert_status((expected), (call), #call, __FILE__, __LINE__)
void test_assert_status(enum pkv_status expected, enum pkv_status actual, const char *call,
                        const char *file, unsigned line);

/* A prompt of n tokens without extras, as an argument. */
#define PROMPT(ids, n)                                                                             \
    (&(const struct pkv_prompt){                                                                   \
        .size = sizeof(struct pkv_prompt), .token_ids = (ids), .num_tokens = (n)})

/* The call answers this status, and the last error contains `part`. In tables of refusals, the
 * second form and ASSERT_CASE print the name of the case that fails. */
#define ASSERT_REFUSED(expected, part, call)                                                       \
    test_assert_refused(#call, (expected), (part), (call), __FILE__, __LINE__)
#define ASSERT_CASE_REFUSED(name, expected, part, call)                                            \
    test_assert_refused((name), (expected), (part), (call), __FILE__, __LINE__)
void test_assert_refused(const char *name, enum pkv_status expected, const char *part,
                         enum pkv_status actual, const char *file, unsigned line);
#define ASSERT_CASE(name, condition)                                                               \
    test_assert_case((name), (condition), #condition, __FILE__, __LINE__)
void test_assert_case(const char *name, bool holds, const char *condition, const char *file,
                      unsigned line);

/* The instruction set that PKV_TEST_ISA names, BEST when unset; a name that is none ends the
 * program. And whether this build and machine have one. */
enum pkv_isa test_isa(void);
bool test_has_isa(enum pkv_isa isa);

/* Seeds: test_seed() is PKV_TEST_SEED or a constant, printed by the runner. splitmix64 from there.
 */
uint64_t test_seed(void);
struct test_random {
    uint64_t state;
};
uint64_t random_u64(struct test_random *random);
int32_t random_between(struct test_random *random, int32_t low, int32_t high); /* both included */
double random_unit(struct test_random *random);                                /* [-1, 1) */

/* Memory hooks that count and can fail: the fail_at-th allocation from now (1 = the next) and all
 * after it return NULL; 0 never fails. live is what was not freed. */
struct test_memory {
    long fail_at;
    _Atomic long calls; /* atomic: hooks are called from several threads */
    _Atomic long live;
    _Atomic size_t live_bytes;
    _Atomic long num_logged; /* lines through the log hook */
};
struct pkv_hooks test_hooks(struct test_memory *memory);

/* Writes the path of a file under $PKV_SHARED or ../shared; false (and a line that says skipped)
 * where it is absent. */
bool test_shared_file(const char *name, char *path, size_t bytes);

/* float conversions of the tests' own, independent of the library's */
float ref_from_f16(uint16_t bits);
uint16_t ref_to_f16(double x);
float ref_from_bf16(uint16_t bits);
uint16_t ref_to_bf16(double x);
float ref_from_e4m3(uint8_t bits);
uint8_t ref_to_e4m3(double x);
double ref_load(enum pkv_dtype dtype, const void *array, size_t index);
void ref_store(enum pkv_dtype dtype, void *array, size_t index, double x);

/* True, after a line that says so, when the program is built with a sanitiser that needs what a
 * test denies it. */
bool test_is_sanitised(const char *need);

/* Has a workspace's calls run on all of its threads even where that is not worth while, so that
 * small cases try them too. */
void test_eager_threads(pkv_workspace *workspace);

#endif
