/* SPDX-License-Identifier: MIT
 *
 * The overloaded form of the operator: what each rank of kvcache_start selects gives bit for bit
 * what the equal call of pkv_gqa gives, and the worked examples of the decode step hold. What it
 * refuses is in contract_refuse.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/contract_case.h"

/* The same bytes in every array of two cases of one spec. */
static bool same_arrays(const struct gqa_case *a, const struct gqa_case *b)
{
    for (size_t i = 0; i < a->num_regions; i++) {
        const struct case_region *x = &a->regions[i];
        const struct case_region *y = &b->regions[i];
        if (x->bytes != y->bytes || memcmp(x->start, y->start, x->bytes) != 0) {
            printf("\n  form %d, seed %llu: array %zu differs\n", (int)a->args.form,
                   (unsigned long long)a->spec.seed, i);
            return false;
        }
    }
    return a->num_regions == b->num_regions;
}

static void assert_equal_calls(const struct case_spec *spec, uint64_t variant)
{
    pkv_workspace *workspace = case_workspace(2);
    struct contract_case *x = contract_case_make(spec, variant);
    struct contract_case *twin = contract_case_make(spec, variant);
    gqa_case_snapshot(x->gqa);
    ASSERT_STATUS(PKV_OK, gqa_case_call(twin->gqa, workspace));
    ASSERT_STATUS(PKV_OK, pkv_gqa_contract(workspace, &x->args));
    CU_ASSERT(same_arrays(x->gqa, twin->gqa));
    CU_ASSERT_EQUAL(gqa_case_changed(x->gqa, REGION_INPUT), -1);
    CU_ASSERT(spec->batch == 0 || gqa_case_changed(x->gqa, REGION_OUTPUT) >= 0);
    contract_case_free(x);
    contract_case_free(twin);
    pkv_workspace_destroy(workspace);
}

static const unsigned option_sets[] = {0,
                                       CASE_ROPE,
                                       CASE_ROPE | CASE_POSITION_IDS | CASE_SOFTCAP,
                                       CASE_ROPE | CASE_NORM | CASE_SINK,
                                       CASE_Q_SCALE | CASE_SMOOTH | CASE_MASK,
                                       CASE_Q_SCALE | CASE_ROPE | CASE_NORM | CASE_SINK |
                                           CASE_SOFTCAP | CASE_MASK};
enum { NUM_OPTION_SETS = sizeof option_sets / sizeof option_sets[0], NUM_VARIANTS = 24 };

static struct case_spec spec_of(enum pkv_cache_form form, uint64_t variant)
{
    static const enum pkv_dtype codes[] = {PKV_INT8, PKV_E4M3};
    struct case_spec spec = case_plain(test_seed() + variant);
    const bool is_quantised = form != PKV_CACHE_NONE && variant % 4 == 3;
    spec.form = form;
    spec.dtype = (enum pkv_dtype)(variant % 3);
    spec.k_dtype = is_quantised ? codes[variant / 4 % 2] : spec.dtype;
    spec.v_dtype = is_quantised ? codes[variant / 8 % 2] : spec.dtype;
    spec.kv_heads = 2;
    spec.group = 2;
    spec.k_width = 12;
    spec.v_width = variant % 5 == 0 ? 9 : 12;
    spec.options = option_sets[variant % NUM_OPTION_SETS];
    spec.read_only = form != PKV_CACHE_NONE && variant % 7 == 6;
    spec.not_causal = variant % 6 == 5;
    return spec;
}

static void add_window(struct case_spec *spec, uint64_t variant)
{
    if (variant % 2 == 0 && !spec->not_causal) {
        spec->window = 3;
        spec->kept_count = variant % 4 == 0 ? 1 : spec->batch;
        for (int32_t b = 0; b < spec->batch; b++) {
            spec->kept[b] = b % 3;
        }
    }
}

static void rank_two_is_the_paged_form(void)
{
    for (uint64_t i = 0; i < NUM_VARIANTS; i++) {
        struct case_spec spec = spec_of(PKV_CACHE_PAGED, i);
        case_add_row(&spec, 0, 3, 11);
        case_add_row(&spec, 1, 1, 6);
        case_add_row(&spec, 2, 2, 2);
        add_window(&spec, i);
        spec.evicted = i % 3 == 0;
        assert_equal_calls(&spec, i);
    }
}

