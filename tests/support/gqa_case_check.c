/* SPDX-License-Identifier: MIT
 *
 * gqa_case_check.c: one call against the reference, see gqa_case.h. The bounds are derived: an
 * output may differ from the reference, run on the very cells that the library stored, by
 *
 *     4 * 2^-24 * (k_width + kv_len) * (1 + |scale| * sum |q||k|) * max |V|
 *
 * and the rounding to its dtype; a stored channel by a unit in the last place and 4e-7 times the
 * magnitudes that it was made of where it was rotated or normed, by a code where it was quantised,
 * and otherwise by nothing. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "attn/dispatch.h"
#include "support/gqa_case.h"

static bool is_code(enum pkv_dtype dtype)
{
    return dtype == PKV_INT8 || dtype == PKV_E4M3;
}

/* The slack around a region's bytes may never change. */
static bool slack_is_intact(const struct case_region *region)
{
    const size_t head = (size_t)(region->start - region->map);
    const size_t tail = head + region->bytes;
    return memcmp(region->before, region->map, head) == 0 &&
           memcmp(region->before + tail, region->map + tail, region->map_bytes - tail) == 0;
}

static bool differs(const struct gqa_case *c, const char *format, ...) PKV_PRINTF(2, 3);

static bool differs(const struct gqa_case *c, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    printf("\n  seed %llu (replay with PKV_TEST_SEED): %s\n", (unsigned long long)c->spec.seed,
           text);
    return false;
}

/* One side of the cache: what the library and what the reference hold. */
struct stored {
    const char *name;
    enum pkv_dtype dtype;
    const void *library;
    void *reference;
    bool is_transformed;
};

static bool channel_is_right(const struct stored *side, size_t at, double size)
{
    if (is_code(side->dtype)) {
        return reference_code_steps(side->dtype, ((const uint8_t *)side->library)[at],
                                    ((const uint8_t *)side->reference)[at]) <= 1;
    }
    const double got = ref_load(side->dtype, side->library, at);
    const double want = ref_load(side->dtype, side->reference, at);
    const double bound = side->is_transformed ? reference_ulp(side->dtype, want) + 4e-7 * size : 0;
    return got == want || (isnan(got) && isnan(want)) || fabs(got - want) <= bound;
}

/* Compares width channels and gives the reference the library's bytes. */
static bool take_channels(const struct gqa_case *c, const struct stored *side, size_t at,
                          int32_t width, const double *size)
{
    const size_t bytes = pkv_dtype_bytes(side->dtype);
    for (size_t i = 0; i < (size_t)width; i++) {
        if (!channel_is_right(side, at + i, size != NULL ? size[i] : 0)) {
            return differs(c, "%s element %zu = %.9g, expected %.9g", side->name, at + i,
                           ref_load(side->dtype, side->library, at + i),
                           ref_load(side->dtype, side->reference, at + i));
        }
    }
    memcpy((char *)side->reference + at * bytes, (const char *)side->library + at * bytes,
           (size_t)width * bytes);
    return true;
}

static bool take_new_cells(const struct gqa_case *c, struct reference *ref,
                           const struct stored *keys, const struct stored *values)
{
    const struct pkv_gqa_args *args = &c->args;
    const struct case_spec *spec = &c->spec;
    for (int32_t b = 0; b < spec->batch; b++) {
        for (int32_t at = 0; at < spec->q_lens[b] * spec->kv_heads; at++) {
            const int32_t i = at / spec->kv_heads;
            const int32_t g = at % spec->kv_heads;
            const size_t token = (size_t)(c->cu_seqlens_q[b] + i);
            int32_t block = 0, cell = 0;
            reference_locate(args, b, spec->kv_lens[b] - spec->q_lens[b] + i, &block, &cell);
            const double *size =
                ref->k_size + (token * (size_t)spec->kv_heads + (size_t)g) * (size_t)spec->k_width;
            if (!take_channels(c, keys, reference_k_index(&ref->cache, block, g, cell),
                               spec->k_width, size) ||
                (!spec->v_in_k &&
                 !take_channels(c, values, reference_v_index(&ref->cache, block, g, cell),
                                spec->v_width, NULL))) {
                return false;
            }
        }
    }
    return true;
}

