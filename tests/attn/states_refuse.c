/* SPDX-License-Identifier: MIT
 *
 * What the norm of heads, the merging of states and the sink refuse. Each entry of a table spoils
 * one good call, which must then answer PKV_INVALID_ARGUMENT, name the culprit in the last error
 * and leave every byte as it was: all arrays of a call lie in one arena, so that one comparison
 * sees them. */
#include <math.h>
#include <string.h>

#include "support/gqa_case.h"
#include "support/spoil.h"

enum { ARENA_FLOATS = 256 };

struct call {
    float arena[ARENA_FLOATS];
    pkv_workspace *workspace;
    enum pkv_dtype dtype, weight_dtype;
    int32_t num_tokens, num_heads, width, hidden;
    float eps;
    size_t x_stride, y_stride;
    const float *x, *weight, *sink;
    float *y;
    struct pkv_state states[3];
    const struct pkv_state *a, *b, *result;
};

/* Three tokens of two heads of width 4: rows of 8. */
static void call_make(struct call *call, pkv_workspace *workspace)
{
    memset(call, 0, sizeof *call);
    for (int i = 0; i < ARENA_FLOATS; i++) {
        call->arena[i] = 0.25f * (float)(i % 19) - 1;
    }
    call->workspace = workspace;
    call->num_tokens = 3;
    call->num_heads = 2;
    call->width = 4;
    call->hidden = 8;
    call->eps = 1e-6f;
    call->x = call->arena;
    call->y = call->arena + 32;
    call->weight = call->sink = call->arena + 240;
    for (int i = 0; i < 3; i++) {
        call->states[i].out = call->arena + 40 * i;
        call->states[i].lse = call->arena + 40 * i + 30;
    }
    call->a = &call->states[0];
    call->b = &call->states[1];
    call->result = &call->states[2];
}

static enum pkv_status call_norm(const struct call *call)
{
    return pkv_qk_rms_norm(call->workspace, call->dtype, call->num_tokens, call->hidden, call->x,
                           call->x_stride, call->weight, call->weight_dtype, call->width, call->eps,
                           call->y, call->y_stride);
}

static enum pkv_status call_merge(const struct call *call)
{
    return pkv_merge_states(call->workspace, call->dtype, call->num_tokens, call->num_heads,
                            call->width, call->a, call->b, call->result);
}

static enum pkv_status call_sink(const struct call *call)
{
    return pkv_apply_sink(call->workspace, call->dtype, call->num_tokens, call->num_heads,
                          call->width, call->sink, call->a);
}

struct refusal {
    const char *name;
    void (*spoil)(struct call *call);
    const char *culprit; /* part of the last error */
};

/* The table ends with a NULL name. */
static void assert_all_refuse(enum pkv_status (*run)(const struct call *call),
                              const struct refusal *refusals)
{
    pkv_workspace *workspace = case_workspace(1);
    static struct call call, before;
    call_make(&call, workspace);
    ASSERT_STATUS(PKV_OK, run(&call));
    for (const struct refusal *r = refusals; r->name != NULL; r++) {
        call_make(&call, workspace);
        r->spoil(&call);
        memcpy(before.arena, call.arena, sizeof call.arena);
        ASSERT_CASE_REFUSED(r->name, PKV_INVALID_ARGUMENT, r->culprit, run(&call));
        ASSERT_CASE(r->name, memcmp(before.arena, call.arena, sizeof call.arena) == 0);
    }
    pkv_workspace_destroy(workspace);
}

#define SPOILED struct call *call