static void rank_one_is_the_continuous_form_and_its_values_are_not_read(void)
{
    for (uint64_t i = 0; i < NUM_VARIANTS; i++) {
        struct case_spec spec = spec_of(PKV_CACHE_CONTINUOUS, i);
        case_add_row(&spec, 0, 1, 9);
        case_add_row(&spec, 1, i % 2 ? 1 : 3, 4);
        add_window(&spec, i);
        assert_equal_calls(&spec, i);
    }
}

static void rank_zero_is_the_dense_form_in_place(void)
{
    for (uint64_t i = 0; i < NUM_VARIANTS; i++) {
        struct case_spec spec = spec_of(PKV_CACHE_DENSE, i);
        const int32_t start = (int32_t)(i % 9);
        case_add_row(&spec, 0, 2, start + 2);
        case_add_row(&spec, 1, i % 2 ? 2 : 1, start + (i % 2 ? 2 : 1));
        add_window(&spec, i);
        assert_equal_calls(&spec, i);
    }
}

static void absent_start_is_the_functional_form(void)
{
    for (uint64_t i = 0; i < NUM_VARIANTS; i++) {
        struct case_spec spec = spec_of(PKV_CACHE_DENSE_COPY, i);
        const int32_t past = spec.read_only || i % 3 ? 5 : 0;
        spec.read_only = false;
        case_add_row(&spec, 0, 2, past + 2);
        case_add_row(&spec, 1, 2, past + 2);
        add_window(&spec, i);
        assert_equal_calls(&spec, i);
    }
}

static void absent_past_is_the_form_without_a_cache(void)
{
    for (uint64_t i = 0; i < NUM_VARIANTS; i++) {
        struct case_spec spec = spec_of(PKV_CACHE_NONE, i);
        const bool has_own_keys = i % 3 == 0 && (spec.options & CASE_POSITION_IDS) == 0;
        case_add_row(&spec, 0, 3, has_own_keys ? 7 : 3);
        if (i % 2 == 0) {
            case_add_row(&spec, 1, 2, has_own_keys ? 6 : 2);
        }
        add_window(&spec, i);
        assert_equal_calls(&spec, i);
    }
}

static void empty_batch_is_an_empty_call(void)
{
    const struct case_spec paged = case_plain(test_seed());
    assert_equal_calls(&paged, 0);
}

/* The worked examples: one row, one KV head, one cached position. */

struct example {
    int32_t num_heads, width;
    float q[2], k[2], v[2];     /* the new token */
    float past_k[2], past_v[2]; /* the cached position */
    float out[2];
};

static const struct example examples[] = {
    {1, 2, {0.1f, 0.2f}, {0.2f, 0.4f}, {0.3f, 0.6f}, {0.2f, 0.4f}, {0.1f, 0.2f}, {0.2f, 0.4f}},
    {1, 1, {0}, {2}, {6}, {1}, {2}, {4}},
    {2, 1, {0, 1}, {1.09861229f}, {6}, {0}, {2}, {4, 5}},
};

/* A call of one form: cell j of the row lies at cells[j] of k and v [4][width]. */
struct worked {
    struct pkv_tensor query, key, value, past_key, past_value, present_key, present_value;
    struct pkv_tensor start, cu_k, slots, output;
    float k[8], v[8], past_k[2], past_v[2], out[2];
    int32_t start_values[4], length, slot;
    int64_t heads, kv_heads;
    size_t cells[2];
    struct pkv_contract_args args;
};

static struct pkv_tensor tensor_of(void *data, enum pkv_tensor_type type, int32_t rank, int64_t a,
                                   int64_t b, int64_t c, int64_t d)
{
    const struct pkv_tensor tensor = {data, type, rank, {a, b, c, d}};
    return tensor;
}

static struct pkv_tensor cache_of(float *data, int64_t rows, int64_t cells, int64_t width)
{
    return tensor_of(data, PKV_TENSOR_F32, 4, rows, 1, cells, width);
}

