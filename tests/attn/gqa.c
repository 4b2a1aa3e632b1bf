/* SPDX-License-Identifier: MIT
 *
 * The operator on inputs whose answer can be worked out by hand: the plain decode step and the
 * growing cache of the contract, and means over prefixes and windows. Most keys are 0, so that
 * every key seen has the same weight and the output is the mean of the values seen: a key that is
 * wrong, missing or counted twice shows at once. */
#include <math.h>
#include <string.h>

#include "support/gqa_case.h"

/* The plain decode step of the contract: one new token, the extended caches returned. */

static void plain_decode_step_averages_the_values_of_equal_keys(void)
{
    const float q[] = {0.1f, 0.2f}, k[] = {0.2f, 0.4f}, v[] = {0.3f, 0.6f};
    float past_k[] = {0.2f, 0.4f}, past_v[] = {0.1f, 0.2f};
    float new_k[4], new_v[4], out[2];
    struct pkv_gqa_args args = case_f32_args(PKV_CACHE_DENSE_COPY, 1, 1, 1, 2);
    args.q = q;
    args.k = k;
    args.v = v;
    args.out = out;
    args.past = case_f32_view(past_k, past_v, 1, 1, 1, 2);
    args.present = case_f32_view(new_k, new_v, 1, 1, 2, 2);
    case_run(&args);
    const float want_k[] = {0.2f, 0.4f, 0.2f, 0.4f}, want_v[] = {0.1f, 0.2f, 0.3f, 0.6f};
    ASSERT_CLOSE(out[0], 0.2);
    ASSERT_CLOSE(out[1], 0.4);
    CU_ASSERT_EQUAL(memcmp(new_k, want_k, sizeof want_k), 0);
    CU_ASSERT_EQUAL(memcmp(new_v, want_v, sizeof want_v), 0);
}

static void plain_decode_step_averages_all_values_for_a_zero_query(void)
{
    const float q[] = {0}, k[] = {2}, v[] = {6};
    float past_k[] = {1}, past_v[] = {2}, new_k[2], new_v[2], out[1];
    struct pkv_gqa_args args = case_f32_args(PKV_CACHE_DENSE_COPY, 1, 1, 1, 1);
    args.q = q;
    args.k = k;
    args.v = v;
    args.out = out;
    args.past = case_f32_view(past_k, past_v, 1, 1, 1, 1);
    args.present = case_f32_view(new_k, new_v, 1, 1, 2, 1);
    case_run(&args);
    const float want_k[] = {1, 2}, want_v[] = {2, 6};
    ASSERT_CLOSE(out[0], 4);
    CU_ASSERT_EQUAL(memcmp(new_k, want_k, sizeof want_k), 0);
    CU_ASSERT_EQUAL(memcmp(new_v, want_v, sizeof want_v), 0);
}

static void plain_decode_step_shares_a_kv_head_among_its_query_heads(void)
{
    const float q[] = {0, 1}, k[] = {1.09861229f}, v[] = {6};
    float past_k[] = {0}, past_v[] = {2}, new_k[2], new_v[2], out[2];
    struct pkv_gqa_args args = case_f32_args(PKV_CACHE_DENSE_COPY, 1, 2, 1, 1);
    args.q = q;
    args.k = k;
    args.v = v;
    args.out = out;
    args.past = case_f32_view(past_k, past_v, 1, 1, 1, 1);
    args.present = case_f32_view(new_k, new_v, 1, 1, 2, 1);
    case_run(&args);
    const float want_k[] = {0, 1.09861229f}, want_v[] = {2, 6};
    ASSERT_CLOSE(out[0], 4);
    ASSERT_CLOSE(out[1], 5);
    CU_ASSERT_EQUAL(memcmp(new_k, want_k, sizeof want_k), 0);
    CU_ASSERT_EQUAL(memcmp(new_v, want_v, sizeof want_v), 0);
}

/* The growing cache of the contract: [B, H, new, D] appended per call, [B, H, 1, D] returned. */

