/* SPDX-License-Identifier: MIT
 *
 * The calls beside the operator that work on finished rows: the norm of heads, merging of partial
 * results, and the sink that is added once. Against double arithmetic, in place and apart, and in
 * the cascade that they are for; what they refuse is in states_refuse.c. With u = 2^-24, the
 * bounds are
 *
 *   norm    |y| u (width / 2 + 6): a sum of width squares, a root, a quotient, two products
 *   merge   8 u (|a| + |b|): exp of an f32 difference d is off by |d| u relatively, and |d|
 * exp(-|d|) is below 1/2; then a sum, a quotient, two products and a sum lse     8 u + 2 u |lse|
 *
 * and the rounding of the output to its dtype. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/gqa_case.h"

static const double unit = 0x1p-24;

static double rounding_of(enum pkv_dtype dtype, double x)
{
    return 0.5 * reference_ulp(dtype, x);
}

static bool is_within(enum pkv_dtype dtype, double got, double want, double bound)
{
    return got == want || (isnan(got) && isnan(want)) ||
           fabs(got - want) <= bound + rounding_of(dtype, fabs(want) + bound);
}

/* Norm */

struct norm_shape {
    enum pkv_dtype dtype, weight_dtype;
    int32_t num_tokens, heads, width;
    size_t x_pad, y_pad; /* elements between rows */
    float eps;
};

static size_t row_of(const struct norm_shape *s)
{
    return (size_t)s->heads * (size_t)s->width;
}

static void *random_floats(struct test_random *random, enum pkv_dtype dtype, size_t count,
                           double size)
{
    void *array = reference_alloc(count, pkv_dtype_bytes(dtype));
    for (size_t i = 0; i < count; i++) {
        ref_store(dtype, array, i, size * random_unit(random));
    }
    return array;
}

/* One head of y against the definition. */
static bool norm_head_is_right(const struct norm_shape *s, const void *x, size_t x_at,
                               const void *weight, const void *y, size_t y_at)
{
    double sum = 0;
    for (size_t c = 0; c < (size_t)s->width; c++) {
        const double value = ref_load(s->dtype, x, x_at + c);
        sum += value * value;
    }
    const double rms = sqrt(sum / s->width + (double)s->eps);
    for (size_t c = 0; c < (size_t)s->width; c++) {
        const double want =
            ref_load(s->dtype, x, x_at + c) / rms * ref_load(s->weight_dtype, weight, c);
        const double got = ref_load(s->dtype, y, y_at + c);
        if (!is_within(s->dtype, got, want, fabs(want) * unit * (s->width / 2.0 + 6))) {
            printf("\n  width %d, channel %zu: %.9g, expected %.9g\n", s->width, c, got, want);
            return false;
        }
    }
    return true;
}

/* Every head, and the gaps between the rows of y, which hold NaN. */
static bool norm_is_right(const struct norm_shape *s, const void *x, const void *weight,
                          const void *y)
{
    const size_t x_stride = row_of(s) + s->x_pad;
    const size_t y_stride = row_of(s) + s->y_pad;
    bool is_right = true;
    for (size_t t = 0; t < (size_t)s->num_tokens; t++) {
        for (size_t at = 0; is_right && at < row_of(s); at += (size_t)s->width) {
            is_right = norm_head_is_right(s, x, t * x_stride + at, weight, y, t * y_stride + at);
        }
        for (size_t c = row_of(s); c < y_stride; c++) {
            is_right = is_right && isnan(ref_load(s->dtype, y, t * y_stride + c));
        }
    }
    return is_right;
}

static enum pkv_status run_norm(pkv_workspace *workspace, const struct norm_shape *s, const void *x,
                                const void *weight, void *y, size_t x_stride, size_t y_stride)
{
    return pkv_qk_rms_norm(workspace, s->dtype, s->num_tokens, (int32_t)row_of(s), x, x_stride,
                           weight, s->weight_dtype, s->width, s->eps, y, y_stride);
}

