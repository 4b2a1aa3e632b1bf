/* SPDX-License-Identifier: MIT
 *
 * kernels_int8.h: scores and sums of int8 keys and values as exact whole numbers, by products of
 * bytes. The other factor, q or a tile's weights, is rounded to multiples of a grain of its own and
 * cut into digits of base 256, each with a sum of its own; only whole sums become floats. So a
 * result has the same bits whatever is computed beside it, and in whatever order:
 *
 *   q         3 or 4 digits of [-128, 127], multiples of the largest |q[c]| / (127 * 2^16), or
 *             / (127 * 2^24). Keys are read as k + 128, which a byte without sign holds; what that
 *             adds is in the value from which each sum starts
 *   weights   3 digits of [0, 255], multiples of 2^(e - 23), where the tile's largest weight is in
 *             [2^e, 2^(e + 1)) and thus exact
 *
 * Both lie as [channels or keys / 4][digit, lowest first][4]. A digit's sum stays below 2^14 a
 * channel, and below 2^21 for a tile of weights. docs/numerics.md has the bounds. For levels whose
 * vectors have whole numbers. */
#ifndef PKV_ATTN_KERNELS_INT8_H
#define PKV_ATTN_KERNELS_INT8_H

#include "attn/kernels_dot.h"
#include "attn/kernels_weighted_sum.h"

#define FOUR 4 /* channels or keys of a product; digits of a number */
#define WEIGHT_DIGITS 3
#define INT8_QUERIES 4 /* of a register block */

/* One query's sums, digit by digit, in one register and in two. Fields with names and no arrays, of
 * which gcc would keep a copy in memory. */
struct int8_digit_sums {
    vsums d0, d1, d2, d3;
};
struct int8_query_sums {
    struct int8_digit_sums x, y;
};

VEC_INLINE vf int8_value(int num_digits, const struct int8_digit_sums *s)
{
    const vf base = vec_set(256.0f);
    vf value = vec_of_sums(s->d2);
    if (num_digits == 4) {
        value = vec_fma(vec_of_sums(s->d3), base, value);
    }
    value = vec_fma(value, base, vec_of_sums(s->d1));
    return vec_fma(value, base, vec_of_sums(s->d0));
}

VEC_INLINE void int8_start(const int32_t *start, struct int8_query_sums *s)
{
    s->x.d0 = s->y.d0 = vec_sums_set(start[0]);
    s->x.d1 = s->y.d1 = vec_sums_set(start[1]);
    s->x.d2 = s->y.d2 = vec_sums_set(start[2]);
    s->x.d3 = s->y.d3 = vec_sums_set(start[3]);
}

/* ---- q ------------------------------------------------------------------------------------- */

static float largest_size(const float *q, size_t count)
{
    vi bits = vec_int_set(0);
    for (size_t c = 0; c < count; c += VEC_LANES) {
        bits = vec_int_max_size(bits, vec_load(q + c));
    }
    const uint32_t largest = vec_int_max_lane(bits);
    float size;
    memcpy(&size, &largest, sizeof size);
    return size;
}

/* Bytes of whole + 0x80808080 are digits + 128. */
static void pack_digits(float *q, size_t q_stride, float score_scale, struct kernel_digits *digits)
{
    const float size = largest_size(q, q_stride);
    const float term = fabsf(score_scale) * size * 128.0f;
    *digits = (struct kernel_digits){.size = size};
    if (!(size < INFINITY) || !(term <= INT8_MAX_TERM)) {
        return;
    }
    digits->count = term <= INT8_MAX_TERM_OF_3 ? 3 : 4;
    const float multiples = digits->count == 3 ? 0x7fp16f : 0x7fp24f;
    digits->grain = 1.0f / multiples;
    const vf divisor = vec_set(size > 0.0f ? size : 1.0f);
    const vi half = vec_int_flip_signs(vec_int_set(0));
    vsums sums = vec_sums_set(0);
    for (size_t c = 0; c < q_stride; c += VEC_LANES) {
        const vf part = vec_div(vec_load(q + c), divisor);
        const vi whole = vec_int_add(vec_to_int(vec_mul(part, vec_set(multiples))), half);
        const vi apart = vec_int_digits_apart(vec_int_flip_signs(whole));
        sums = vec_int_dot(sums, half, apart);
        vec_int_store(q + c, apart);
    }
    int32_t lanes[VEC_LANES];
    vec_int_store(lanes, (vi)sums);
    for (int l = 0; l < VEC_LANES; l++) {
        digits->start[l % FOUR] -= lanes[l];
    }
}