/* The caches hold what they should; ref then holds the library's own bytes. */
static bool check_caches(const struct gqa_case *c, struct reference *ref)
{
    const struct pkv_gqa_args *args = &c->args;
    const struct pkv_kv_view *view =
        args->form == PKV_CACHE_DENSE_COPY ? &args->present : &args->past;
    const struct stored keys = {"K", view->k_dtype, view->k, ref->cache.k,
                                args->constants.rope_cos != NULL ||
                                    args->constants.k_norm_gain != NULL};
    const struct stored values = {"V", view->v_dtype, view->v, ref->cache.v, false};
    if (args->form == PKV_CACHE_NONE) {
        return true;
    }
    if (!c->spec.read_only && !take_new_cells(c, ref, &keys, &values)) {
        return false;
    }
    if (memcmp(view->k, ref->cache.k, ref->k_bytes) != 0 ||
        (ref->v_bytes > 0 && memcmp(view->v, ref->cache.v, ref->v_bytes) != 0)) {
        return differs(c, "a byte of the cache that the call does not append has changed");
    }
    return true;
}

/* Levels with packed dot products split q into two bf16 numbers where keys are bf16, unless the
 * output is f32 (docs/numerics.md). */
static bool splits_queries(const struct gqa_case *c)
{
    const enum pkv_dtype keys =
        c->spec.form == PKV_CACHE_NONE ? c->spec.dtype : c->args.past.k_dtype;
    return dispatch_kernels(c->isa)->pack != NULL && c->spec.dtype != PKV_F32 && keys == PKV_BF16;
}

double gqa_case_bound(const struct gqa_case *c, const struct reference *ref, size_t at,
                      int32_t kv_len)
{
    const bool is_transformed =
        c->args.constants.rope_cos != NULL || c->args.constants.k_norm_gain != NULL;
    double bound = 4 * 0x1p-24 * (c->spec.k_width + kv_len) * (1 + ref->logit_size[at]);
    if (c->spec.form == PKV_CACHE_NONE && is_transformed) {
        /* keys that are nowhere to be read back may have been rounded the other way */
        bound += 2 * ref->logit_size[at] * reference_ulp(c->spec.dtype, 1);
    }
    if (splits_queries(c)) { /* leaves 2^-18 of a score, which an output feels twice */
        bound += 0x1p-17 * ref->logit_size[at];
    }
    return bound;
}

static bool check_head(const struct gqa_case *c, const struct reference *ref, int32_t b, int32_t i,
                       int32_t h)
{
    const struct pkv_gqa_args *args = &c->args;
    const size_t token = (size_t)(c->cu_seqlens_q[b] + i);
    const size_t at = token * (size_t)args->num_heads + (size_t)h;
    const size_t width = (size_t)c->spec.v_width;
    const size_t stride = args->out_stride ? args->out_stride : (size_t)args->num_heads * width;
    const double bound = gqa_case_bound(c, ref, at, c->spec.kv_lens[b]);
    for (size_t x = 0; x < width; x++) {
        const double got = ref_load(args->dtype, args->out, token * stride + (size_t)h * width + x);
        const double want = ref->out[at * width + x];
        const double sums = bound * ref->value_size[at];
        const double rounding = 0.5 * reference_ulp(args->dtype, fabs(want) + sums);
        if (!(fabs(got - want) <= sums + rounding) && !(isnan(got) && isnan(want))) {
            return differs(c, "out[row %d][query %d][head %d][%zu] = %.9g, expected %.9g +- %.2g",
                           b, i, h, x, got, want, sums + rounding);
        }
    }
    const double got = args->lse != NULL ? (double)args->lse[at] : 0;
    const double want = args->lse != NULL ? ref->lse[at] : 0;
    const double lse_bound = bound + 0x1p-23 * fabs(want);
    if (got != want && !(fabs(got - want) <= lse_bound) && !(isnan(got) && isnan(want))) {
        return differs(c, "lse[row %d][query %d][head %d] = %.9g, expected %.9g +- %.2g", b, i, h,
                       got, want, lse_bound);
    }
    return true;
}