static void assert_norm(pkv_workspace *workspace, const struct norm_shape *s)
{
    struct test_random random = {test_seed() + (uint64_t)s->width};
    const size_t x_stride = row_of(s) + s->x_pad;
    const size_t y_stride = row_of(s) + s->y_pad;
    const size_t element = pkv_dtype_bytes(s->dtype);
    const size_t y_count = (size_t)s->num_tokens * y_stride;
    void *x = random_floats(&random, s->dtype, (size_t)s->num_tokens * x_stride, 4);
    void *weight = random_floats(&random, s->weight_dtype, (size_t)s->width, 2);
    void *y = random_floats(&random, s->dtype, y_count, (double)NAN);
    ASSERT_STATUS(PKV_OK, run_norm(workspace, s, x, weight, y, s->x_pad > 0 ? x_stride : 0,
                                   s->y_pad > 0 ? y_stride : 0));
    CU_ASSERT(norm_is_right(s, x, weight, y));
    /* in place: the same bits, and the gaps stay */
    void *both = reference_alloc((size_t)s->num_tokens * x_stride, element);
    memcpy(both, x, (size_t)s->num_tokens * x_stride * element);
    ASSERT_STATUS(PKV_OK, run_norm(workspace, s, both, weight, both, x_stride, x_stride));
    for (size_t t = 0; t < (size_t)s->num_tokens; t++) {
        const char *row = (const char *)both + t * x_stride * element;
        CU_ASSERT(memcmp(row, (const char *)y + t * y_stride * element, row_of(s) * element) == 0);
        CU_ASSERT(memcmp(row + row_of(s) * element,
                         (const char *)x + (t * x_stride + row_of(s)) * element,
                         s->x_pad * element) == 0);
    }
    free(x);
    free(weight);
    free(y);
    free(both);
}

static void norm_is_its_definition_in_every_dtype(void)
{
    static const int32_t widths[] = {1, 2, 7, 16, 63, 64, 80, 129, 256};
    pkv_workspace *workspace = case_workspace(1);
    for (size_t i = 0; i < 9 * sizeof widths / sizeof widths[0]; i++) {
        const struct norm_shape s = {.dtype = (enum pkv_dtype)(i % 3),
                                     .weight_dtype = (enum pkv_dtype)(i / 3 % 3),
                                     .num_tokens = 1 + (int32_t)(i % 4),
                                     .heads = 1 + (int32_t)(i % 3),
                                     .width = widths[i / 9],
                                     .x_pad = i % 2 * 5,
                                     .y_pad = i % 5,
                                     .eps = i % 2 ? 1e-6f : 0.5f};
        assert_norm(workspace, &s);
    }
    pkv_workspace_destroy(workspace);
}

static void norm_of_zeros_is_zero_and_of_nan_stays_in_its_head(void)
{
    static const float weight[] = {1, 2};
    const float x[] = {0, 0, NAN, 1, 3, 4, INFINITY, 1};
    float y[8];
    pkv_workspace *workspace = case_workspace(1);
    ASSERT_STATUS(PKV_OK,
                  pkv_qk_rms_norm(workspace, PKV_F32, 2, 4, x, 0, weight, PKV_F32, 2, 1e-6f, y, 0));
    CU_ASSERT(y[0] == 0 && y[1] == 0);
    CU_ASSERT(isnan(y[2]) && isnan(y[3]));
    ASSERT_CLOSE(y[4], 3 / sqrt(12.5));
    ASSERT_CLOSE(y[5], 8 / sqrt(12.5));
    CU_ASSERT(isnan(y[6]));
    pkv_workspace_destroy(workspace);
}