/* Storage for every form but the functional: cells of NaN, the cached position among them. */
static void work_in_place(struct worked *w, enum pkv_cache_form form, const struct example *e)
{
    const int64_t rows = form == PKV_CACHE_PAGED ? 4 : form == PKV_CACHE_CONTINUOUS ? 2 : 1;
    static const size_t first[] = {0, 0, 0, 2, 3}, second[] = {0, 1, 0, 3, 1};
    w->past_key = cache_of(w->k, rows, 4 / rows, e->width);
    w->past_value = cache_of(w->v, rows, 4 / rows, e->width);
    w->cells[0] = first[form];
    w->cells[1] = second[form];
    memcpy(&w->k[w->cells[0] * (size_t)e->width], e->past_k, (size_t)e->width * sizeof(float));
    memcpy(&w->v[w->cells[0] * (size_t)e->width], e->past_v, (size_t)e->width * sizeof(float));
    w->length = 2;
    w->slot = 1;
    if (form == PKV_CACHE_PAGED) {
        const int32_t table[] = {3, 1, -1, 2};
        memcpy(w->start_values, table, sizeof table);
        w->start = tensor_of(w->start_values, PKV_TENSOR_INT32, 2, 1, 4, 0, 0);
    } else if (form == PKV_CACHE_CONTINUOUS) {
        w->start_values[0] = INT32_MIN;
        w->start = tensor_of(w->start_values, PKV_TENSOR_INT32, 1, 1, 0, 0, 0);
        w->slots = tensor_of(&w->slot, PKV_TENSOR_INT32, 1, 1, 0, 0, 0);
        w->args.slot_ids = &w->slots;
    } else {
        w->start_values[0] = 1;
        w->start = tensor_of(w->start_values, PKV_TENSOR_INT32, 0, 0, 0, 0, 0);
    }
    w->args.kvcache_start = &w->start;
    w->cu_k = tensor_of(&w->length, PKV_TENSOR_INT32, 1, 1, 0, 0, 0);
    w->args.cu_seqlens_k = form == PKV_CACHE_DENSE ? NULL : &w->cu_k;
    w->args.out_present_key = &w->past_key;
    w->args.out_present_value = &w->past_value;
}

static void work_functional(struct worked *w, const struct example *e)
{
    memcpy(w->past_k, e->past_k, sizeof w->past_k);
    memcpy(w->past_v, e->past_v, sizeof w->past_v);
    w->past_key = cache_of(w->past_k, 1, 1, e->width);
    w->past_value = cache_of(w->past_v, 1, 1, e->width);
    w->present_key = cache_of(w->k, 1, 2, e->width);
    w->present_value = cache_of(w->v, 1, 2, e->width);
    w->args.out_present_key = &w->present_key;
    w->args.out_present_value = &w->present_value;
    w->cells[1] = 1;
}

static void work(struct worked *w, enum pkv_cache_form form, struct example *e)
{
    memset(w, 0, sizeof *w);
    for (int i = 0; i < 8; i++) {
        w->k[i] = w->v[i] = NAN;
    }
    w->query = tensor_of(e->q, PKV_TENSOR_F32, 2, 1, (int64_t)e->num_heads * e->width, 0, 0);
    w->key = tensor_of(e->k, PKV_TENSOR_F32, 2, 1, e->width, 0, 0);
    w->value = tensor_of(e->v, PKV_TENSOR_F32, 2, 1, e->width, 0, 0);
    w->output = tensor_of(w->out, PKV_TENSOR_F32, 2, 1, (int64_t)e->num_heads * e->width, 0, 0);
    w->heads = e->num_heads;
    w->kv_heads = 1;
    w->args.size = sizeof w->args;
    w->args.query = &w->query;
    w->args.key = &w->key;
    w->args.value = &w->value;
    w->args.past_key = &w->past_key;
    w->args.past_value = &w->past_value;
    w->args.num_heads = &w->heads;
    w->args.kv_num_heads = &w->kv_heads;
    w->args.output = &w->output;
    if (form == PKV_CACHE_DENSE_COPY) {
        work_functional(w, e);
    } else {
        work_in_place(w, form, e);
    }
}