enum { GROW_B = 2, GROW_H = 2, GROW_T = 3, GROW_D = 4, GROW_ROW = GROW_B * GROW_H * GROW_D };

struct growing {
    float q[GROW_T][GROW_ROW], k[GROW_T][GROW_ROW], v[GROW_T][GROW_ROW];
};

static struct growing random_growing(void)
{
    struct test_random random = {test_seed()};
    struct growing g;
    for (int t = 0; t < GROW_T; t++) {
        for (int i = 0; i < GROW_ROW; i++) {
            g.q[t][i] = (float)(2 * random_unit(&random));
            g.k[t][i] = (float)(2 * random_unit(&random));
            g.v[t][i] = (float)(2 * random_unit(&random));
        }
    }
    return g;
}

/* Channel c of step t's output for batch row and head `bh`, from one dense softmax. */
static double dense_softmax(const struct growing *g, int t, int bh, int c)
{
    double sum = 0, mean = 0;
    for (int j = 0; j <= t; j++) {
        double dot = 0;
        for (int x = 0; x < GROW_D; x++) {
            dot += (double)g->q[t][bh * GROW_D + x] * (double)g->k[j][bh * GROW_D + x];
        }
        const double weight = exp(dot / sqrt(GROW_D));
        sum += weight;
        mean += weight * (double)g->v[j][bh * GROW_D + c];
    }
    return mean / sum;
}

static void assert_dense_softmax(const struct growing *g, int t, const float *out)
{
    for (int i = 0; i < GROW_ROW; i++) {
        ASSERT_CLOSE(out[i], dense_softmax(g, t, i / GROW_D, i % GROW_D));
    }
}

static void growing_cache_of_three_steps_equals_one_dense_softmax(void)
{
    const struct growing g = random_growing();
    float k[2][GROW_T * GROW_ROW], v[2][GROW_T * GROW_ROW], out[GROW_ROW];
    for (int t = 0; t < GROW_T; t++) {
        struct pkv_gqa_args args =
            case_f32_args(PKV_CACHE_DENSE_COPY, GROW_B, GROW_H, GROW_H, GROW_D);
        args.q = g.q[t];
        args.k = g.k[t];
        args.v = g.v[t];
        args.out = out;
        args.past = case_f32_view(k[t % 2], v[t % 2], GROW_B, GROW_H, t, GROW_D);
        args.present = case_f32_view(k[1 - t % 2], v[1 - t % 2], GROW_B, GROW_H, t + 1, GROW_D);
        if (t == 0) {
            args.past.k = args.past.v = NULL;
        }
        case_run(&args);
        assert_dense_softmax(&g, t, out);
    }
    for (int i = 0; i < GROW_T * GROW_ROW; i++) { /* [B, H, T, D] */
        const int bh = i / (GROW_T * GROW_D);
        const int t = i / GROW_D % GROW_T;
        CU_ASSERT_EQUAL(k[1][i], g.k[t][bh * GROW_D + i % GROW_D]);
        CU_ASSERT_EQUAL(v[1][i], g.v[t][bh * GROW_D + i % GROW_D]);
    }
}

static void growing_cache_in_place_equals_one_dense_softmax(void)
{
    const struct growing g = random_growing();
    float k[4 * GROW_ROW], v[4 * GROW_ROW], out[GROW_ROW];
    for (int i = 0; i < 4 * GROW_ROW; i++) {
        k[i] = v[i] = NAN;
    }
    for (int t = 0; t < GROW_T; t++) {
        const int32_t kv_lens[] = {t + 1, t + 1};
        struct pkv_gqa_args args = case_f32_args(PKV_CACHE_DENSE, GROW_B, GROW_H, GROW_H, GROW_D);
        args.q = g.q[t];
        args.k = g.k[t];
        args.v = g.v[t];
        args.out = out;
        args.kv_lens = kv_lens;
        args.past = case_f32_view(k, v, GROW_B, GROW_H, 4, GROW_D);
        args.present = args.past;
        case_run(&args);
        assert_dense_softmax(&g, t, out);
    }
}

