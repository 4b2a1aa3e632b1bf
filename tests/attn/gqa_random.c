/* SPDX-License-Identifier: MIT
 *
 * The operator against the float64 reference on random calls: all cache forms and dtypes, ragged
 * rows, odd widths, windows, numbers of threads, every option. Case i of a family has seed
 * PKV_TEST_SEED + i, from which every family draws a geometry of its own, and a failure prints its
 * seed: with PKV_TEST_SEED set to it the case comes first in its family. The table of families
 * below is all that says which options run; the last case counts what ran. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/gqa_case.h"
#include "support/selection_case.h"
#include "support/tree_case.h"

/* What a family adds to a plain random call. */
struct family {
    const char *name;
    unsigned options;
    bool with_codes; /* int8 and e4m3 caches */
    bool v_in_k;
    int num_cases;
    bool with_ranges; /* bidirectional ones */
};

/* Builds with assertions are those with sanitisers or without optimisation: they run half. */
#ifdef PKV_ASSERTIONS
enum { SHARE = 2 };
#else
enum { SHARE = 1 };
#endif

enum { MAX_CASES = 8192, NUM_POOLS = 4 };

/* Of the cases of this suite so far: geometries are fingerprints of what was drawn. */
static struct {
    int num_calls;
    int num_of_threads[NUM_POOLS];
    uint64_t geometries[MAX_CASES];
} done;

static const int32_t thread_counts[NUM_POOLS] = {1, 2, 3, 8};

static int32_t one_of(struct test_random *random, const int32_t *choices, int32_t count)
{
    return choices[random_between(random, 0, count - 1)];
}

static void draw_dtypes(struct test_random *random, struct case_spec *spec, bool with_codes)
{
    spec->dtype = (enum pkv_dtype)random_between(random, 0, 2);
    spec->k_dtype = spec->v_dtype = spec->dtype;
    if (spec->form != PKV_CACHE_NONE && random_between(random, 0, 1)) {
        spec->k_dtype = (enum pkv_dtype)random_between(random, 0, 2);
        spec->v_dtype = (enum pkv_dtype)random_between(random, 0, 2);
    }
    if (spec->form != PKV_CACHE_NONE && with_codes) {
        const int32_t which = random_between(random, 0, 3); /* K alone, V alone, both, both */
        spec->k_dtype = which == 1 ? spec->k_dtype : (enum pkv_dtype)random_between(random, 3, 4);
        spec->v_dtype = which == 0 ? spec->v_dtype : (enum pkv_dtype)random_between(random, 3, 4);
    }
}

/* One beside a power of two as often as any other. */
static int32_t draw_width(struct test_random *random)
{
    static const int32_t widths[] = {1,  2,  3,  5,  7,  8,  15, 16, 17,  24,  31,
                                     32, 33, 40, 63, 64, 65, 80, 96, 128, 129, 256};
    return random_between(random, 0, 1) ? one_of(random, widths, 22)
                                        : random_between(random, 1, 256);
}

static void draw_geometry(struct test_random *random, struct case_spec *spec, bool v_in_k)
{
    static const int32_t forms[] = {PKV_CACHE_PAGED,      PKV_CACHE_PAGED,      PKV_CACHE_PAGED,
                                    PKV_CACHE_PAGED,      PKV_CACHE_CONTINUOUS, PKV_CACHE_DENSE,
                                    PKV_CACHE_DENSE_COPY, PKV_CACHE_NONE};
    static const int32_t groups[] = {1, 1, 3, 4, 7, 8};
    static const int32_t block_sizes[] = {1, 2, 3, 7, 16, 64};
    spec->form = (enum pkv_cache_form)one_of(random, forms, 8);
    spec->kv_heads = random_between(random, 1, 3);
    spec->group = one_of(random, groups, 6);
    spec->k_width = draw_width(random);
    spec->v_width = random_between(random, 0, 2) ? spec->k_width : draw_width(random);
    spec->v_in_k = v_in_k;
    if (v_in_k) {
        spec->v_width = random_between(random, 1, spec->k_width);
    }
    spec->block_size = one_of(random, block_sizes, 6);
    spec->padded = random_between(random, 0, 2) == 0;
    spec->cell_major = random_between(random, 0, 3) == 0;
    spec->without_lse = random_between(random, 0, 7) == 0;
    spec->poison = random_between(random, 0, 2);
    spec->loudness = random_between(random, 0, 3) ? 1 : 20;
}