/* ---- dot ----------------------------------------------------------------------------------- */

/* A register of keys' sums: VEC_LANES keys from `key` on as [channels / 4][key][4]. Behind the last
 * one of the job it is taken again. */
VEC_INLINE void int8_transpose(const struct kernel_dot_job *job, int key, vi *to)
{
    const char *keys[VEC_LANES];
    const size_t rows = padded(job->width) / FOUR;
    for (int j = 0; j < VEC_LANES; j++) {
        const int at = key + j < job->num_keys ? key + j : job->num_keys - 1;
        keys[j] = (const char *)job->keys[at] + job->group_bytes;
    }
    for (size_t row = 0; row < rows; row += VEC_LANES) {
        const size_t c = row * FOUR;
        vi x[VEC_LANES];
        for (int j = 0; j < VEC_LANES; j++) {
            x[j] = vec_int_flip_signs(vec_int_load_bytes(keys[j] + c, job->width - c));
        }
        vec_int_transpose(x);
        for (size_t i = 0; i < VEC_LANES && row + i < rows; i++) {
            vec_int_store(&to[row + i], x[i]);
        }
    }
}

/* Where a register block of queries begins, and what it shares with the others of the job. */
struct int8_part {
    const struct kernel_dot_job *job;
    struct prefetch *prefetch;
    int query, key;
};

VEC_INLINE void int8_add_keys(int num_digits, int num_vecs, const char *q, vi x, vi y,
                              struct int8_query_sums *s)
{
    const vi d0 = vec_int_repeat(q), d1 = vec_int_repeat(q + 4), d2 = vec_int_repeat(q + 8);
    s->x.d0 = vec_int_dot(s->x.d0, x, d0);
    s->x.d1 = vec_int_dot(s->x.d1, x, d1);
    s->x.d2 = vec_int_dot(s->x.d2, x, d2);
    if (num_vecs == 2) {
        s->y.d0 = vec_int_dot(s->y.d0, y, d0);
        s->y.d1 = vec_int_dot(s->y.d1, y, d1);
        s->y.d2 = vec_int_dot(s->y.d2, y, d2);
    }
    if (num_digits == 4) {
        const vi d3 = vec_int_repeat(q + 12);
        s->x.d3 = vec_int_dot(s->x.d3, x, d3);
        s->y.d3 = vec_int_dot(s->y.d3, y, d3);
    }
}

VEC_INLINE void int8_store(int num_digits, const struct int8_part *part, int query, int key,
                           const struct int8_digit_sums *sums)
{
    const struct kernel_digits *digits = &part->job->digits[query];
    const vf whole = vec_mul(int8_value(num_digits, sums), vec_set(digits->grain));
    vec_store_f32(part->job->scores + (size_t)query * TILE_KEYS + key,
                  vec_mul(whole, vec_set(digits->size)), (size_t)(part->job->num_keys - key));
}

VEC_INLINE void int8_end(int num_digits, int num_vecs, const struct int8_part *part, int i,
                         const struct int8_query_sums *sums)
{
    int8_store(num_digits, part, part->query + i, part->key, &sums->x);
    if (num_vecs == 2) {
        int8_store(num_digits, part, part->query + i, part->key + VEC_LANES, &sums->y);
    }
}

/* num_queries against num_vecs registers of keys. */
VEC_INLINE void int8_block(int num_digits, int num_queries, int num_vecs,
                           const struct int8_part *part)
{
    const struct kernel_dot_job *job = part->job;
    const struct kernel_digits *digits = &job->digits[part->query];
    const size_t vec_bytes = padded(job->width) / FOUR * VEC_BYTES;
    const size_t q_bytes = job->q_stride * sizeof(float);
    const char *q = (const char *)(job->q + (size_t)part->query * job->q_stride);
    const char *keys = (const char *)job->transposed;
    const char *end = keys + (job->width + FOUR - 1) / FOUR * VEC_BYTES;
    struct int8_query_sums a, b, c, d;
    int8_start(digits[0].start, &a);
    int8_start(digits[num_queries > 1 ? 1 : 0].start, &b);
    int8_start(digits[num_queries > 2 ? 2 : 0].start, &c);
    int8_start(digits[num_queries > 2 ? 3 : 0].start, &d);
    for (; keys < end; keys += VEC_BYTES, q += FOUR * FOUR) {
        const vi x = vec_int_load(keys);
        const vi y = num_vecs == 2 ? vec_int_load(keys + vec_bytes) : x;
        prefetch_lines(part->prefetch, num_vecs);
        int8_add_keys(num_digits, num_vecs, q, x, y, &a);
        if (num_queries > 1) {
            int8_add_keys(num_digits, num_vecs, q + q_bytes, x, y, &b);
        }
        if (num_queries > 2) {
            int8_add_keys(num_digits, num_vecs, q + 2 * q_bytes, x, y, &c);
            int8_add_keys(num_digits, num_vecs, q + 3 * q_bytes, x, y, &d);
        }
    }
    int8_end(num_digits, num_vecs, part, 0, &a);
    if (num_queries > 1) {
        int8_end(num_digits, num_vecs, part, 1, &b);
    }
    if (num_queries > 2) {
        int8_end(num_digits, num_vecs, part, 2, &c);
        int8_end(num_digits, num_vecs, part, 3, &d);
    }
}