/* Means: one row, one head of width 1, every key 0, value j is first_value + j. */

enum { MEAN_CELLS = 64 };

struct mean {
    int32_t kv_len, q_len, block_size;
    int64_t window, kept;
    float first_value;
};

/* Fills out[q_len], once by an append of the last q_len keys and once reading them only. */
static void attend_mean(const struct mean *mean, float *out)
{
    const int32_t num_blocks = MEAN_CELLS / mean->block_size;
    float q[MEAN_CELLS] = {0}, k[MEAN_CELLS], v[MEAN_CELLS], again[MEAN_CELLS];
    int32_t table[MEAN_CELLS];
    const int32_t cu_seqlens[] = {0, mean->q_len};
    const int32_t first_new = mean->kv_len - mean->q_len;
    float new_v[MEAN_CELLS];
    for (int32_t j = 0; j < MEAN_CELLS; j++) {
        table[j] = num_blocks - 1 - j;
        k[j] = v[j] = NAN;
        new_v[j] = mean->first_value + (float)(first_new + j);
    }
    for (int32_t j = 0; j < first_new; j++) {
        const int32_t cell = table[j / mean->block_size] * mean->block_size + j % mean->block_size;
        k[cell] = 0;
        v[cell] = mean->first_value + (float)j;
    }
    struct pkv_gqa_args args = case_f32_args(PKV_CACHE_PAGED, 1, 1, 1, 1);
    args.num_tokens = mean->q_len;
    args.cu_seqlens_q = cu_seqlens;
    args.kv_lens = &mean->kv_len;
    args.block_table = table;
    args.max_blocks = num_blocks;
    args.q = args.k = q;
    args.v = new_v;
    args.out = out;
    args.past = case_f32_view(k, v, num_blocks, 1, mean->block_size, 1);
    args.sliding_window = mean->window;
    args.kept_prefix = &mean->kept;
    args.kept_prefix_count = 1;
    case_run(&args);
    args.k = args.v = NULL;
    args.out = again;
    case_run(&args);
    CU_ASSERT_EQUAL(memcmp(out, again, (size_t)mean->q_len * sizeof *out), 0);
}

/* The last query's mean. */
static double last_mean(const struct mean *mean)
{
    float out[MEAN_CELLS];
    attend_mean(mean, out);
    return (double)out[mean->q_len - 1];
}

static void causal_queries_average_their_own_prefixes(void)
{
    const struct mean plain = {4, 2, 3, 0, 0, 1};
    const struct mean windowed = {4, 2, 3, 2, 0, 1};
    float out[MEAN_CELLS];
    attend_mean(&plain, out);
    ASSERT_CLOSE(out[0], 2.0);
    ASSERT_CLOSE(out[1], 2.5);
    attend_mean(&windowed, out);
    ASSERT_CLOSE(out[0], 2.5);
    ASSERT_CLOSE(out[1], 3.5);
}

static void window_and_kept_prefix_average_what_they_name(void)
{
    const struct mean two = {6, 1, 4, 2, 0, 1};
    const struct mean two_and_first = {6, 1, 4, 2, 1, 1};
    const struct mean self_alone = {6, 1, 4, 1, 0, 1};
    const struct mean overlapping = {6, 1, 4, 2, 5, 1};
    const struct mean beyond = {6, 1, 4, 2, 50, 1};
    ASSERT_CLOSE(last_mean(&two), 5.5);
    ASSERT_CLOSE(last_mean(&two_and_first), 4);
    ASSERT_CLOSE(last_mean(&self_alone), 6);
    ASSERT_CLOSE(last_mean(&overlapping), 3.5);
    ASSERT_CLOSE(last_mean(&beyond), 3.5);
}