/* A fused row and a packed one, side by side: neither is the other. */
static void norm_accepts_arrays_that_touch(void)
{
    static const float weight[] = {1, 1};
    float memory[2 * 5 + 2 * 2];
    pkv_workspace *workspace = case_workspace(1);
    for (int order = 0; order < 2; order++) {
        float *x = order == 0 ? memory : memory + 4;
        float *y = order == 0 ? memory + 7 : memory; /* x reaches 5 + 2 elements, y 4 */
        for (int i = 0; i < 4; i++) {
            x[i / 2 * 5 + i % 2] = (float)(i + 1);
        }
        ASSERT_STATUS(PKV_OK, pkv_qk_rms_norm(workspace, PKV_F32, 2, 2, x, 5, weight, PKV_F32, 2,
                                              1e-6f, y, 0));
        ASSERT_CLOSE(y[3], 4 / sqrt(12.5 + 1e-6));
    }
    pkv_workspace_destroy(workspace);
}

/* qk_rms_norm is what a layer without rope does inside the operator when norm_order says before. */
static void norm_before_a_plain_call_is_the_operators_own(void)
{
    static const float weight[] = {0.5f, -1.25f, 2, 1};
    struct test_random random = {test_seed()};
    float *q = random_floats(&random, PKV_F32, 3 * 4, 2);
    float *k = random_floats(&random, PKV_F32, 3 * 4, 2);
    float *v = random_floats(&random, PKV_F32, 3 * 4, 2);
    float inside[12], outside[12];
    static const int32_t cu[] = {0, 3};
    struct pkv_gqa_args args = case_f32_args(PKV_CACHE_NONE, 1, 1, 1, 4);
    args.num_tokens = 3;
    args.cu_seqlens_q = cu;
    args.q = q;
    args.k = k;
    args.v = v;
    args.out = inside;
    args.constants.q_norm_gain = args.constants.k_norm_gain = weight;
    args.constants.q_norm_gain_count = args.constants.k_norm_gain_count = 4;
    args.constants.qk_norm_eps = 1e-5f;
    args.constants.norm_order = PKV_NORM_BEFORE_ROPE;
    case_run(&args);
    const struct pkv_attn_constants plain = {.q_scale = NULL};
    pkv_workspace *workspace = case_workspace(1);
    args.constants = plain;
    args.out = outside;
    ASSERT_STATUS(PKV_OK,
                  pkv_qk_rms_norm(workspace, PKV_F32, 3, 4, q, 0, weight, PKV_F32, 4, 1e-5f, q, 0));
    ASSERT_STATUS(PKV_OK,
                  pkv_qk_rms_norm(workspace, PKV_F32, 3, 4, k, 0, weight, PKV_F32, 4, 1e-5f, k, 0));
    case_run(&args);
    for (int i = 0; i < 12; i++) {
        ASSERT_CLOSE(inside[i], (double)outside[i]);
    }
    free(q);
    free(k);
    free(v);
    pkv_workspace_destroy(workspace);
}

/* Merging */

struct state_shape {
    enum pkv_dtype dtype;
    int32_t num_tokens, num_heads, width;
};

static size_t heads_of(const struct state_shape *s)
{
    return (size_t)s->num_tokens * (size_t)s->num_heads;
}

static size_t channels_of(const struct state_shape *s)
{
    return heads_of(s) * (size_t)s->width;
}

static struct pkv_state state_make(const struct state_shape *s, struct test_random *random,
                                   double lse_size)
{
    const struct pkv_state state = {random_floats(random, s->dtype, channels_of(s), 3),
                                    random_floats(random, PKV_F32, heads_of(s), lse_size)};
    return state;
}

static struct pkv_state state_copy(const struct state_shape *s, const struct pkv_state *from)
{
    const size_t bytes = channels_of(s) * pkv_dtype_bytes(s->dtype);
    const struct pkv_state to = {reference_alloc(bytes, 1),
                                 reference_alloc(heads_of(s), sizeof(float))};
    memcpy(to.out, from->out, bytes);
    memcpy(to.lse, from->lse, heads_of(s) * sizeof(float));
    return to;
}