/* Rows whose reference costs at most so much; one case in 16 may cost more. */
enum { MAX_WORK = 30000, MAX_RARE_WORK = 500000 };

static void draw_rows(struct test_random *random, struct case_spec *spec)
{
    static const int32_t longest_q[] = {1, 1, 2, 5, 40};
    static const int32_t longest_past[] = {0, 5, 20, 80, 80, 700};
    const int32_t max_q = one_of(random, longest_q, 5);
    const int32_t max_past = one_of(random, longest_past, 6);
    const bool is_uniform = spec->form == PKV_CACHE_DENSE_COPY;
    const int64_t pair = (int64_t)spec->kv_heads * spec->group * (spec->k_width + spec->v_width);
    const int32_t batch = random_between(random, 1, 4);
    const int64_t max_work = random_between(random, 0, 15) ? MAX_WORK : MAX_RARE_WORK;
    int64_t work = 0;
    for (int32_t b = 0; b < batch; b++) {
        const int32_t least = max_q == 1 && random_between(random, 0, 3) ? 1 : 0;
        int32_t q_len = random_between(random, least, max_q);
        int32_t past = random_between(random, 0, max_past);
        if (is_uniform && q_len + past == 0) {
            past = 1; /* a present without cells is no view */
        }
        if (is_uniform && b > 0) {
            q_len = spec->q_lens[0];
            past = spec->kv_lens[0] - q_len;
        }
        while (work + pair * q_len * (q_len + past) > max_work && !(is_uniform && b > 0)) {
            q_len = (q_len + 1) / 2;
            past /= 2;
            work = q_len <= 1 && past == 0 ? 0 : work;
        }
        work += pair * q_len * (q_len + past);
        case_add_row(spec, b, q_len, q_len + past);
    }
}

static void draw_visibility(struct test_random *random, struct case_spec *spec)
{
    const bool has_past = spec->form != PKV_CACHE_NONE && spec->form != PKV_CACHE_DENSE_COPY;
    spec->read_only = has_past && random_between(random, 0, 3) == 0;
    spec->not_causal = random_between(random, 0, 6) == 0;
    if (spec->not_causal) {
        for (int32_t b = 0; spec->read_only && b < spec->batch; b++) {
            spec->kv_lens[b] -= random_between(random, 0, spec->kv_lens[b]);
        }
        return;
    }
    if (random_between(random, 0, 1)) {
        spec->window = random_between(random, 1, spec->kv_lens[0] + 3);
        spec->kept_count = random_between(random, 0, 2);
        spec->kept_count = spec->kept_count == 2 ? spec->batch : spec->kept_count;
        for (int32_t b = 0; b < spec->kept_count; b++) {
            spec->kept[b] = random_between(random, 0, 12);
        }
        spec->evicted = random_between(random, 0, 1) != 0;
    }
}

/* Some ranges of each row, the past ones without effect: no range is cut by the first new token. */
static void draw_ranges(struct test_random *random, struct case_spec *spec)
{
    for (int32_t b = 0; b < spec->batch; b++) {
        const int32_t past = spec->kv_lens[b] - spec->q_lens[b];
        int32_t at = random_between(random, 0, 2) ? past : 0;
        while (spec->num_ranges[b] < CASE_MAX_RANGES) {
            const int32_t limit = at < past ? past : spec->kv_lens[b];
            const int32_t begin = at + random_between(random, 0, 5);
            const int32_t longest = random_between(random, 0, 1) ? 6 : 60;
            const int32_t end = begin + random_between(random, 1, longest);
            if (begin >= spec->kv_lens[b]) {
                break;
            }
            if (begin < limit) {
                case_add_range(spec, b, begin, end < limit ? end : limit);
            }
            at = end < limit ? end : limit;
        }
    }
}