/* Functions of their own: inlined together, they leave the compiler no registers for the sums. */
typedef void int8_block_function(const struct int8_part *part);
#define INT8_BLOCK(name, digits, queries, vecs)                                                    \
    static VEC_ALONE void name(const struct int8_part *part)                                       \
    {                                                                                              \
        int8_block(digits, queries, vecs, part);                                                   \
    }
INT8_BLOCK(int8_block_3_4_1, 3, 4, 1)
INT8_BLOCK(int8_block_3_4_2, 3, 4, 2)
INT8_BLOCK(int8_block_3_2_1, 3, 2, 1)
INT8_BLOCK(int8_block_3_2_2, 3, 2, 2)
INT8_BLOCK(int8_block_3_1_1, 3, 1, 1)
INT8_BLOCK(int8_block_3_1_2, 3, 1, 2)
INT8_BLOCK(int8_block_4_2_1, 4, 2, 1)
INT8_BLOCK(int8_block_4_2_2, 4, 2, 2)
INT8_BLOCK(int8_block_4_1_1, 4, 1, 1)
INT8_BLOCK(int8_block_4_1_2, 4, 1, 2)
#undef INT8_BLOCK

/* Register blocks of so many digits, by queries / 2 and by registers of keys. */
static int8_block_function *const int8_blocks[2][3][2] = {
    {{int8_block_3_1_1, int8_block_3_1_2},
     {int8_block_3_2_1, int8_block_3_2_2},
     {int8_block_3_4_1, int8_block_3_4_2}},
    {{int8_block_4_1_1, int8_block_4_1_2},
     {int8_block_4_2_1, int8_block_4_2_2},
     {int8_block_4_2_1, int8_block_4_2_2}},
};

/* Queries of the next block of at most `most`. */
static int int8_next(int left, int most)
{
    return left >= most ? most : left >= 2 ? 2 : 1;
}

static int int8_count(int num_queries, int most)
{
    const int left = num_queries % most;
    return num_queries / most + left / 2 + left % 2;
}

static void int8_group(const struct kernel_dot_job *job, int group)
{
    int num_digits = 3;
    for (int i = 0; i < job->num_queries; i++) {
        num_digits = job->digits[i].count == 4 ? 4 : num_digits;
    }
    const int most = num_digits == 3 ? INT8_QUERIES : 2;
    struct prefetch prefetch =
        prefetch_start(&job->prefetch, group, int8_count(job->num_queries, most));
    struct int8_part part = {.job = job, .prefetch = &prefetch};
    vi *keys = job->transposed;
    for (; part.key < job->num_keys; part.key += 2 * VEC_LANES) {
        const bool has_two = part.key + VEC_LANES < job->num_keys;
        int8_transpose(job, part.key, keys);
        if (has_two) {
            int8_transpose(job, part.key + VEC_LANES, keys + padded(job->width) / FOUR);
        }
        for (part.query = 0; part.query < job->num_queries;) {
            const int count = int8_next(job->num_queries - part.query, most);
            int8_blocks[num_digits - 3][count / 2][has_two ? 1 : 0](&part);
            part.query += count;
        }
    }
}

static void dot_by_digits(const struct kernel_dot_job *given)
{
    for (int group = 0; group < given->num_groups; group++) {
        struct kernel_dot_job job = dot_group(given, group);
        job.digits += (size_t)group * given->group_rows;
        int8_group(&job, group);
    }
}

/* ---- weights and their sums ---------------------------------------------------------------- */