/* The empty state, its out as a kernel leaves it that never wrote it. */
static struct pkv_state state_empty(const struct state_shape *s)
{
    struct test_random random = {1};
    const struct pkv_state state = {random_floats(&random, s->dtype, channels_of(s), (double)NAN),
                                    random_floats(&random, PKV_F32, heads_of(s), 0)};
    for (size_t i = 0; i < heads_of(s); i++) {
        state.lse[i] = -INFINITY;
    }
    return state;
}

static void state_free(struct pkv_state *state)
{
    free(state->out);
    free(state->lse);
}

static bool same_states(const struct state_shape *s, const struct pkv_state *a,
                        const struct pkv_state *b)
{
    return memcmp(a->out, b->out, channels_of(s) * pkv_dtype_bytes(s->dtype)) == 0 &&
           memcmp(a->lse, b->lse, heads_of(s) * sizeof(float)) == 0;
}

static void merge(const struct state_shape *s, const struct pkv_state *a, const struct pkv_state *b,
                  const struct pkv_state *result)
{
    pkv_workspace *workspace = case_workspace(1);
    ASSERT_STATUS(PKV_OK, pkv_merge_states(workspace, s->dtype, s->num_tokens, s->num_heads,
                                           s->width, a, b, result));
    pkv_workspace_destroy(workspace);
}

static void apply_sink(const struct state_shape *s, const float *head_sink,
                       const struct pkv_state *state)
{
    pkv_workspace *workspace = case_workspace(1);
    ASSERT_STATUS(PKV_OK, pkv_apply_sink(workspace, s->dtype, s->num_tokens, s->num_heads, s->width,
                                         head_sink, state));
    pkv_workspace_destroy(workspace);
}

static bool lse_is_right(double got, double want)
{
    return got == want || fabs(got - want) <= unit * (8 + 2 * fabs(want));
}

static bool merged_head_is_right(const struct state_shape *s, const struct pkv_state *a,
                                 const struct pkv_state *b, const struct pkv_state *result,
                                 size_t head)
{
    const double la = (double)a->lse[head];
    const double lb = (double)b->lse[head];
    const double max = fmax(la, lb);
    const double wa = exp(la - max);
    const double wb = exp(lb - max);
    for (size_t c = head * (size_t)s->width; c < (head + 1) * (size_t)s->width; c++) {
        const double x = ref_load(s->dtype, a->out, c);
        const double y = ref_load(s->dtype, b->out, c);
        const double want = (wa * x + wb * y) / (wa + wb);
        if (!is_within(s->dtype, ref_load(s->dtype, result->out, c), want,
                       8 * unit * (fabs(x) + fabs(y)))) {
            printf("\n  lse %g and %g, channel %zu: %.9g, expected %.9g\n", la, lb, c,
                   ref_load(s->dtype, result->out, c), want);
            return false;
        }
    }
    return lse_is_right((double)result->lse[head], max + log(wa + wb));
}

static void merging_is_its_definition_in_every_dtype(void)
{
    static const int32_t widths[] = {1, 3, 16, 63, 64, 65, 128, 200};
    static const double spreads[] = {0, 1, 30, 200, 1e5};
    struct test_random random = {test_seed()};
    for (size_t i = 0; i < 8 * 5 * 3; i++) {
        const struct state_shape s = {(enum pkv_dtype)(i % 3), 1 + (int32_t)(i % 4),
                                      1 + (int32_t)(i % 5), widths[i % 8]};
        struct pkv_state a = state_make(&s, &random, spreads[i / 24]);
        struct pkv_state b = state_make(&s, &random, spreads[i / 24]);
        struct pkv_state result = state_empty(&s);
        bool is_right = true;
        merge(&s, &a, &b, &result);
        for (size_t head = 0; is_right && head < heads_of(&s); head++) {
            is_right = merged_head_is_right(&s, &a, &b, &result, head);
        }
        CU_ASSERT(is_right);
        state_free(&a);
        state_free(&b);
        state_free(&result);
    }
}