/* Selected blocks take the place of a window. */
static void draw_selection(struct test_random *random, struct case_spec *spec)
{
    static const int32_t sizes[] = {1, 3, 16, 64, 100, 600};
    static const int32_t shares[] = {0, 5, 20, 50, 90, 100};
    spec->selection_size = one_of(random, sizes, 6);
    spec->selected_share = one_of(random, shares, 6);
    spec->selects_by_head = random_between(random, 0, 1) != 0;
    spec->selected_newest = random_between(random, 0, 1) * random_between(random, 1, 90);
    spec->selected_newest = spec->not_causal ? 0 : spec->selected_newest;
    spec->evicted = random_between(random, 0, 1) != 0;
    spec->window = 0;
    spec->without_lse = false; /* it is compared */
}

static struct case_spec draw(struct test_random *random, uint64_t seed, const struct family *family)
{
    struct case_spec spec = {
        .seed = seed, .layout = random_u64(random), .options = family->options};
    draw_geometry(random, &spec, family->v_in_k);
    draw_dtypes(random, &spec, family->with_codes);
    draw_rows(random, &spec);
    draw_visibility(random, &spec);
    if (family->with_ranges && !spec.not_causal) {
        draw_ranges(random, &spec);
    }
    if ((spec.options & CASE_SELECTION) != 0) {
        draw_selection(random, &spec);
    }
    if ((spec.options & CASE_TREE) != 0 && !spec.not_causal) {
        spec.tree_shape = random_between(random, TREE_CHAIN, NUM_TREE_SHAPES - 1);
    }
    if (spec.form == PKV_CACHE_NONE || spec.not_causal) {
        spec.options &= ~(unsigned)CASE_POSITION_IDS;
    }
    if ((spec.not_causal && spec.read_only) || spec.k_width < 2) {
        /* a query before position 0 has no rope; a single channel cannot rotate */
        spec.options &= ~(unsigned)(CASE_ROPE | CASE_POSITION_IDS);
    }
    return spec;
}

static void print_spec(const struct case_spec *spec)
{
    printf("  form %d, dtypes %d/%d/%d, heads %dx%d, widths %d/%d, block size %d, window %lld, "
           "options %x%s%s%s%s%s%s\n",
           (int)spec->form, (int)spec->dtype, (int)spec->k_dtype, (int)spec->v_dtype,
           spec->kv_heads, spec->group, spec->k_width, spec->v_width, spec->block_size,
           (long long)spec->window, spec->options, spec->not_causal ? ", not causal" : "",
           spec->read_only ? ", read only" : "", spec->padded ? ", padded" : "",
           spec->cell_major ? ", cell major" : "", spec->evicted ? ", evicted" : "",
           spec->v_in_k ? ", v in k" : "");
    for (int32_t b = 0; b < spec->batch; b++) {
        printf("  row %d: q_len %d, kv_len %d, kept %lld", b, spec->q_lens[b], spec->kv_lens[b],
               (long long)spec->kept[b]);
        for (int32_t i = 0; i < spec->num_ranges[b]; i++) {
            printf(", [%d, %d)", spec->ranges[b][i].begin, spec->ranges[b][i].end);
        }
        printf("\n");
    }
}

/* Everything that says where numbers lie and which of them count, not the numbers. */
static uint64_t fingerprint(const struct case_spec *spec)
{
    const int64_t parts[] = {spec->form,
                             spec->dtype,
                             spec->k_dtype,
                             spec->v_dtype,
                             spec->kv_heads,
                             spec->group,
                             spec->k_width,
                             spec->v_width,
                             spec->v_in_k,
                             spec->batch,
                             spec->window,
                             spec->kept_count,
                             spec->not_causal,
                             spec->evicted,
                             spec->read_only,
                             spec->padded,
                             spec->cell_major,
                             spec->options,
                             spec->form == PKV_CACHE_PAGED ? spec->block_size : 0};
    struct test_random random = {0};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        random.state = random_u64(&random) ^ (uint64_t)parts[i];
    }
    for (int32_t b = 0; b < spec->batch; b++) {
        random.state = random_u64(&random) ^ (uint64_t)spec->q_lens[b];
        random.state = random_u64(&random) ^ (uint64_t)spec->kv_lens[b];
    }
    return random_u64(&random);
}

