/* SPDX-License-Identifier: MIT
 *
 * Whose threads run a call: OpenMP's, or the caller's by hooks.parallel_for, and then OpenMP is
 * never entered. Bits stay. */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>

#include "attn/workspace.h"
#include "support/gqa_case.h"

#define NUM_WORKERS 3

/* Rows that are split, rows of several chunks of queries, and appends that come first. */
static struct case_spec spec_of(int variant)
{
    struct case_spec spec = case_plain(test_seed() + (uint64_t)variant);
    spec.dtype = (enum pkv_dtype)(variant % 3);
    spec.k_dtype = spec.v_dtype = spec.dtype;
    spec.kv_heads = 2;
    spec.group = 2;
    spec.k_width = spec.v_width = 64;
    case_add_row(&spec, 0, 1, 3000);
    case_add_row(&spec, 1, 40, 200);
    case_add_row(&spec, 2, 90, 100);
    return spec;
}

/* Threads of this process. */
static int num_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    for (const struct dirent *entry = NULL; tasks != NULL && (entry = readdir(tasks)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    if (tasks != NULL) {
        closedir(tasks);
    }
    return count;
}

/* ---- executors ------------------------------------------------------------------------------ */

enum order { FORWARDS, BACKWARDS, ON_THREADS, NUM_ORDERS };

struct pool {
    enum order order;
    int calls;
    int32_t max_tasks;
};

struct pool_task {
    pkv_task_function *function;
    void *context;
    int32_t task;
};

static void *run_pool_task(void *argument)
{
    const struct pool_task *task = argument;
    task->function(task->context, task->task);
    return NULL;
}

static void run_on_threads(int32_t num_tasks, pkv_task_function *function, void *context)
{
    pthread_t threads[NUM_WORKERS];
    struct pool_task tasks[NUM_WORKERS];
    for (int32_t i = 0; i < num_tasks; i++) {
        tasks[i] = (struct pool_task){function, context, i};
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, run_pool_task, &tasks[i]), 0);
    }
    for (int32_t i = 0; i < num_tasks; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void pool_for(void *context, int32_t num_tasks, pkv_task_function *function,
                     void *task_context)
{
    struct pool *pool = context;
    pool->calls++;
    pool->max_tasks = num_tasks > pool->max_tasks ? num_tasks : pool->max_tasks;
    if (pool->order == ON_THREADS && num_tasks <= NUM_WORKERS) {
        run_on_threads(num_tasks, function, task_context);
        return;
    }
    for (int32_t i = 0; i < num_tasks; i++) {
        function(task_context, pool->order == BACKWARDS ? num_tasks - 1 - i : i);
    }
}

static pkv_workspace *workspace_of(const struct pkv_hooks *hooks)
{
    pkv_workspace *workspace = NULL;
    ASSERT_STATUS(PKV_OK, pkv_workspace_create(NUM_WORKERS, test_isa(), hooks, &workspace));
    test_eager_threads(workspace);
    return workspace;
}

/* H5: the threads of hooks.parallel_for do all of the work, in whatever order, with the bits of one
 * thread. No other thread is started, and the hook is called once a phase at most. */
static void a_hook_runs_the_work_with_the_same_bits(void)
{
    pkv_workspace *alone = case_workspace(1);
    const int threads_before = num_threads();
    for (int order = 0; order < NUM_ORDERS; order++) {
        struct pool pool = {.order = (enum order)order};
        const struct pkv_hooks hooks = {.context = &pool, .parallel_for = pool_for};
        pkv_workspace *workspace = workspace_of(&hooks);
        for (int variant = 0; variant < 3; variant++) {
            const struct case_spec spec = spec_of(variant);
            struct gqa_case *one = gqa_case_run(&spec, alone);
            struct gqa_case *many = gqa_case_run(&spec, workspace);
            CU_ASSERT(gqa_case_same_rows(one, many));
            gqa_case_free(one);
            gqa_case_free(many);
        }
        CU_ASSERT_EQUAL(pool.max_tasks, NUM_WORKERS);
        CU_ASSERT(pool.calls >= 3 && pool.calls <= 3 * PKV_NUM_PHASES);
        CU_ASSERT_EQUAL(num_threads(), threads_before);
        pkv_workspace_destroy(workspace);
    }
    pkv_workspace_destroy(alone);
}

/* H5: so do OpenMP's threads, call after call, whether they come in time or not. */
static void openmp_gives_the_same_bits(void)
{
    const struct case_spec spec = spec_of(0);
    pkv_workspace *alone = case_workspace(1);
    pkv_workspace *workspace = workspace_of(NULL);
    struct gqa_case *one = gqa_case_run(&spec, alone);
    for (int i = 0; i < 20; i++) {
        CU_ASSERT(gqa_case_runs_same(one, &spec, workspace));
    }
    gqa_case_free(one);
    pkv_workspace_destroy(workspace);
    pkv_workspace_destroy(alone);
}

/* Calls with work for two threads and for three take turns, and the region's threads stay: OpenMP's
 * are ended and started anew when regions change in size. */
static void regions_keep_their_size(void)
{
    static const int32_t keys[] = {20000, 1500}; /* as in small_calls_run_on_fewer_threads */
    pkv_workspace *workspace = NULL;
    ASSERT_STATUS(PKV_OK, pkv_workspace_create(NUM_WORKERS, test_isa(), NULL, &workspace));
    int threads = 0;
    for (int i = 0; i < 40; i++) {
        struct case_spec spec = case_plain(test_seed());
        spec.kv_heads = 2;
        spec.k_width = spec.v_width = 64;
        case_add_row(&spec, 0, 1, keys[i % 2]);
        gqa_case_free(gqa_case_run(&spec, workspace));
        threads = i == 0 ? num_threads() : threads;
        CU_ASSERT_EQUAL(num_threads(), threads);
    }
    pkv_workspace_destroy(workspace);
}

/* While a team backs off, calls open no region: a thread that never had one starts none. */
static void *run_backing_off(void *context)
{
    const struct case_spec spec = spec_of(0);
    pkv_workspace *workspace = workspace_of(NULL);
    int *const started = context;
    workspace->team.backoff.alone_ns = INT64_MAX;
    const int threads = num_threads();
    gqa_case_free(gqa_case_run(&spec, workspace));
    *started = num_threads() - threads;
    CU_ASSERT(workspace->team.backoff.alone_ns < INT64_MAX);
    pkv_workspace_destroy(workspace);
    return NULL;
}

static void a_team_that_backs_off_opens_no_region(void)
{
    pthread_t thread;
    int started = -1;
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, run_backing_off, &started), 0);
    pthread_join(thread, NULL);
    CU_ASSERT_EQUAL(started, 0);
}