/* E3: an empty partial result changes nothing when it is merged. */
static void merging_with_the_empty_state_is_the_identity(void)
{
    struct test_random random = {test_seed()};
    for (int dtype = PKV_F32; dtype <= PKV_BF16; dtype++) {
        const struct state_shape s = {(enum pkv_dtype)dtype, 3, 2, 65};
        struct pkv_state full = state_make(&s, &random, 90);
        struct pkv_state empty = state_empty(&s);
        struct pkv_state result = state_empty(&s);
        ref_store(s.dtype, full.out, 0, 0.0);
        ref_store(s.dtype, full.out, 1, -0.0);
        merge(&s, &full, &empty, &result);
        CU_ASSERT(same_states(&s, &result, &full));
        memset(result.out, 0xff, channels_of(&s) * pkv_dtype_bytes(s.dtype));
        merge(&s, &empty, &full, &result);
        CU_ASSERT(same_states(&s, &result, &full));
        state_free(&full);
        state_free(&empty);
        state_free(&result);
    }
}

/* E3: the out of an empty state is not read, so it may be NaN; that of the result is zero. */
static void merging_two_empty_states_is_empty_whatever_their_out_holds(void)
{
    for (int dtype = PKV_F32; dtype <= PKV_BF16; dtype++) {
        const struct state_shape s = {(enum pkv_dtype)dtype, 2, 2, 7};
        struct pkv_state a = state_empty(&s);
        struct pkv_state b = state_empty(&s);
        struct pkv_state result = state_empty(&s);
        merge(&s, &a, &b, &result);
        for (size_t c = 0; c < channels_of(&s); c++) {
            CU_ASSERT_EQUAL(ref_load(s.dtype, result.out, c), 0);
        }
        CU_ASSERT(memcmp(result.lse, a.lse, heads_of(&s) * sizeof(float)) == 0);
        state_free(&a);
        state_free(&b);
        state_free(&result);
    }
}

/* A row that saw NaN has a NaN state, and no merge may make that look like a row without keys. */
static void merging_keeps_the_nan_of_either_side(void)
{
    const struct state_shape s = {PKV_F32, 1, 1, 2};
    for (int i = 0; i < 4; i++) {
        float broken_out[] = {NAN, NAN}, broken_lse = NAN;
        float other_out[] = {1, 2}, other_lse = i % 2 == 0 ? -INFINITY : 0.5f;
        float out[] = {0, 0}, lse = 0;
        const struct pkv_state broken = {broken_out, &broken_lse};
        const struct pkv_state other = {other_out, &other_lse};
        const struct pkv_state result = {out, &lse};
        merge(&s, i < 2 ? &broken : &other, i < 2 ? &other : &broken, &result);
        CU_ASSERT(isnan(out[0]) && isnan(out[1]) && isnan(lse));
    }
}

static void merging_in_place_gives_the_bits_of_merging_apart(void)
{
    struct test_random random = {test_seed()};
    for (int dtype = PKV_F32; dtype <= PKV_BF16; dtype++) {
        const struct state_shape s = {(enum pkv_dtype)dtype, 3, 4, 70};
        struct pkv_state a = state_make(&s, &random, 4);
        struct pkv_state b = state_make(&s, &random, 4);
        struct pkv_state apart = state_empty(&s);
        struct pkv_state into_a = state_copy(&s, &a);
        struct pkv_state into_b = state_copy(&s, &b);
        struct pkv_state kept = state_copy(&s, &a);
        a.lse[1] = into_a.lse[1] = kept.lse[1] = -INFINITY;
        b.lse[2] = into_b.lse[2] = -INFINITY;
        merge(&s, &a, &b, &apart);
        merge(&s, &into_a, &b, &into_a);
        merge(&s, &a, &into_b, &into_b);
        CU_ASSERT(same_states(&s, &apart, &into_a));
        CU_ASSERT(same_states(&s, &apart, &into_b));
        CU_ASSERT(same_states(&s, &a, &kept));
        /* the same state three times: equal weights */
        merge(&s, &kept, &kept, &kept);
        CU_ASSERT_EQUAL(kept.lse[1], -INFINITY);
        CU_ASSERT(lse_is_right((double)kept.lse[0], (double)a.lse[0] + log(2)));
        state_free(&a);
        state_free(&b);
        state_free(&apart);
        state_free(&into_a);
        state_free(&into_b);
        state_free(&kept);
    }
}