static void assert_worked(enum pkv_cache_form form)
{
    pkv_workspace *workspace = case_workspace(1);
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        struct example e = examples[i];
        struct worked w;
        const size_t width = (size_t)e.width;
        work(&w, form, &e);
        ASSERT_STATUS(PKV_OK, pkv_gqa_contract(workspace, &w.args));
        for (int32_t c = 0; c < e.num_heads * e.width; c++) {
            ASSERT_CLOSE(w.out[c], (double)e.out[c]);
        }
        CU_ASSERT(memcmp(&w.k[w.cells[0] * width], e.past_k, width * sizeof(float)) == 0);
        CU_ASSERT(memcmp(&w.v[w.cells[0] * width], e.past_v, width * sizeof(float)) == 0);
        CU_ASSERT(memcmp(&w.k[w.cells[1] * width], e.k, width * sizeof(float)) == 0);
        CU_ASSERT(memcmp(&w.v[w.cells[1] * width], e.v, width * sizeof(float)) == 0);
        size_t num_written = 0;
        for (size_t at = 0; at < 8; at++) {
            num_written += isnan(w.k[at]) ? 0 : 1;
        }
        CU_ASSERT_EQUAL(num_written, 2 * width);
    }
    pkv_workspace_destroy(workspace);
}

static void worked_examples_hold_in_every_form(void)
{
    assert_worked(PKV_CACHE_DENSE_COPY);
    assert_worked(PKV_CACHE_DENSE);
    assert_worked(PKV_CACHE_CONTINUOUS);
    assert_worked(PKV_CACHE_PAGED);
}

/* A read-only attend leaves the present outputs unbound and the cache alone. */
static void read_only_attend_is_attention_over_the_cache(void)
{
    static const enum pkv_cache_form forms[] = {PKV_CACHE_DENSE, PKV_CACHE_CONTINUOUS,
                                                PKV_CACHE_PAGED};
    for (uint64_t i = 0; i < 12; i++) {
        struct case_spec spec = spec_of(forms[i % 3], i);
        spec.read_only = true;
        case_add_row(&spec, 0, 2, 7);
        case_add_row(&spec, 1, 1, 6);
        pkv_workspace *workspace = case_workspace(2);
        struct contract_case *x = contract_case_make(&spec, i);
        gqa_case_snapshot(x->gqa);
        ASSERT_STATUS(PKV_OK, pkv_gqa_contract(workspace, &x->args));
        CU_ASSERT_EQUAL(gqa_case_changed(x->gqa, REGION_INPUT | REGION_CACHE), -1);
        contract_case_free(x);
        pkv_workspace_destroy(workspace);
        assert_equal_calls(&spec, i);
    }
}

/* kept_prefix: one value or one for each row, of either width. */
static void kept_prefix_comes_in_four_shapes(void)
{
    static int32_t narrow[] = {2, 2};
    static int64_t wide[] = {2, 2};
    struct case_spec spec = case_plain(test_seed());
    case_add_row(&spec, 0, 1, 11);
    case_add_row(&spec, 1, 1, 9);
    spec.window = 3;
    spec.kept_count = 2;
    spec.kept[0] = spec.kept[1] = 2;
    pkv_workspace *workspace = case_workspace(2);
    struct contract_case *twin = contract_case_make(&spec, 0);
    ASSERT_STATUS(PKV_OK, gqa_case_call(twin->gqa, workspace));
    for (int32_t shape = 0; shape < 4; shape++) {
        struct contract_case *x = contract_case_make(&spec, 0);
        const bool is_wide = shape % 2 == 1;
        contract_case_set(x, KEPT_PREFIX, is_wide ? (void *)wide : (void *)narrow,
                          is_wide ? PKV_TENSOR_INT64 : PKV_TENSOR_INT32, shape / 2, 2, 0, 0, 0);
        ASSERT_STATUS(PKV_OK, pkv_gqa_contract(workspace, &x->args));
        CU_ASSERT(same_arrays(x->gqa, twin->gqa));
        contract_case_free(x);
    }
    contract_case_free(twin);
    pkv_workspace_destroy(workspace);
}

static const struct test_case cases[] = {
    TEST(rank_two_is_the_paged_form),
    TEST(rank_one_is_the_continuous_form_and_its_values_are_not_read),
    TEST(rank_zero_is_the_dense_form_in_place),
    TEST(absent_start_is_the_functional_form),
    TEST(absent_past_is_the_form_without_a_cache),
    TEST(empty_batch_is_an_empty_call),
    TEST(worked_examples_hold_in_every_form),
    TEST(read_only_attend_is_attention_over_the_cache),
    TEST(kept_prefix_comes_in_four_shapes),
    TEST_END,
};
const struct test_suite suite_contract = {"contract", cases};