SPOIL(no_workspace, call->workspace = NULL)
SPOIL(dtype_int8, call->dtype = PKV_INT8)
SPOIL(dtype_e4m3, call->dtype = PKV_E4M3)
SPOIL(dtype_unknown, call->dtype = (enum pkv_dtype)5)
SPOIL(dtype_negative, call->dtype = (enum pkv_dtype)(-1))
SPOIL(weight_of_codes, call->weight_dtype = PKV_E4M3)
SPOIL(weight_unknown, call->weight_dtype = (enum pkv_dtype)99)
SPOIL(tokens_negative, call->num_tokens = -1)
SPOIL(heads_zero, call->num_heads = 0)
SPOIL(heads_negative, call->num_heads = -2)
SPOIL(width_zero, call->width = 0)
SPOIL(width_negative, call->width = -4)
SPOIL(hidden_zero, call->hidden = 0)
SPOIL(hidden_negative, call->hidden = -8)
SPOIL(hidden_not_divisible, call->width = 3)
SPOIL(hidden_below_width, call->width = 16)
SPOIL(eps_zero, call->eps = 0)
SPOIL(eps_negative, call->eps = -1e-6f)
SPOIL(eps_nan, call->eps = NAN)
SPOIL(eps_infinite, call->eps = INFINITY)
SPOIL(x_absent, call->x = NULL)
SPOIL(y_absent, call->y = NULL)
SPOIL(weight_absent, call->weight = NULL)
SPOIL(x_stride_small, call->x_stride = 7)
SPOIL(y_stride_small, call->y_stride = 1)
SPOIL(x_stride_overflows, call->x_stride = SIZE_MAX / 4)
SPOIL(y_stride_overflows, call->y_stride = SIZE_MAX / 4 + 3)
SPOIL(y_over_x, call->y = call->arena + 1)
SPOIL(y_over_last_of_x, call->y = call->arena + 23)
SPOIL(y_before_x, call->x = call->arena + 40; call->y = call->arena + 40 - 8)
SPOIL(y_in_other_rows, call->y = call->arena; call->y_stride = 9)
SPOIL(y_over_weight, call->y = call->arena + 232)

static void norms_that_make_no_sense_refuse(void)
{
    static const struct refusal refusals[] = {
        {"no workspace", no_workspace, "workspace"},
        {"dtype int8", dtype_int8, "dtype"},
        {"dtype e4m3", dtype_e4m3, "dtype"},
        {"unknown dtype", dtype_unknown, "dtype"},
        {"negative dtype", dtype_negative, "dtype"},
        {"weight of e4m3", weight_of_codes, "weight_dtype"},
        {"weight of an unknown dtype", weight_unknown, "weight_dtype"},
        {"negative num_tokens", tokens_negative, "num_tokens"},
        {"width 0", width_zero, "width"},
        {"negative width", width_negative, "width"},
        {"hidden 0", hidden_zero, "hidden"},
        {"negative hidden", hidden_negative, "hidden"},
        {"hidden no multiple of width", hidden_not_divisible, "hidden"},
        {"hidden below width", hidden_below_width, "hidden"},
        {"eps 0", eps_zero, "eps"},
        {"negative eps", eps_negative, "eps"},
        {"eps NaN", eps_nan, "eps"},
        {"eps infinite", eps_infinite, "eps"},
        {"no x", x_absent, "x is NULL"},
        {"no y", y_absent, "y is NULL"},
        {"no weight", weight_absent, "weight is NULL"},
        {"x_stride below hidden", x_stride_small, "x_stride"},
        {"y_stride below hidden", y_stride_small, "y_stride"},
        {"x_stride whose bytes overflow", x_stride_overflows, "x_stride"},
        {"y_stride whose bytes overflow", y_stride_overflows, "y_stride"},
        {"y an element into x", y_over_x, "overlaps"},
        {"y begins at the last element of x", y_over_last_of_x, "overlaps"},
        {"y ends inside x", y_before_x, "overlaps"},
        {"y is x with other rows", y_in_other_rows, "overlaps"},
        {"y over the weight", y_over_weight, "weight"},
        {NULL, NULL, NULL}};
    assert_all_refuse(call_norm, refusals);
}

SPOIL(a_absent, call->a = NULL)
SPOIL(b_absent, call->b = NULL)
SPOIL(result_absent, call->result = NULL)
SPOIL(a_without_out, call->states[0].out = NULL)
SPOIL(b_without_lse, call->states[1].lse = NULL)
SPOIL(result_without_out, call->states[2].out = NULL)
SPOIL(result_without_lse, call->states[2].lse = NULL)
SPOIL(result_an_element_into_a, call->states[2].out = call->arena + 1)
SPOIL(result_a_token_into_b, call->states[2].out = call->arena + 48)
SPOIL(result_ends_in_b, call->states[2].out = call->arena + 40 - 23)
SPOIL(lse_an_element_into_a, call->states[2].lse = call->arena + 31)
SPOIL(lse_ends_in_b, call->states[2].lse = call->arena + 70 - 5)
SPOIL(lse_over_out_of_a, call->states[2].lse = call->arena + 10)
SPOIL(out_over_lse_of_b, call->states[2].out = call->arena + 70 - 20)
SPOIL(lse_over_out, call->states[2].lse = call->arena + 80 + 3)

