/* SPDX-License-Identifier: MIT
 *
 * softmax.c: one tile of online softmax, of one and of several queries. With u = UNIT the bounds:
 *
 *   weight   (3 + |score - m|) u of itself: the difference is rounded once, which the exponential
 *            turns into a relative error; exp itself is reduced exactly but for one rounding of
 *            r <= ln 2 / 2, and its last two steps of Horner's rule cost (1 + r) u. Below
 *            exp(-87.33) a weight may be 0
 *   sum      its terms' bounds, and one rounding an addition */
#include "kernels/check.h"

#include <math.h>
#include <string.h>

/* exp(-87.33), below which kernels answer 0. */
#define SMALLEST_WEIGHT 1.19e-38

enum masks { MASK_NONE, MASK_SOME, MASK_ALL, NUM_MASKS };

struct state {
    float max, sum;
};

struct tile {
    float *scores; /* where the kernel works, padded(num_keys) */
    float before[TILE_KEYS];
    size_t num_keys;
    struct state from, to;
    float alpha;
};

static double weight_tolerance(double weight, double distance)
{
    return weight * (3 + fabs(distance)) * UNIT + SMALLEST_WEIGHT;
}

static double largest_of(const struct tile *tile)
{
    double largest = (double)tile->from.max;
    for (size_t j = 0; j < tile->num_keys; j++) {
        largest = fmax(largest, (double)tile->before[j]);
    }
    return largest;
}

/* NaN, or plus infinity, from which infinity cannot be subtracted. */
static bool is_spoilt(float score)
{
    return isnan(score) || score == INFINITY;
}

/* A NaN that is seen is seen in the end: in its own weight, and through the sum in all of them. An
 * infinite score spoils the sum alike; its weight is NaN, or infinite beside a NaN. */
static bool check_spoilt(struct check *check, const struct tile *tile)
{
    bool spoilt = false;
    for (size_t j = 0; j < tile->num_keys; j++) {
        if (isnan(tile->before[j])) {
            check_value(check, "weight of NaN", 0, j, tile->scores[j], (double)NAN, 0);
        }
        spoilt = spoilt || is_spoilt(tile->before[j]);
    }
    if (spoilt) {
        check_value(check, "sum over NaN or infinity", 0, 0, tile->to.sum, (double)NAN, 0);
    }
    return spoilt;
}

/* All that was ever seen is minus infinity. */
static void check_unchanged(struct check *check, const struct tile *tile)
{
    check_bits(check, "max", 0, 0, tile->to.max, tile->from.max);
    check_bits(check, "sum", 0, 0, tile->to.sum, tile->from.sum);
    check_bits(check, "alpha", 0, 0, tile->alpha, 1.0f);
    for (size_t j = 0; j < tile->num_keys; j++) {
        check_value(check, "weight", 0, j, tile->scores[j], 0, 0);
    }
}

static void check_weights(struct check *check, const struct tile *tile, double max)
{
    const double old = (double)tile->from.max;
    const double alpha = exp(old - max);
    const double alpha_error = isinf(old) ? 0 : weight_tolerance(alpha, old - max);
    double sum = (double)tile->from.sum * alpha;
    double error = (double)tile->from.sum * alpha_error;
    for (size_t j = 0; j < tile->num_keys; j++) {
        const double distance = (double)tile->before[j] - max;
        const double weight = exp(distance);
        const double tolerance = isinf(distance) ? 0 : weight_tolerance(weight, distance);
        check_value(check, "weight", 0, j, tile->scores[j], weight, tolerance);
        sum += weight;
        error += tolerance;
    }
    error += (double)(tile->num_keys + 3) * UNIT * sum;
    check_value(check, "max", 0, 0, tile->to.max, max, 0); /* of +0 and -0 either */
    check_value(check, "alpha", 0, 0, tile->alpha, alpha, alpha_error);
    check_value(check, "sum", 0, 0, tile->to.sum, sum, error);
}

static void check_tile(struct check *check, const struct tile *tile)
{
    const size_t end = padded(tile->num_keys);
    const double max = largest_of(tile);
    check_output_edges(check, tile->scores, end * sizeof tile->scores[0]);
    if (check_spoilt(check, tile)) {
        return; /* padding may be NaN too: the query is lost, and nothing reads that far */
    }
    for (size_t j = tile->num_keys; j < end; j++) {
        check_value(check, "padding", 0, j, tile->scores[j], 0, 0);
    }
    if (max == -(double)INFINITY) {
        check_unchanged(check, tile);
    } else {
        check_weights(check, tile, max);
    }
}

/* Nothing yet, a small maximum, one near the scores, one far above. */
static struct state random_state(struct test_random *random)
{
    static const float maxima[] = {-INFINITY, -50.0f, 0.5f, 95.0f, 300.0f};
    const float max = maxima[random_u64(random) % (sizeof maxima / sizeof maxima[0])];
    const float sum = (float)(33 + 32 * random_unit(random));
    return (struct state){max, max == -INFINITY ? 0.0f : sum};
}

static void mask_scores(struct tile *tile, enum masks mask, struct test_random *random)
{
    for (size_t j = 0; j < tile->num_keys; j++) {
        if (mask == MASK_ALL || (mask == MASK_SOME && random_between(random, 0, 2) != 0)) {
            tile->scores[j] = -INFINITY;
        }
    }
}

static float random_scale(struct test_random *random)
{
    static const float scales[] = {1.0f, 0.0883883461f, -1.0f, 0.0f, 1e-30f, 8.0f};
    return scales[random_u64(random) % (sizeof scales / sizeof scales[0])];
}

