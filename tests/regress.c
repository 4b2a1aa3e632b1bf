/* SPDX-License-Identifier: MIT
 *
 * Bugs that were found and fixed, one case each, named after what holds since. */
#include <math.h>
#include <string.h>

#include "support/gqa_case.h"
#include "support/runtime_case.h"

/* The padding of a short tile swallowed a NaN: its row came out as one that sees nothing. */
static void nan_is_kept_in_tiles_short_of_a_vector(void)
{
    for (int32_t length = 1; length <= 70; length++) {
        float q[1] = {NAN};
        float k[70] = {0};
        float v[70] = {0};
        float out[1] = {0};
        float lse[1] = {0};
        int32_t kv_len = length;
        struct pkv_gqa_args args = case_f32_args(PKV_CACHE_DENSE, 1, 1, 1, 1);
        args.past = case_f32_view(k, v, 1, 1, 70, 1);
        args.kv_lens = &kv_len;
        args.q = q;
        args.out = out;
        args.lse = lse;
        case_run(&args);
        CU_ASSERT(isnan(out[0]));
        CU_ASSERT(isnan(lse[0]));
        q[0] = 1.0f;
        memset(k, 0, sizeof k);
        for (int32_t j = 0; j < length; j++) {
            k[j] = -INFINITY;
        }
        k[length / 2] = NAN;
        case_run(&args);
        CU_ASSERT(isnan(out[0]));
        k[length / 2] = -INFINITY; /* without it the row has weights of 0 alone */
        case_run(&args);
        CU_ASSERT_EQUAL(out[0], 0.0f);
    }
}

/* A plan made without rope let a run read past cos/sin tables that are too short. */
static void a_run_looks_again_at_rope_tables_that_its_plan_did_not_have(void)
{
    static float table[8 * 4];
    struct case_spec spec = case_plain(test_seed());
    case_add_row(&spec, 0, 1, 40);
    struct gqa_case *c = gqa_case_make(&spec);
    pkv_workspace *workspace = case_workspace(1);
    pkv_plan *plan = NULL;
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &c->args, plan));
    struct pkv_gqa_args args = c->args;
    args.constants.rope_cos = table;
    args.constants.rope_sin = table;
    args.constants.rope_positions = 8;
    args.constants.rope_width = 4;
    gqa_case_snapshot(c);
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "rope_positions", pkv_gqa_run(workspace, &args, plan));
    const int64_t id = 8;
    args.position_ids = &id;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "position_ids[0]", pkv_gqa_run(workspace, &args, plan));
    CU_ASSERT_EQUAL(gqa_case_changed(c, REGION_CACHE | REGION_OUTPUT), -1);
    pkv_plan_destroy(plan);
    pkv_workspace_destroy(workspace);
    gqa_case_free(c);
}

/* A batch with a time crashed where there is no prefix cache to tell it. */
static void a_cache_without_a_prefix_cache_takes_a_time(void)
{
    struct runtime_case c;
    struct case_seq seq;
    struct pkv_shortage shortage = {.size = sizeof shortage};
    pkv_step step = {0};
    case_init(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &seq, NULL));
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = &seq.handle,
                                    .q_lens = (int32_t[]){0},
                                    .num_rows = 1,
                                    .num_required_rows = 1,
                                    .now_ns = 1000};
    ASSERT_STATUS(PKV_OK, pkv_step_fits(c.cache, &batch, &shortage));
    ASSERT_STATUS(PKV_OK, pkv_step_begin(c.cache, &batch, &step, &shortage));
    ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step));
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(nan_is_kept_in_tiles_short_of_a_vector),
    TEST(a_run_looks_again_at_rope_tables_that_its_plan_did_not_have),
    TEST(a_cache_without_a_prefix_cache_takes_a_time),
    TEST_END,
};
const struct test_suite suite_regress = {"regress", cases};