/* The same bits as the call whose mask excludes what is not selected. */
static bool equals_its_mask(const struct gqa_case *c, pkv_workspace *workspace)
{
    struct case_spec spec = c->spec;
    spec.evicted = false; /* what a mask excludes must be mapped all the same */
    struct gqa_case *masked = gqa_case_make(&spec);
    selection_case_to_mask(masked);
    ASSERT_STATUS(PKV_OK, gqa_case_call(masked, workspace));
    const bool is_same = gqa_case_same_rows(c, masked);
    gqa_case_free(masked);
    return is_same;
}

/* Case i of the family with this index; false after lines that say what is wrong. */
static bool run_case(const struct family *family, int index, int i, pkv_workspace *const *pools)
{
    const uint64_t seed = test_seed() + (uint64_t)i;
    struct test_random mixer = {seed};
    struct test_random random = {random_u64(&mixer) + (uint64_t)index};
    const struct case_spec spec = draw(&random, seed, family);
    const int32_t pool = random_between(&random, 0, NUM_POOLS - 1);
    struct gqa_case *c = gqa_case_make(&spec);
    bool is_right = gqa_case_check(c, pools[pool]);
    if (is_right && spec.selection_size > 0) {
        is_right = equals_its_mask(c, pools[i % NUM_POOLS]);
    }
    if (!is_right) {
        printf("  family \"%s\", %d threads\n", family->name, thread_counts[pool]);
        print_spec(&spec);
    }
    if (done.num_calls < MAX_CASES) {
        done.geometries[done.num_calls++] = fingerprint(&spec);
        done.num_of_threads[pool]++;
    }
    gqa_case_free(c);
    return is_right;
}

static void run_family(const struct family *family, int index)
{
    pkv_workspace *pools[NUM_POOLS];
    int num_failed = 0;
    for (int p = 0; p < NUM_POOLS; p++) {
        pools[p] = case_workspace(thread_counts[p]);
    }
    for (int i = 0; i < family->num_cases / SHARE && num_failed < 3; i++) {
        num_failed += !run_case(family, index, i, pools);
    }
    CU_ASSERT_EQUAL(num_failed, 0);
    for (int p = 0; p < NUM_POOLS; p++) {
        pkv_workspace_destroy(pools[p]);
    }
}

static const struct family families[] = {
    {"nothing", 0, false, false, 1000, false},
    {"q_scale", CASE_Q_SCALE, false, false, 200, false},
    {"rope", CASE_ROPE, false, false, 260, false},
    {"position ids", CASE_ROPE | CASE_POSITION_IDS, false, false, 200, false},
    {"norms", CASE_ROPE | CASE_NORM, false, false, 260, false},
    {"norms without rope", CASE_NORM, false, false, 140, false},
    {"head sinks", CASE_SINK, false, false, 200, false},
    {"smooth softmax", CASE_SMOOTH, false, false, 140, false},
    {"a softcap", CASE_SOFTCAP, false, false, 200, false},
    {"masks", CASE_MASK, false, false, 320, false},
    {"quantised caches", 0, true, false, 400, false},
    {"values inside keys", 0, false, true, 280, false},
    {"everything", CASE_Q_SCALE | CASE_ROPE | CASE_NORM | CASE_SINK | CASE_SOFTCAP | CASE_MASK,
     true, false, 400, false},
    {"everything and values inside keys",
     CASE_Q_SCALE | CASE_ROPE | CASE_NORM | CASE_SMOOTH | CASE_SOFTCAP | CASE_MASK, true, true, 200,
     false},
    {"bidirectional ranges", 0, false, false, 400, true},
    {"everything and bidirectional ranges",
     CASE_Q_SCALE | CASE_ROPE | CASE_NORM | CASE_SINK | CASE_SOFTCAP | CASE_MASK, true, false, 300,
     true},
    {"values inside keys and bidirectional ranges", CASE_ROPE, true, true, 100, true},
    {"selected blocks", CASE_SELECTION, true, false, 600, false},
    {"everything and selected blocks",
     CASE_SELECTION | CASE_Q_SCALE | CASE_ROPE | CASE_NORM | CASE_SINK | CASE_SOFTCAP | CASE_MASK,
     true, false, 200, true},
    {"values inside keys and selected blocks", CASE_SELECTION | CASE_ROPE, true, true, 100, false},
    {"trees of drafts", CASE_TREE | CASE_ROPE, true, false, 500, false},
    {"everything and trees of drafts",
     CASE_TREE | CASE_Q_SCALE | CASE_ROPE | CASE_NORM | CASE_SINK | CASE_SOFTCAP | CASE_MASK, true,
     false, 300, false},
    {"values inside keys and trees of drafts", CASE_TREE | CASE_ROPE, true, true, 100, false},
};

