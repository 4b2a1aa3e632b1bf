/* SPDX-License-Identifier: MIT
 *
 * A managed layer in tasks: the same bits as pkv_step_attend, and what is refused while it
 * is under way. */
#include <string.h>

#include "attn/workspace.h"
#include "runtime/cache.h"
#include "support/runtime_case.h"

enum executor { BY_ATTEND, BY_TASKS, BY_HOOK, NUM_EXECUTORS };

static int hook_calls;

/* The last task first: the others find nothing to do. */
static void backwards(void *context, int32_t num_tasks, pkv_task_function *task, void *task_context)
{
    (void)context;
    hook_calls++;
    for (int32_t i = num_tasks - 1; i >= 0; i--) {
        task(task_context, i);
    }
}

static void open_two_groups(struct runtime_case *c, enum executor executor)
{
    case_init(c);
    struct pkv_group_config *window = case_add_group(c);
    window->sliding_window = 9;
    window->num_blocks = 64;
    c->groups[0].num_blocks = 64;
    c->groups[0].kv_heads = 2;
    c->layers[0].num_heads = 4;
    case_add_layer(c, 1);
    struct pkv_layer_config *sharing = case_add_layer(c, 0);
    sharing->num_heads = 2;
    sharing->shares_kv = true;
    sharing->kv_layer = 0;
    c->config.num_threads = 2;
    c->tasks = executor == BY_TASKS;
    c->config.hooks.parallel_for = executor == BY_HOOK ? backwards : NULL;
    case_open(c);
    c->cache->workspace->thread_ns = 1;
}

/* Prefill, decode, a fork that copies: attended at once, in tasks, and by hooks.parallel_for. */
static void tasks_and_hook_give_the_bits_of_attend(void)
{
    static struct case_seq seqs[NUM_EXECUTORS][3];
    uint64_t digests[NUM_EXECUTORS][6];
    for (int e = 0; e < NUM_EXECUTORS; e++) {
        struct runtime_case c;
        struct case_seq *seq = seqs[e];
        open_two_groups(&c, (enum executor)e);
        ASSERT_STATUS(PKV_OK, case_create(&c, &seq[0], NULL));
        ASSERT_STATUS(PKV_OK, case_create(&c, &seq[1], NULL));
        digests[e][0] = case_append_digest(&c, &seq[0], 30);
        digests[e][1] = case_append_digest(&c, &seq[1], 7);
        ASSERT_STATUS(PKV_OK, case_fork(&c, &seq[0], 30, &seq[2]));
        struct case_step step = {0};
        case_row(&step, &seq[0], 1);
        case_row(&step, &seq[1], 5);
        case_row(&step, &seq[2], 2);
        ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 3));
        case_attend_all(&c, &step);
        case_commit(&c, &step, NULL);
        for (int i = 0; i < 3; i++) {
            digests[e][2 + i] = step.rows[i].digest;
        }
        digests[e][5] = case_append_digest(&c, &seq[2], 1);
        for (int i = 0; i < 3; i++) {
            ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seq[i].handle));
        }
        case_close(&c);
    }
    CU_ASSERT(memcmp(digests[0], digests[1], sizeof digests[0]) == 0);
    CU_ASSERT(memcmp(digests[0], digests[2], sizeof digests[0]) == 0);
    CU_ASSERT(hook_calls > 0);
}

static void a_layer_under_way_refuses_other_calls(void)
{
    static struct case_seq seq;
    struct runtime_case c;
    float q[2] = {0};
    float k[2] = {0};
    float v[2] = {0};
    float out[2] = {0};
    const struct pkv_layer_io io = {.size = sizeof io, .q = q, .k = k, .v = v, .out = out};
    case_init(&c);
    case_add_layer(&c, 0);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &seq, NULL));
    struct case_step step = {0};
    case_row(&step, &seq, 1);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 1));
    CU_ASSERT_EQUAL(pkv_step_num_tasks(c.cache, step.handle, PKV_PHASE_ATTEND), 0);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT,
                  pkv_step_run_task(c.cache, step.handle, PKV_PHASE_ATTEND, 0, 0));
    ASSERT_STATUS(PKV_OK, pkv_step_layer_begin(c.cache, step.handle, 0, &io));
    const int32_t count = pkv_step_num_tasks(c.cache, step.handle, PKV_PHASE_ATTEND);
    CU_ASSERT(count > 0);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_attend(c.cache, step.handle, 1, &io));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_layer_begin(c.cache, step.handle, 1, &io));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "under way", pkv_step_commit(c.cache, step.handle, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT,
                  pkv_step_run_task(c.cache, step.handle, PKV_PHASE_ATTEND, count, 0));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT,
                  pkv_step_run_task(c.cache, step.handle, PKV_PHASE_ATTEND, 0, 1));
    for (int p = 0; p < PKV_NUM_PHASES; p++) {
        const enum pkv_phase phase = (enum pkv_phase)p;
        for (int32_t i = pkv_step_num_tasks(c.cache, step.handle, phase) - 1; i >= 0; i--) {
            ASSERT_STATUS(PKV_OK, pkv_step_run_task(c.cache, step.handle, phase, i, 0));
        }
    }
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_layer_begin(c.cache, step.handle, 0, &io));
    ASSERT_STATUS(PKV_OK, pkv_step_layer_begin(c.cache, step.handle, 1, &io));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_abort(c.cache, step.handle));
    for (int p = 0; p < PKV_NUM_PHASES; p++) {
        const enum pkv_phase phase = (enum pkv_phase)p;
        for (int32_t i = pkv_step_num_tasks(c.cache, step.handle, phase) - 1; i >= 0; i--) {
            ASSERT_STATUS(PKV_OK, pkv_step_run_task(c.cache, step.handle, phase, i, 0));
        }
    }
    case_abort(&c, &step);
    ASSERT_STATUS(PKV_STALE_HANDLE,
                  pkv_step_run_task(c.cache, step.handle, PKV_PHASE_ATTEND, 0, 0));
    ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 3));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seq.handle));
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(tasks_and_hook_give_the_bits_of_attend),
    TEST(a_layer_under_way_refuses_other_calls),
    TEST_END,
};
const struct test_suite suite_runtime_tasks = {"runtime_tasks", cases};