static void soften(struct check *check, struct tile *tile, float scale)
{
    const struct kernel_softmax_job job = {
        .scores = tile->scores,
        .num_queries = 1,
        .num_keys = check->shape.keys,
        .scale = scale,
        .max = &tile->to.max,
        .sum = &tile->to.sum,
        .alpha = &tile->alpha,
    };
    check->kernels->softmax(&job);
}

static void run_tile(struct check *check, enum values values, enum masks mask)
{
    struct tile tile = {.num_keys = (size_t)check->shape.keys};
    const size_t bytes = padded(tile.num_keys) * sizeof(float);
    tile.scores = guarded_place(&check->output, 0, bytes, sizeof(float), check->shape.place);
    values_take(PKV_F32, values, &check->random, tile.num_keys, tile.scores);
    mask_scores(&tile, mask, &check->random);
    const float scale = random_scale(&check->random);
    for (size_t j = 0; j < tile.num_keys; j++) {
        tile.before[j] = tile.scores[j] * scale;
    }
    tile.from = tile.to = random_state(&check->random);
    soften(check, &tile, scale);
    check_tile(check, &tile);
}

/* Several queries in one call, some of which may not see a key: each has the bits it has alone. */
static void run_batch(struct check *check, int queries)
{
    static float scores[MAX_QUERIES * TILE_KEYS];
    struct tile tiles[MAX_QUERIES];
    float max[MAX_QUERIES], sum[MAX_QUERIES], alpha[MAX_QUERIES];
    const size_t keys = (size_t)check->shape.keys;
    const float scale = random_scale(&check->random);
    for (size_t i = 0; i < (size_t)queries; i++) {
        struct tile *tile = &tiles[i];
        tile->num_keys = keys;
        tile->scores = tile->before;
        values_take(PKV_F32, VALUES_UNIFORM, &check->random, keys, tile->scores);
        mask_scores(tile, (enum masks)random_between(&check->random, 0, NUM_MASKS - 1),
                    &check->random);
        memcpy(scores + i * TILE_KEYS, tile->scores, keys * sizeof(float));
        tile->to = random_state(&check->random);
        max[i] = tile->to.max;
        sum[i] = tile->to.sum;
        soften(check, tile, scale);
    }
    const struct kernel_softmax_job job = {
        .scores = scores,
        .num_queries = queries,
        .num_keys = check->shape.keys,
        .scale = scale,
        .max = max,
        .sum = sum,
        .alpha = alpha,
    };
    check->kernels->softmax(&job);
    for (size_t i = 0; i < (size_t)queries; i++) {
        check_bits(check, "max", i, 0, max[i], tiles[i].to.max);
        check_bits(check, "sum", i, 0, sum[i], tiles[i].to.sum);
        check_bits(check, "alpha", i, 0, alpha[i], tiles[i].alpha);
        for (size_t j = 0; j < padded(keys); j++) {
            check_bits(check, "weight", i, j, scores[i * TILE_KEYS + j], tiles[i].scores[j]);
        }
    }
}

/* The next tile after one with NaN, of usual scores or of minus infinity alone. */
static void run_after_nan(struct check *check, struct state state, enum masks mask)
{
    float scores[TILE_KEYS];
    struct tile tile = {.scores = scores, .num_keys = (size_t)check->shape.keys};
    values_take(PKV_F32, VALUES_UNIFORM, &check->random, tile.num_keys, scores);
    mask_scores(&tile, mask, &check->random);
    tile.to = state;
    soften(check, &tile, 1.0f);
    check_value(check, "sum of the tile after NaN", 0, 0, tile.to.sum, (double)NAN, 0);
}

/* NaN among scores that are minus infinity, first tile: it must not pass for a masked key, and
 * the next tile must still show it. */
static void run_lone_nan(struct check *check, size_t at)
{
    struct tile tile = {.num_keys = (size_t)check->shape.keys, .from = {-INFINITY, 0.0f}};
    const size_t bytes = padded(tile.num_keys) * sizeof(float);
    tile.scores = guarded_place(&check->output, 0, bytes, sizeof(float), PLACE_ENDS);
    mask_scores(&tile, MASK_ALL, &check->random);
    tile.scores[at] = NAN;
    memcpy(tile.before, tile.scores, tile.num_keys * sizeof(float));
    tile.to = tile.from;
    soften(check, &tile, 1.0f);
    check_tile(check, &tile);
    run_after_nan(check, tile.to, MASK_NONE);
    run_after_nan(check, tile.to, MASK_ALL);
}

static void run_lone_nans(struct check *check, int keys)
{
    static const char values[] = "NaN, all others minus infinity";
    for (int at = 0; at < keys; at++) {
        check->shape = (struct shape){-1, keys, -1, PLACE_ENDS, values};
        run_lone_nan(check, (size_t)at);
    }
}

void check_softmax(struct check *check)
{
    static const char *const names[] = {NULL, "with minus infinity", "all minus infinity"};
    for (int keys = 0; keys <= TILE_KEYS && !check->failed; keys++) {
        for (int n = 0; n < NUM_VALUES * NUM_MASKS * NUM_PLACES; n++) {
            const enum values values = (enum values)(n / (NUM_MASKS * NUM_PLACES));
            const enum masks mask = (enum masks)(n / NUM_PLACES % NUM_MASKS);
            check->shape = (struct shape){-1, keys, -1, (enum place)(n % NUM_PLACES),
                                          mask == MASK_NONE ? values_name(values) : names[mask]};
            run_tile(check, values, mask);
        }
        run_lone_nans(check, keys);
        for (int queries = 1; queries <= 10; queries++) {
            check->shape = (struct shape){queries, keys, -1, PLACE_ENDS, "a batch"};
            run_batch(check, queries);
        }
    }
}