/* The sink */

static void sink_is_its_definition_in_every_dtype(void)
{
    static const float sinks[] = {0, -4, 5.5f, -INFINITY, 90};
    struct test_random random = {test_seed()};
    for (size_t i = 0; i < 12; i++) {
        const struct state_shape s = {(enum pkv_dtype)(i % 3), 4, 5, 1 + 23 * (int32_t)i};
        struct pkv_state state = state_make(&s, &random, i < 6 ? 3 : 100);
        struct pkv_state before = state_copy(&s, &state);
        apply_sink(&s, sinks, &state);
        for (size_t at = 0; at < channels_of(&s); at++) {
            const size_t head = at / (size_t)s.width;
            const double lse = (double)before.lse[head];
            const double sink = (double)sinks[head % 5];
            const double max = fmax(lse, sink);
            const double sum = exp(lse - max) + exp(sink - max);
            const double x = ref_load(s.dtype, before.out, at);
            CU_ASSERT(is_within(s.dtype, ref_load(s.dtype, state.out, at), x * exp(lse - max) / sum,
                                8 * unit * fabs(x)));
            CU_ASSERT(lse_is_right((double)state.lse[head], max + log(sum)));
        }
        state_free(&state);
        state_free(&before);
    }
}

/* E5: a row without keys has the sink alone: out 0, lse = s. */
static void sink_of_an_empty_state_is_the_sink_alone(void)
{
    static const float sinks[] = {1.5f, -INFINITY, -300};
    for (int dtype = PKV_F32; dtype <= PKV_BF16; dtype++) {
        const struct state_shape s = {(enum pkv_dtype)dtype, 2, 3, 5};
        struct pkv_state state = state_empty(&s);
        for (size_t c = 0; c < 30; c++) {
            if (c / 5 % 3 == 1) {
                ref_store(s.dtype, state.out, c, 0); /* what an attend leaves there */
            }
        }
        apply_sink(&s, sinks, &state);
        for (size_t c = 0; c < 30; c++) {
            CU_ASSERT_EQUAL(ref_load(s.dtype, state.out, c), 0);
            CU_ASSERT_EQUAL(state.lse[c / 5], sinks[c / 5 % 3]);
        }
        state_free(&state);
    }
}

/* E5: the maximum includes the sink, so neither side overflows. */
static void sink_takes_all_or_nothing_without_overflow(void)
{
    static const float sinks[] = {200, 0, 0, 0.6931472f};
    float out[] = {2, 2, 2, 2};
    float lse[] = {0.6931472f, -1000, 1000, 0.6931472f};
    const struct state_shape s = {PKV_F32, 1, 4, 1};
    const struct pkv_state state = {out, lse};
    apply_sink(&s, sinks, &state);
    ASSERT_CLOSE(out[0], 0);
    ASSERT_CLOSE(out[1], 0);
    ASSERT_CLOSE(out[2], 2);
    ASSERT_CLOSE(out[3], 1);
    ASSERT_CLOSE(lse[0], 200);
    ASSERT_CLOSE(lse[1], 0);
    ASSERT_CLOSE(lse[2], 1000);
    ASSERT_CLOSE(lse[3], 2 * 0.6931472);
}

static void sink_of_minus_infinity_changes_no_bit(void)
{
    static const float sinks[] = {-INFINITY, -INFINITY};
    struct test_random random = {test_seed()};
    const struct state_shape s = {PKV_BF16, 3, 2, 9};
    struct pkv_state state = state_make(&s, &random, 10);
    state.lse[1] = -INFINITY;
    struct pkv_state before = state_copy(&s, &state);
    apply_sink(&s, sinks, &state);
    CU_ASSERT(same_states(&s, &state, &before));
    state_free(&state);
    state_free(&before);
}