/* F1: a window of W keys counts the key of the query itself. */
static void window_counts_the_query_s_own_key(void)
{
    const double want[] = {1.0, 1.5, 2.5}; /* W - 1, W and W + 1 keys */
    for (int32_t kv_len = 3; kv_len <= 5; kv_len++) {
        const struct mean mean = {kv_len, 1, 4, 4, 0, 0};
        ASSERT_CLOSE(last_mean(&mean), want[kv_len - 3]);
    }
}

/* F8: the window begins at its key, not at the block that holds that key. */
static void window_is_exact_inside_its_first_block(void)
{
    const struct mean mean = {30, 1, 16, 5, 0, 0};
    ASSERT_CLOSE(last_mean(&mean), 27.0);
}

/* E7: how many cells a row has does not say how many keys it has. */
static void capacity_is_not_length(void)
{
    float k[16], v[16], out[1];
    const float zero[] = {0}, new_v[] = {9};
    const int32_t kv_len = 3;
    for (int j = 0; j < 16; j++) {
        k[j] = v[j] = j < 2 ? (float)(3 * j) * (float)(j > 0) : NAN;
        k[j] = j < 2 ? 0 : NAN;
    }
    struct pkv_gqa_args args = case_f32_args(PKV_CACHE_DENSE, 1, 1, 1, 1);
    args.q = args.k = zero;
    args.v = new_v;
    args.out = out;
    args.kv_lens = &kv_len;
    args.past = case_f32_view(k, v, 1, 1, 16, 1);
    case_run(&args);
    ASSERT_CLOSE(out[0], (0 + 3 + 9) / 3.0);
}

/* E6: tokens one by one or at once leave the same cache and give the same result. */
static void three_tokens_at_once_store_what_three_single_ones_do(void)
{
    const float q[] = {0.5f, -0.5f, 1}, new_k[] = {0.1f, 0.2f, 0.3f}, new_v[] = {1, 2, 4};
    float k[2][8], v[2][8], out[2][3];
    memset(k, 0, sizeof k);
    memset(v, 0, sizeof v);
    const int32_t cu_seqlens[] = {0, 3};
    int32_t kv_len = 3;
    struct pkv_gqa_args args = case_f32_args(PKV_CACHE_DENSE, 1, 1, 1, 1);
    args.num_tokens = 3;
    args.cu_seqlens_q = cu_seqlens;
    args.q = q;
    args.k = new_k;
    args.v = new_v;
    args.out = out[0];
    args.kv_lens = &kv_len;
    args.past = case_f32_view(k[0], v[0], 1, 1, 8, 1);
    case_run(&args);
    args.num_tokens = 1;
    args.cu_seqlens_q = NULL;
    args.past = case_f32_view(k[1], v[1], 1, 1, 8, 1);
    for (kv_len = 1; kv_len <= 3; kv_len++) {
        args.q = q + kv_len - 1;
        args.k = new_k + kv_len - 1;
        args.v = new_v + kv_len - 1;
        args.out = out[1] + kv_len - 1;
        case_run(&args);
    }
    CU_ASSERT_EQUAL(memcmp(k[0], k[1], sizeof k[0]), 0);
    CU_ASSERT_EQUAL(memcmp(v[0], v[1], sizeof v[0]), 0);
    CU_ASSERT_EQUAL(memcmp(out[0], out[1], sizeof out[0]), 0);
}

/* F5: a token sees the same window in a prefill as in a decode step. */
static void window_holds_in_prefill_as_in_decode(void)
{
    float prefill[MEAN_CELLS];
    const struct mean whole = {20, 20, 7, 4, 0, 0};
    attend_mean(&whole, prefill);
    for (int32_t kv_len = 1; kv_len <= 20; kv_len++) {
        const struct mean step = {kv_len, 1, 7, 4, 0, 0};
        float out[MEAN_CELLS];
        attend_mean(&step, out);
        CU_ASSERT_EQUAL(memcmp(&out[0], &prefill[kv_len - 1], sizeof out[0]), 0);
    }
    ASSERT_CLOSE(prefill[19], 17.5);
}