static bool check_outputs(const struct gqa_case *c, const struct reference *ref)
{
    const int32_t heads = c->args.num_heads;
    for (int32_t b = 0; b < c->spec.batch; b++) {
        for (int32_t at = 0; at < c->spec.q_lens[b] * heads; at++) {
            if (!check_head(c, ref, b, at / heads, at % heads)) {
                return false;
            }
        }
    }
    return true;
}

/* Gaps between the rows of out, slack around every array, and the inputs are as before. */
static bool check_untouched(const struct gqa_case *c)
{
    const struct pkv_gqa_args *args = &c->args;
    const size_t row = gqa_case_out_bytes(c);
    const size_t stride = args->out_stride * pkv_dtype_bytes(args->dtype);
    for (size_t i = 0; i < c->num_regions; i++) {
        const struct case_region *region = &c->regions[i];
        if (!slack_is_intact(region)) {
            return differs(c, "bytes beside array %zu have changed", i);
        }
        const size_t head = (size_t)(region->start - region->map);
        const bool is_out = region->start == (const char *)args->out;
        for (int32_t t = 0; is_out && stride > row && t < args->num_tokens - 1; t++) {
            const size_t gap = (size_t)t * stride + row;
            if (memcmp(region->start + gap, region->before + head + gap, stride - row) != 0) {
                return differs(c, "the gap after row %d of out has changed", t);
            }
        }
    }
    const int changed = gqa_case_changed(c, REGION_INPUT);
    return changed < 0 || differs(c, "input array %d has changed", changed);
}

bool gqa_case_check(struct gqa_case *c, pkv_workspace *workspace)
{
    struct reference ref;
    c->isa = pkv_workspace_isa(workspace);
    gqa_case_snapshot(c);
    reference_append(&c->args, &ref);
    const enum pkv_status status = gqa_case_call(c, workspace);
    bool is_right = status == PKV_OK;
    if (is_right) {
        is_right = check_caches(c, &ref);
        reference_attend(&c->args, &ref);
        is_right = is_right && check_outputs(c, &ref) && check_untouched(c);
    } else {
        differs(c, "answered %s: %s", pkv_status_name(status), pkv_last_error());
    }
    reference_free(&ref);
    return is_right;
}

bool gqa_case_same_row(const struct gqa_case *a, int32_t b, int32_t i, const struct gqa_case *c,
                       int32_t d, int32_t j)
{
    const size_t lse_bytes = (size_t)a->args.num_heads * sizeof(float);
    return memcmp(gqa_case_out(a, b, i), gqa_case_out(c, d, j), gqa_case_out_bytes(a)) == 0 &&
           memcmp(gqa_case_lse(a, b, i), gqa_case_lse(c, d, j), lse_bytes) == 0;
}

bool gqa_case_same_rows(const struct gqa_case *a, const struct gqa_case *b)
{
    for (int32_t row = 0; row < a->spec.batch; row++) {
        for (int32_t i = 0; i < a->spec.q_lens[row]; i++) {
            if (!gqa_case_same_row(a, row, i, b, row, i)) {
                printf("\n  row %d, query %d differ; seed %llu\n", row, i,
                       (unsigned long long)a->spec.seed);
                return false;
            }
        }
    }
    return true;
}

bool gqa_case_runs_same(const struct gqa_case *expected, const struct case_spec *spec,
                        pkv_workspace *workspace)
{
    struct gqa_case *c = gqa_case_run(spec, workspace);
    const bool is_same = gqa_case_same_rows(expected, c);
    gqa_case_free(c);
    return is_same;
}