/* Cascade: keys 0..cuts[0], then up to cuts[1], .. are attended apart. The last part holds the
 * queries' own tokens and is causal; the others are not. Merged and with the sink added once, they
 * are the direct call. */

enum { CASCADE_KEYS = 90, CASCADE_QUERIES = 3, CASCADE_HEADS = 4, CASCADE_WIDTH = 24 };

static const struct state_shape *cascade_shape(enum pkv_dtype dtype)
{
    static struct state_shape shape;
    shape = (struct state_shape){dtype, CASCADE_QUERIES, CASCADE_HEADS, CASCADE_WIDTH};
    return &shape;
}

/* The read-only attend of one row over the first kv_len cells of k and v [kv head][capacity]. */
static struct pkv_gqa_args cascade_args(enum pkv_dtype dtype, void *k, void *v,
                                        const int32_t *kv_len)
{
    static const int32_t cu[] = {0, CASCADE_QUERIES};
    struct pkv_gqa_args args = case_f32_args(PKV_CACHE_DENSE, 1, CASCADE_HEADS, 2, CASCADE_WIDTH);
    args.dtype = dtype;
    args.num_tokens = CASCADE_QUERIES;
    args.cu_seqlens_q = cu;
    args.kv_lens = kv_len;
    args.past = case_f32_view(k, v, 1, 2, CASCADE_KEYS, CASCADE_WIDTH);
    args.past.k_dtype = args.past.v_dtype = dtype;
    /* heads stay apart by the whole capacity, wherever a part begins */
    args.past.k_head_stride = args.past.v_head_stride = (size_t)CASCADE_KEYS * CASCADE_WIDTH;
    return args;
}

/* Merges the parts of args' keys into *total, which is empty. */
static void attend_parts(const struct pkv_gqa_args *direct, const int32_t *cuts, int32_t num_cuts,
                         const struct pkv_state *total)
{
    const struct state_shape *s = cascade_shape(direct->dtype);
    pkv_workspace *workspace = case_workspace(2);
    struct pkv_state part = state_empty(s);
    for (int32_t i = 0; i <= num_cuts; i++) {
        const int32_t begin = i > 0 ? cuts[i - 1] : 0;
        const int32_t count = (i < num_cuts ? cuts[i] : CASCADE_KEYS) - begin;
        const size_t skip = (size_t)begin * CASCADE_WIDTH * pkv_dtype_bytes(direct->dtype);
        struct pkv_gqa_args args = *direct;
        args.kv_lens = &count;
        args.past.k = (char *)args.past.k + skip;
        args.past.v = (char *)args.past.v + skip;
        args.past.block_size = CASCADE_KEYS - begin;
        args.not_causal = i < num_cuts;
        args.constants.head_sink = NULL;
        args.constants.head_sink_count = 0;
        args.out = part.out;
        args.lse = part.lse;
        ASSERT_STATUS(PKV_OK, pkv_attention_over_cache(workspace, &args));
        merge(s, total, &part, total);
    }
    if (direct->constants.head_sink != NULL) {
        apply_sink(s, direct->constants.head_sink, total);
    }
    state_free(&part);
    pkv_workspace_destroy(workspace);
}

/* Each of n parts rounds its out once more, to at most max |V|, and each merge adds its own 8 u;
 * both sides are within the operator's bound of the reference. */