static void run_named(const char *name)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (strcmp(families[i].name, name) == 0) {
            run_family(&families[i], (int)i);
            return;
        }
    }
    CU_FAIL("no such family");
}

static void random_calls_match_the_reference(void)
{
    run_named("nothing");
}

static void random_scales_match_the_reference(void)
{
    run_named("q_scale");
}

static void random_rotations_match_the_reference(void)
{
    run_named("rope");
    run_named("position ids");
}

static void random_norms_match_the_reference(void)
{
    run_named("norms");
    run_named("norms without rope");
}

static void random_sinks_match_the_reference(void)
{
    run_named("head sinks");
    run_named("smooth softmax");
}

static void random_softcaps_match_the_reference(void)
{
    run_named("a softcap");
}

static void random_masks_match_the_reference(void)
{
    run_named("masks");
}

/* G1, G4: one reader applies the scales on every path, at any batch, stride and order of blocks. */
static void random_quantised_caches_match_the_reference(void)
{
    run_named("quantised caches");
}

static void random_values_inside_keys_match_the_reference(void)
{
    run_named("values inside keys");
}

static void all_options_together_match_the_reference(void)
{
    run_named("everything");
    run_named("everything and values inside keys");
}

/* K7: keys of a bidirectional range are seen by all of its queries, in every form and dtype. */
static void random_bidirectional_ranges_match_the_reference(void)
{
    run_named("bidirectional ranges");
    run_named("everything and bidirectional ranges");
    run_named("values inside keys and bidirectional ranges");
}

/* Selected blocks: exact over the keys that are seen, no other is read (they are poisoned or not
 * mapped), and the bits are those of the masked call; in every form, dtype and ratio of heads. */
static void random_selections_match_the_reference_and_the_mask(void)
{
    run_named("selected blocks");
    run_named("everything and selected blocks");
    run_named("values inside keys and selected blocks");
}

/* Trees of drafts: a query sees its ancestors alone, rope and windows follow the depth; with every
 * option, in every form and dtype. */
static void random_trees_of_drafts_match_the_reference(void)
{
    run_named("trees of drafts");
    run_named("everything and trees of drafts");
    run_named("values inside keys and trees of drafts");
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void thousands_of_calls_have_a_geometry_of_their_own(void)
{
    int num_distinct = 0;
    qsort(done.geometries, (size_t)done.num_calls, sizeof done.geometries[0], by_value);
    for (int i = 0; i < done.num_calls; i++) {
        num_distinct += i == 0 || done.geometries[i] != done.geometries[i - 1];
    }
    printf("%d calls, %d geometries; by 1, 2, 3, 8 threads: %d, %d, %d, %d ", done.num_calls,
           num_distinct, done.num_of_threads[0], done.num_of_threads[1], done.num_of_threads[2],
           done.num_of_threads[3]);
    CU_ASSERT(done.num_calls >= 4000 / SHARE);
    CU_ASSERT(num_distinct >= done.num_calls / 20 * 19);
    for (int p = 0; p < NUM_POOLS; p++) {
        CU_ASSERT(done.num_of_threads[p] >= done.num_calls / 8);
    }
}

static const struct test_case cases[] = {
    TEST(random_calls_match_the_reference),
    TEST(random_scales_match_the_reference),
    TEST(random_rotations_match_the_reference),
    TEST(random_norms_match_the_reference),
    TEST(random_sinks_match_the_reference),
    TEST(random_softcaps_match_the_reference),
    TEST(random_masks_match_the_reference),
    TEST(random_quantised_caches_match_the_reference),
    TEST(random_values_inside_keys_match_the_reference),
    TEST(all_options_together_match_the_reference),
    TEST(random_bidirectional_ranges_match_the_reference),
    TEST(random_selections_match_the_reference_and_the_mask),
    TEST(random_trees_of_drafts_match_the_reference),
    TEST(thousands_of_calls_have_a_geometry_of_their_own),
    TEST_END,
};
const struct test_suite suite_gqa_random = {"gqa_random", cases};
