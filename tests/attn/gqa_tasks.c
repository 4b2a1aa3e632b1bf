/* SPDX-License-Identifier: MIT
 *
 * A layer in tasks: run by threads of the caller's own, in any order, it leaves the bits of
 * pkv_gqa_run. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "support/gqa_case.h"

#define NUM_WORKERS 3

/* The phase under way: workers take its tasks from the end, the opposite of the library's order. */
struct crew {
    pkv_workspace *workspace;
    enum pkv_phase phase;
    atomic_int left;
    atomic_int failures;
};

struct hand {
    struct crew *crew;
    int worker;
};

static void *run_tasks(void *argument)
{
    const struct hand *hand = argument;
    struct crew *crew = hand->crew;
    for (int task = atomic_fetch_sub(&crew->left, 1) - 1; task >= 0;
         task = atomic_fetch_sub(&crew->left, 1) - 1) {
        if (pkv_gqa_run_task(crew->workspace, crew->phase, task, hand->worker) != PKV_OK) {
            atomic_fetch_add(&crew->failures, 1);
        }
    }
    return NULL;
}

static void run_phase(struct crew *crew, enum pkv_phase phase)
{
    pthread_t threads[NUM_WORKERS];
    struct hand hands[NUM_WORKERS];
    crew->phase = phase;
    atomic_store(&crew->left, pkv_gqa_num_tasks(crew->workspace, phase));
    for (int w = 0; w < NUM_WORKERS; w++) {
        hands[w] = (struct hand){crew, w};
        CU_ASSERT_EQUAL(pthread_create(&threads[w], NULL, run_tasks, &hands[w]), 0);
    }
    for (int w = 0; w < NUM_WORKERS; w++) {
        pthread_join(threads[w], NULL);
    }
}

/* Rows of every kind: decode long enough to be split, prefill in several blocks, without tokens. */
static struct case_spec mixed(int variant)
{
    struct case_spec spec = case_plain(test_seed() + (uint64_t)variant);
    spec.dtype = (enum pkv_dtype)(variant % 3);
    spec.k_dtype = spec.v_dtype = (enum pkv_dtype)(variant / 3 % 3);
    spec.kv_heads = 1 + variant % 2;
    spec.group = 1 + variant % 4;
    spec.block_size = 1 + 5 * (variant % 4);
    spec.options = variant % 2 ? CASE_ROPE | CASE_SINK | CASE_MASK : 0;
    case_add_row(&spec, 0, 1, 1700);
    case_add_row(&spec, 1, 9, 130);
    case_add_row(&spec, 2, 0, 17);
    case_add_row(&spec, 3, 90, 100);
    if (variant % 3 == 1) { /* images: keys that many tasks append and many attend to */
        case_add_range(&spec, 1, 121, 130);
        case_add_range(&spec, 3, 12, 95);
    }
    return spec;
}

static void tasks_on_own_threads_give_the_bits_of_a_run(void)
{
    pkv_workspace *alone = case_workspace(1);
    pkv_workspace *workspace = case_workspace(NUM_WORKERS);
    pkv_plan *plan = NULL;
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    for (int i = 0; i < 12; i++) {
        const struct case_spec spec = mixed(i);
        struct gqa_case *one = gqa_case_run(&spec, alone);
        struct gqa_case *many = gqa_case_make(&spec);
        struct pkv_gqa_args args = many->args;
        ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &args, plan));
        ASSERT_STATUS(PKV_OK, pkv_gqa_start(workspace, &args, plan));
        memset(&args, 0xff, sizeof args); /* the layer was copied */
        struct crew crew = {.workspace = workspace};
        for (int phase = 0; phase < PKV_NUM_PHASES; phase++) {
            run_phase(&crew, (enum pkv_phase)phase);
        }
        CU_ASSERT_EQUAL(atomic_load(&crew.failures), 0);
        CU_ASSERT(gqa_case_same_rows(one, many));
        gqa_case_free(one);
        gqa_case_free(many);
    }
    pkv_plan_destroy(plan);
    pkv_workspace_destroy(workspace);
    pkv_workspace_destroy(alone);
}

