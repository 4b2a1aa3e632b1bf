/* SPDX-License-Identifier: MIT
 *
 * Runs of free ids: the runs that a naive model finds by walking, after every change, and that what
 * is found depends on nothing but which ids are free. */
#include "alloc/free_runs.h"

#include <string.h>

#include "support/test.h"

enum { MODEL_IDS = 6000, SMALL_IDS = 70, OPERATIONS = 200000 };

/* Which ids are free. */
struct model {
    bool is_free[MODEL_IDS];
    int32_t num_ids;
};

static int32_t model_class(int32_t length)
{
    int32_t class = 0;
    while (class < FREE_RUNS_LAST_CLASS && length >> (class + 1) > 0) {
        class ++;
    }
    return class;
}

static int32_t model_end(const struct model *model, int32_t id)
{
    while (id < model->num_ids && model->is_free[id]) {
        id++;
    }
    return id;
}

static struct id_run model_longest(const struct model *model)
{
    struct id_run longest = {-1, 0};
    for (int32_t id = 0; id < model->num_ids; id++) {
        const int32_t count = model_end(model, id) - id;
        if (count > 0 && (longest.count == 0 || model_class(count) > model_class(longest.count))) {
            longest = (struct id_run){id, count};
        }
        id += count;
    }
    return longest;
}

static void agree(const struct free_runs *runs, const struct model *model)
{
    const struct id_run longest = model_longest(model);
    CU_ASSERT_EQUAL_FATAL(runs->longest.first, longest.first);
    CU_ASSERT_EQUAL_FATAL(runs->longest.count, longest.count);
}

static int32_t broken(const struct free_runs *runs)
{
    static const struct pkv_hooks silent;
    struct report report = {&silent, "runs", 0};
    free_runs_check(runs, &report);
    return report.num_broken;
}

/* Puts a random id, or takes a few from one, or the first of the longest run. */
static void operate(struct free_runs *runs, struct model *model, struct test_random *random)
{
    const int32_t id = random_between(random, 0, model->num_ids - 1);
    CU_ASSERT_EQUAL_FATAL(free_runs_has(runs, id), model->is_free[id]);
    if (random_between(random, 0, 3) == 0) {
        const int32_t first = model_longest(model).first;
        CU_ASSERT_EQUAL_FATAL(free_runs_take_first(runs), first);
        if (first >= 0) {
            model->is_free[first] = false;
        }
    } else if (!model->is_free[id]) {
        free_runs_put(runs, id);
        model->is_free[id] = true;
    } else {
        const struct id_run rest = free_runs_from(runs, id);
        CU_ASSERT_FATAL(rest.first == id && rest.count == model_end(model, id) - id);
        const struct id_run taken = {id,
                                     random_between(random, 1, rest.count < 9 ? rest.count : 9)};
        free_runs_take(runs, taken);
        memset(&model->is_free[id], 0, (size_t)taken.count);
    }
}

static void runs_agree_with_a_naive_model(void)
{
    static struct model model;
    struct test_random random = {test_seed()};
    for (model.num_ids = 1; model.num_ids <= SMALL_IDS; model.num_ids += 23) {
        struct free_runs runs;
        CU_ASSERT_FATAL(free_runs_create(&runs, model.num_ids, &(struct pkv_hooks){0}));
        memset(model.is_free, 1, (size_t)model.num_ids);
        for (int32_t i = 0; i < OPERATIONS; i++) {
            operate(&runs, &model, &random);
            agree(&runs, &model);
            CU_ASSERT_FATAL(i % 64 != 0 || broken(&runs) == 0);
        }
        free_runs_destroy(&runs, &(struct pkv_hooks){0});
    }
}

/* Runs beyond the last class count as equally long: the lowest is the longest. */
static void long_runs_agree_with_a_naive_model(void)
{
    static struct model model = {.num_ids = MODEL_IDS};
    struct test_random random = {test_seed()};
    struct free_runs runs;
    CU_ASSERT_FATAL(free_runs_create(&runs, MODEL_IDS, &(struct pkv_hooks){0}));
    memset(model.is_free, 1, MODEL_IDS);
    free_runs_take(&runs, (struct id_run){2048, 1});
    model.is_free[2048] = false;
    agree(&runs, &model);
    CU_ASSERT(runs.longest.first == 0 && runs.longest.count == 2048);
    CU_ASSERT_EQUAL(free_runs_take_first(&runs), 0);
    model.is_free[0] = false;
    CU_ASSERT(runs.longest.first == 2049 && runs.longest.count == MODEL_IDS - 2049);
    for (int32_t i = 0; i < 3000; i++) {
        operate(&runs, &model, &random);
        agree(&runs, &model);
    }
    CU_ASSERT_EQUAL(broken(&runs), 0);
    free_runs_destroy(&runs, &(struct pkv_hooks){0});
}

/* One way to break runs of 70 ids of which 3 and 65 are held. */
static void break_runs(struct free_runs *runs, int how)
{
    switch (how) {
    case 0: runs->lengths[0] = 2; break;
    case 1: runs->lengths[64] = 3; break;
    case 2: runs->lengths[3] = 1; break;
    case 3: runs->lengths[10] = 0; break;
    case 4: runs->classes |= 1; break;
    case 5: runs->classes &= ~2u; break;
    case 6: id_set_remove(&runs->starts[1], 0); break;
    case 7: id_set_add(&runs->starts[3], 69); break;
    case 8: runs->starts[2].levels[1][0] = 1; break;
    case 9: runs->num_free++; break;
    case 10: runs->longest.first++; break;
    case 11: runs->longest.count--; break;
    default: runs->longest_class = 1; break;
    }
}

static void check_reports_every_kind_of_damage(void)
{
    for (int how = 0; how <= 12; how++) {
        struct free_runs runs;
        CU_ASSERT_FATAL(free_runs_create(&runs, 70, &(struct pkv_hooks){0}));
        free_runs_take(&runs, (struct id_run){3, 1});
        free_runs_take(&runs, (struct id_run){65, 1});
        CU_ASSERT_EQUAL(broken(&runs), 0);
        break_runs(&runs, how);
        CU_ASSERT(broken(&runs) > 0);
        free_runs_destroy(&runs, &(struct pkv_hooks){0});
    }
}

static const struct test_case cases[] = {
    TEST(runs_agree_with_a_naive_model),
    TEST(long_runs_agree_with_a_naive_model),
    TEST(check_reports_every_kind_of_damage),
    TEST_END,
};
const struct test_suite suite_free_runs = {"free_runs", cases};