/* One query's weights of a tile in place. The fourth digits are 0, and the first four of these make
 * room for the grain. */
static void pack_weights_of(float *weights, int num_keys)
{
    vf largest = vec_set(0x1p-126f);
    vf x[TILE_KEYS / VEC_LANES];
    for (int n = 0; n < TILE_KEYS / VEC_LANES; n++) {
        const int left = num_keys - n * VEC_LANES;
        x[n] = left > 0 ? vec_load_f32(weights + n * VEC_LANES, (size_t)left) : vec_set(0.0f);
        largest = vec_max(largest, x[n]);
    }
    const vf exponent = vec_exponent(vec_set(vec_max_lane(largest)));
    const vf up = vec_sub(vec_set(23.0f), exponent);
    for (int n = 0; n < TILE_KEYS / VEC_LANES; n++) {
        const vi whole = vec_to_int(vec_scale2_far(x[n], up));
        vec_int_store(weights + n * VEC_LANES, vec_int_digits_apart(whole));
    }
    float multiples[VEC_LANES];
    vec_store(multiples, vec_scale2_far(vec_set(1.0f), vec_sub(vec_set(0.0f), up)));
    weights[WEIGHT_DIGITS] = multiples[0];
}

static void pack_weights(float *weights, int num_queries, int num_keys)
{
    for (int i = 0; i < num_queries; i++, weights += TILE_KEYS) {
        pack_weights_of(weights, num_keys);
    }
}

/* Queries and channels of a register block, and what it shares with the others of a group. */
struct int8_sum_part {
    const struct kernel_weighted_sum_job *job;
    const char *values[TILE_KEYS]; /* to the group's; behind the last one, that again */
    struct prefetch prefetch;
    int query;
    size_t first, count;               /* channels, at most VEC_BYTES */
    vi channels[TILE_KEYS / FOUR * 4]; /* of these channels, as int8_interleave leaves them */
};

/* Four values by channel: in lanes 4 l .. of four[n] are channels 16 l + 4 n .., n from 2 on being
 * the upper half. */
VEC_INLINE void int8_interleave(const char *const *values, size_t first, size_t count, vi *four)
{
    vi x[FOUR];
    for (int j = 0; j < FOUR; j++) {
        x[j] = vec_int_load_bytes(values[j] + first, count);
    }
    for (int upper = 0; upper < 2; upper++) {
        const vi low = vec_int_pair_bytes(upper == 1, x[0], x[1]);
        const vi high = vec_int_pair_bytes(upper == 1, x[2], x[3]);
        vec_int_store(&four[2 * upper], vec_int_pair_words(false, low, high));
        vec_int_store(&four[2 * upper + 1], vec_int_pair_words(true, low, high));
    }
}

/* Once for all queries. */
VEC_INLINE void int8_interleave_part(struct int8_sum_part *part)
{
    for (int key = 0; key < part->job->num_keys; key += FOUR) {
        int8_interleave(&part->values[key], part->first, part->count, &part->channels[key]);
    }
}

VEC_INLINE void int8_add_values(const float *weights, const vi *values, struct int8_query_sums *s)
{
    const vi d0 = vec_int_repeat(weights), d1 = vec_int_repeat(weights + 1);
    const vi d2 = vec_int_repeat(weights + 2);
    s->x.d0 = vec_int_dot(s->x.d0, d0, values[0]);
    s->y.d0 = vec_int_dot(s->y.d0, d0, values[1]);
    s->x.d1 = vec_int_dot(s->x.d1, d1, values[0]);
    s->y.d1 = vec_int_dot(s->y.d1, d1, values[1]);
    s->x.d2 = vec_int_dot(s->x.d2, d2, values[0]);
    s->y.d2 = vec_int_dot(s->y.d2, d2, values[1]);
}

VEC_INLINE void int8_end_values(const struct int8_sum_part *part, int i, size_t count,
                                bool is_upper, const struct int8_query_sums *sums)
{
    const struct kernel_weighted_sum_job *job = part->job;
    const size_t query = (size_t)(part->query + i);
    float *acc = job->acc + query * job->acc_stride + part->first;
    vec_add_halves(acc + (is_upper ? VEC_LANES / 2 : 0), count,
                   job->alpha != NULL ? job->alpha[query] : 1.0f,
                   int8_value(WEIGHT_DIGITS, &sums->x), int8_value(WEIGHT_DIGITS, &sums->y),
                   job->weights[query * TILE_KEYS + WEIGHT_DIGITS]);
}