static void assert_cascade(const struct pkv_gqa_args *direct, const struct pkv_state *total,
                           int32_t num_parts)
{
    struct reference ref;
    reference_append(direct, &ref);
    reference_attend(direct, &ref);
    bool is_right = true;
    for (size_t i = 0; is_right && i < CASCADE_QUERIES * CASCADE_HEADS * CASCADE_WIDTH; i++) {
        const size_t head = i / CASCADE_WIDTH;
        const double sums = 4 * unit * (CASCADE_WIDTH + CASCADE_KEYS) * (1 + ref.logit_size[head]);
        const double rounds = rounding_of(direct->dtype, ref.value_size[head]) + 16 * unit;
        const double bound = (2 * sums + num_parts * rounds) * fmax(1, ref.value_size[head]);
        const double got = ref_load(direct->dtype, total->out, i);
        const double once = ref_load(direct->dtype, direct->out, i);
        is_right = is_within(direct->dtype, got, ref.out[i], bound) &&
                   is_within(direct->dtype, got, once, bound) &&
                   fabs((double)total->lse[head] - ref.lse[head]) <=
                       2 * sums + num_parts * unit * (8 + 2 * fabs(ref.lse[head]));
    }
    CU_ASSERT(is_right);
    reference_free(&ref);
}

static void run_cascade(enum pkv_dtype dtype, const int32_t *cuts, int32_t num_cuts, bool has_sink)
{
    static const float sinks[] = {0.5f, -INFINITY, 3, -1};
    static const int32_t all = CASCADE_KEYS;
    const struct state_shape *s = cascade_shape(dtype);
    struct test_random random = {test_seed() + (uint64_t)num_cuts};
    void *k = random_floats(&random, dtype, (size_t)2 * CASCADE_KEYS * CASCADE_WIDTH, 1);
    void *v = random_floats(&random, dtype, (size_t)2 * CASCADE_KEYS * CASCADE_WIDTH, 1);
    void *q = random_floats(&random, dtype, channels_of(s), 2);
    struct pkv_state total = state_empty(s);
    struct pkv_state once = state_empty(s);
    struct pkv_gqa_args args = cascade_args(dtype, k, v, &all);
    args.q = q;
    args.out = once.out;
    args.lse = once.lse;
    if (has_sink) {
        args.constants.head_sink = sinks;
        args.constants.head_sink_count = CASCADE_HEADS;
    }
    pkv_workspace *workspace = case_workspace(2);
    ASSERT_STATUS(PKV_OK, pkv_attention_over_cache(workspace, &args));
    pkv_workspace_destroy(workspace);
    attend_parts(&args, cuts, num_cuts, &total);
    assert_cascade(&args, &total, num_cuts + 1);
    free(k);
    free(v);
    free(q);
    state_free(&total);
    state_free(&once);
}

static void cascade_over_parts_of_the_keys_is_the_direct_call(void)
{
    static const int32_t two[] = {40}, three[] = {16, 64}, with_empty[] = {0, 87};
    for (int dtype = PKV_F32; dtype <= PKV_BF16; dtype++) {
        for (int has_sink = 0; has_sink < 2; has_sink++) {
            run_cascade((enum pkv_dtype)dtype, two, 1, has_sink);
            run_cascade((enum pkv_dtype)dtype, three, 2, has_sink);
            run_cascade((enum pkv_dtype)dtype, with_empty, 2, has_sink);
        }
    }
}

static const struct test_case cases[] = {
    TEST(norm_is_its_definition_in_every_dtype),
    TEST(norm_of_zeros_is_zero_and_of_nan_stays_in_its_head),
    TEST(norm_accepts_arrays_that_touch),
    TEST(norm_before_a_plain_call_is_the_operators_own),
    TEST(merging_is_its_definition_in_every_dtype),
    TEST(merging_with_the_empty_state_is_the_identity),
    TEST(merging_two_empty_states_is_empty_whatever_their_out_holds),
    TEST(merging_keeps_the_nan_of_either_side),
    TEST(merging_in_place_gives_the_bits_of_merging_apart),
    TEST(sink_is_its_definition_in_every_dtype),
    TEST(sink_of_an_empty_state_is_the_sink_alone),
    TEST(sink_takes_all_or_nothing_without_overflow),
    TEST(sink_of_minus_infinity_changes_no_bit),
    TEST(cascade_over_parts_of_the_keys_is_the_direct_call),
    TEST_END,
};
const struct test_suite suite_states = {"states", cases};