/* B8: query head h reads KV head h / (num_heads / kv_heads). */
static void query_heads_read_contiguous_groups_of_kv_heads(void)
{
    static const int32_t pairs[][2] = {{6, 2}, {28, 4}, {9, 3}, {5, 1}};
    for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
        const int32_t num_heads = pairs[p][0], kv_heads = pairs[p][1];
        const int32_t kv_len = 1;
        float q[28] = {0}, new_k[4] = {0}, new_v[4], k[4], v[4], out[28];
        for (int32_t g = 0; g < kv_heads; g++) {
            new_v[g] = (float)(10 * (g + 1));
        }
        struct pkv_gqa_args args = case_f32_args(PKV_CACHE_DENSE, 1, num_heads, kv_heads, 1);
        args.q = q;
        args.k = new_k;
        args.v = new_v;
        args.out = out;
        args.kv_lens = &kv_len;
        args.past = case_f32_view(k, v, 1, kv_heads, 1, 1);
        case_run(&args);
        for (int32_t h = 0; h < num_heads; h++) {
            CU_ASSERT_EQUAL(out[h], (float)(10 * (h / (num_heads / kv_heads) + 1)));
        }
    }
}

static void single_key_returns_its_stored_value_exactly(void)
{
    for (int dtype = PKV_F32; dtype <= PKV_BF16; dtype++) {
        struct case_spec spec = case_plain(test_seed() + (uint64_t)dtype);
        spec.dtype = spec.k_dtype = spec.v_dtype = (enum pkv_dtype)dtype;
        spec.loudness = 30;
        spec.k_width = spec.v_width = 33;
        case_add_row(&spec, 0, 1, 1);
        struct gqa_case *c = gqa_case_make(&spec);
        pkv_workspace *workspace = case_workspace(1);
        ASSERT_STATUS(PKV_OK, gqa_case_call(c, workspace));
        CU_ASSERT_EQUAL(memcmp(c->args.out, c->args.v, gqa_case_out_bytes(c)), 0);
        pkv_workspace_destroy(workspace);
        gqa_case_free(c);
    }
}

/* E2: no finite logit counts as minus infinity, however low it is. */
static void logits_far_below_any_sentinel_still_count(void)
{
    static const float levels[] = {-6e4f, -524288.0f, -1e8f, -1e30f, 1e30f, 88.0f, -104.0f};
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        float k[] = {levels[i], levels[i], NAN}, v[] = {2, 4, NAN}, out[1], lse[1];
        const float q[] = {1};
        const int32_t kv_len = 2;
        struct pkv_gqa_args args = case_f32_args(PKV_CACHE_DENSE, 1, 1, 1, 1);
        args.q = q;
        args.out = out;
        args.lse = lse;
        args.kv_lens = &kv_len;
        args.past = case_f32_view(k, v, 1, 1, 3, 1);
        case_run(&args);
        ASSERT_CLOSE(out[0], 3);
        ASSERT_CLOSE(lse[0], (double)levels[i] + log(2));
    }
}

static const struct test_case cases[] = {
    TEST(plain_decode_step_averages_the_values_of_equal_keys),
    TEST(plain_decode_step_averages_all_values_for_a_zero_query),
    TEST(plain_decode_step_shares_a_kv_head_among_its_query_heads),
    TEST(growing_cache_of_three_steps_equals_one_dense_softmax),
    TEST(growing_cache_in_place_equals_one_dense_softmax),
    TEST(causal_queries_average_their_own_prefixes),
    TEST(window_and_kept_prefix_average_what_they_name),
    TEST(window_counts_the_query_s_own_key),
    TEST(window_is_exact_inside_its_first_block),
    TEST(capacity_is_not_length),
    TEST(three_tokens_at_once_store_what_three_single_ones_do),
    TEST(window_holds_in_prefill_as_in_decode),
    TEST(query_heads_read_contiguous_groups_of_kv_heads),
    TEST(single_key_returns_its_stored_value_exactly),
    TEST(logits_far_below_any_sentinel_still_count),
    TEST_END,
};
const struct test_suite suite_gqa = {"gqa", cases};