VEC_INLINE void int8_sum_half(int num_queries, bool is_upper, size_t count,
                              struct int8_sum_part *part)
{
    static const int32_t zeros[FOUR];
    const struct kernel_weighted_sum_job *job = part->job;
    const float *weights = job->weights + (size_t)part->query * TILE_KEYS;
    struct int8_query_sums a, b, c, d;
    int8_start(zeros, &a);
    b = c = d = a;
    for (int key = 0; key < job->num_keys; key += FOUR, weights += FOUR) {
        const vi *at = &part->channels[key + (is_upper ? 2 : 0)];
        const vi four[2] = {vec_int_load(&at[0]), vec_int_load(&at[1])};
        prefetch_lines(&part->prefetch, 2);
        int8_add_values(weights, four, &a);
        if (num_queries > 1) {
            int8_add_values(weights + TILE_KEYS, four, &b);
        }
        if (num_queries > 2) {
            int8_add_values(weights + 2 * TILE_KEYS, four, &c);
            int8_add_values(weights + 3 * TILE_KEYS, four, &d);
        }
    }
    int8_end_values(part, 0, count, is_upper, &a);
    if (num_queries > 1) {
        int8_end_values(part, 1, count, is_upper, &b);
    }
    if (num_queries > 2) {
        int8_end_values(part, 2, count, is_upper, &c);
        int8_end_values(part, 3, count, is_upper, &d);
    }
}

/* Functions of their own, as int8_block's. */
typedef void int8_sum_function(struct int8_sum_part *part);
#define INT8_SUM(lower, upper, last, queries)                                                      \
    static VEC_ALONE void lower(struct int8_sum_part *part)                                        \
    {                                                                                              \
        int8_sum_half(queries, false, VEC_BYTES, part);                                            \
    }                                                                                              \
    static VEC_ALONE void upper(struct int8_sum_part *part)                                        \
    {                                                                                              \
        int8_sum_half(queries, true, VEC_BYTES, part);                                             \
    }                                                                                              \
    static VEC_ALONE void last(struct int8_sum_part *part)                                         \
    {                                                                                              \
        int8_sum_half(queries, false, part->count, part);                                          \
        int8_sum_half(queries, true, part->count, part);                                           \
    }
INT8_SUM(int8_sum_1_lower, int8_sum_1_upper, int8_sum_1_last, 1)
INT8_SUM(int8_sum_2_lower, int8_sum_2_upper, int8_sum_2_last, 2)
INT8_SUM(int8_sum_4_lower, int8_sum_4_upper, int8_sum_4_last, 4)
#undef INT8_SUM

/* By queries / 2: all of VEC_BYTES channels in two halves, or fewer at once. */
static int8_sum_function *const int8_sum_functions[3][3] = {
    {int8_sum_1_lower, int8_sum_1_upper, int8_sum_1_last},
    {int8_sum_2_lower, int8_sum_2_upper, int8_sum_2_last},
    {int8_sum_4_lower, int8_sum_4_upper, int8_sum_4_last},
};

static void int8_sum_group(const struct kernel_weighted_sum_job *job, int group)
{
    struct int8_sum_part part; /* 4 KiB of it are not to be cleared */
    part.job = job;
    part.first = 0;
    part.prefetch =
        prefetch_start(&job->prefetch, group, int8_count(job->num_queries, INT8_QUERIES));
    for (int j = 0; j < TILE_KEYS; j++) {
        const int at = j < job->num_keys ? j : job->num_keys - 1;
        part.values[j] = (const char *)job->values[at] + job->group_bytes;
    }
    for (; part.first < job->width; part.first += VEC_BYTES) {
        part.count = job->width - part.first;
        int8_interleave_part(&part);
        for (part.query = 0; part.query < job->num_queries;) {
            const int count = int8_next(job->num_queries - part.query, INT8_QUERIES);
            int8_sum_function *const *functions = int8_sum_functions[count / 2];
            if (part.count >= VEC_BYTES) {
                functions[0](&part);
                functions[1](&part);
            } else {
                functions[2](&part);
            }
            part.query += count;
        }
    }
}

static void sum_by_digits(const struct kernel_weighted_sum_job *given)
{
    for (int group = 0; group < given->num_groups; group++) {
        const struct kernel_weighted_sum_job job = sum_group_job(PKV_INT8, given, group);
        int8_sum_group(&job, group);
    }
}

#endif