static void tasks_out_of_range_refuse(void)
{
    pkv_workspace *workspace = case_workspace(2);
    pkv_plan *plan = NULL;
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    CU_ASSERT_EQUAL(pkv_gqa_num_tasks(workspace, PKV_PHASE_ATTEND), 0);
    CU_ASSERT_EQUAL(pkv_gqa_num_tasks(NULL, PKV_PHASE_ATTEND), 0);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT,
                  pkv_gqa_run_task(workspace, PKV_PHASE_ATTEND, 0, 0)); /* nothing was started */
    const struct case_spec spec = mixed(0);
    struct gqa_case *c = gqa_case_make(&spec);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_start(workspace, &c->args, plan)); /* nor planned */
    ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &c->args, plan));
    ASSERT_STATUS(PKV_OK, pkv_gqa_start(workspace, &c->args, plan));
    const int32_t count = pkv_gqa_num_tasks(workspace, PKV_PHASE_ATTEND);
    CU_ASSERT(count > 0);
    gqa_case_snapshot(c);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_run_task(workspace, PKV_PHASE_ATTEND, count, 0));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_run_task(workspace, PKV_PHASE_ATTEND, -1, 0));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_run_task(workspace, PKV_PHASE_ATTEND, 0, 2));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_run_task(workspace, PKV_PHASE_ATTEND, 0, -1));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_run_task(workspace, (enum pkv_phase)9, 0, 0));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_run_task(NULL, PKV_PHASE_ATTEND, 0, 0));
    CU_ASSERT_EQUAL(gqa_case_changed(c, REGION_INPUT | REGION_CACHE | REGION_OUTPUT), -1);
    gqa_case_free(c);
    pkv_plan_destroy(plan);
    pkv_workspace_destroy(workspace);
}

/* Tasks of the started layer count by the plan that is no more. */
static void replanning_ends_the_started_layer(void)
{
    pkv_workspace *workspace = case_workspace(2);
    pkv_plan *plan = NULL;
    const struct case_spec spec = mixed(0);
    struct case_spec small = case_plain(test_seed());
    case_add_row(&small, 0, 1, 1);
    struct gqa_case *c = gqa_case_make(&spec);
    struct gqa_case *next = gqa_case_make(&small);
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &c->args, plan));
    ASSERT_STATUS(PKV_OK, pkv_gqa_start(workspace, &c->args, plan));
    const int32_t last = pkv_gqa_num_tasks(workspace, PKV_PHASE_ATTEND) - 1;
    CU_ASSERT(last > 0);
    ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &next->args, plan));
    for (int p = PKV_PHASE_APPEND; p < PKV_NUM_PHASES; p++) {
        const enum pkv_phase phase = (enum pkv_phase)p;
        CU_ASSERT_EQUAL(pkv_gqa_num_tasks(workspace, phase), 0);
        ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_run_task(workspace, phase, 0, 0));
        ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_run_task(workspace, phase, last, 0));
    }
    CU_ASSERT_EQUAL(gqa_case_changed(c, REGION_INPUT | REGION_CACHE | REGION_OUTPUT), -1);
    CU_ASSERT_EQUAL(gqa_case_changed(next, REGION_INPUT | REGION_CACHE | REGION_OUTPUT), -1);
    ASSERT_STATUS(PKV_OK, pkv_gqa_run(workspace, &next->args, plan));
    gqa_case_free(c);
    gqa_case_free(next);
    pkv_plan_destroy(plan);
    pkv_workspace_destroy(workspace);
}

static const struct test_case cases[] = {
    TEST(tasks_on_own_threads_give_the_bits_of_a_run),
    TEST(tasks_out_of_range_refuse),
    TEST(replanning_ends_the_started_layer),
    TEST_END,
};
const struct test_suite suite_gqa_tasks = {"gqa_tasks", cases};