static void merges_that_make_no_sense_refuse(void)
{
    static const struct refusal refusals[] = {
        {"no workspace", no_workspace, "workspace"},
        {"dtype int8", dtype_int8, "dtype"},
        {"dtype e4m3", dtype_e4m3, "dtype"},
        {"unknown dtype", dtype_unknown, "dtype"},
        {"negative dtype", dtype_negative, "dtype"},
        {"negative num_tokens", tokens_negative, "num_tokens"},
        {"no heads", heads_zero, "num_heads"},
        {"negative num_heads", heads_negative, "num_heads"},
        {"width 0", width_zero, "width"},
        {"negative width", width_negative, "width"},
        {"no a", a_absent, "a or"},
        {"no b", b_absent, "b or"},
        {"no result", result_absent, "result"},
        {"a without out", a_without_out, "a or"},
        {"b without lse", b_without_lse, "b or"},
        {"result without out", result_without_out, "result"},
        {"result without lse", result_without_lse, "result"},
        {"out of result an element into a", result_an_element_into_a, "result overlaps a"},
        {"out of result a token into b", result_a_token_into_b, "result overlaps b"},
        {"out of result ends in b", result_ends_in_b, "result overlaps"},
        {"lse of result an element into a", lse_an_element_into_a, "result overlaps a"},
        {"lse of result ends in b", lse_ends_in_b, "result overlaps b"},
        {"lse of result over out of a", lse_over_out_of_a, "result overlaps a"},
        {"out of result over lse of b", out_over_lse_of_b, "result overlaps b"},
        {"lse of result over its own out", lse_over_out, "result"},
        {NULL, NULL, NULL}};
    assert_all_refuse(call_merge, refusals);
}

SPOIL(sink_absent, call->sink = NULL)
SPOIL(sink_nan, call->arena[241] = NAN)
SPOIL(sink_infinite, call->arena[240] = INFINITY)
SPOIL(lse_over_own_out, call->states[0].lse = call->arena + 23)
SPOIL(sink_in_lse, call->states[0].lse = call->arena + 240)
SPOIL(sink_in_out, call->states[0].out = call->arena + 238)

static void sinks_that_make_no_sense_refuse(void)
{
    static const struct refusal refusals[] = {
        {"no workspace", no_workspace, "workspace"},
        {"dtype int8", dtype_int8, "dtype"},
        {"dtype e4m3", dtype_e4m3, "dtype"},
        {"unknown dtype", dtype_unknown, "dtype"},
        {"negative num_tokens", tokens_negative, "num_tokens"},
        {"no heads", heads_zero, "num_heads"},
        {"width 0", width_zero, "width"},
        {"no head_sink", sink_absent, "head_sink"},
        {"head_sink NaN", sink_nan, "head_sink[1]"},
        {"head_sink infinite", sink_infinite, "head_sink[0]"},
        {"no state", a_absent, "state"},
        {"state without out", a_without_out, "state"},
        {"lse over its own out", lse_over_own_out, "state"},
        {"head_sink in lse", sink_in_lse, "head_sink"},
        {"head_sink in out", sink_in_out, "head_sink"},
        {NULL, NULL, NULL}};
    assert_all_refuse(call_sink, refusals);
}

static void calls_without_tokens_touch_nothing(void)
{
    static struct call call, before;
    pkv_workspace *workspace = case_workspace(1);
    call_make(&call, workspace);
    before = call;
    call.num_tokens = 0;
    ASSERT_STATUS(PKV_OK, call_norm(&call));
    ASSERT_STATUS(PKV_OK, call_merge(&call));
    ASSERT_STATUS(PKV_OK, call_sink(&call));
    CU_ASSERT(memcmp(call.arena, before.arena, sizeof call.arena) == 0);
    call.x = call.weight = call.y = NULL;
    ASSERT_STATUS(PKV_OK, call_norm(&call));
    call.num_heads = 0;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, call_merge(&call));
    pkv_workspace_destroy(workspace);
}

static const struct test_case cases[] = {
    TEST(norms_that_make_no_sense_refuse),
    TEST(merges_that_make_no_sense_refuse),
    TEST(sinks_that_make_no_sense_refuse),
    TEST(calls_without_tokens_touch_nothing),
    TEST_END,
};
const struct test_suite suite_states_refuse = {"states_refuse", cases};