/* A call that is over before a region opens stays on the caller's thread; one of some milliseconds
 * goes to all. The hook is told how many, by the sizes of the call alone. */
static void small_calls_run_on_fewer_threads(void)
{
    static const struct {
        int32_t keys, tasks;
    } calls[] = {{1, 0}, {64, 0}, {256, 0}, {1500, 2}, {20000, NUM_WORKERS}};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        struct pool pool = {.order = FORWARDS};
        const struct pkv_hooks hooks = {.context = &pool, .parallel_for = pool_for};
        struct case_spec spec = case_plain(test_seed());
        pkv_workspace *workspace = NULL;
        spec.kv_heads = 2;
        spec.k_width = spec.v_width = 64;
        case_add_row(&spec, 0, 1, calls[i].keys);
        ASSERT_STATUS(PKV_OK, pkv_workspace_create(NUM_WORKERS, test_isa(), &hooks, &workspace));
        gqa_case_free(gqa_case_run(&spec, workspace));
        CU_ASSERT_EQUAL(pool.max_tasks, calls[i].tasks);
        pkv_workspace_destroy(workspace);
    }
}

static const struct test_case cases[] = {
    TEST(a_hook_runs_the_work_with_the_same_bits),
    TEST(openmp_gives_the_same_bits),
    TEST(regions_keep_their_size),
    TEST(a_team_that_backs_off_opens_no_region),
    TEST(small_calls_run_on_fewer_threads),
    TEST_END,
};
const struct test_suite suite_gqa_threads = {"gqa_threads", cases};
