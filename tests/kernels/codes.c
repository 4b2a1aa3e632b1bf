/* SPDX-License-Identifier: MIT
 *
 * codes.c: every code of e4m3 at every channel of every width, so at each byte of a register and in
 * each tail: widen, dot and weighted_sum all read it as its value over 2^8, exactly, and a NaN as
 * NaN. A one among zeros picks a channel of a dot and a key of a sum. */
#include "kernels/check.h"

#include <math.h>
#include <string.h>

enum { CODES = 256, QUERIES = 4 };

static bool is_nan_code(uint8_t code)
{
    return (code & 0x7f) == 0x7f;
}

static float value_of(uint8_t code)
{
    return (float)ref_load(PKV_E4M3, &code, 0) / value_scale_of(PKV_E4M3);
}

/* TILE_KEYS vectors between guard pages: channel c of vector j has code c + j + base, 0 for a NaN
 * unless those are wanted. */
static void place_codes(struct check *check, int base, bool has_nan, const void **vectors)
{
    const size_t width = (size_t)check->shape.width;
    for (int j = 0; j < TILE_KEYS; j++) {
        uint8_t *codes = guarded_place(&check->cells, j, width, 1, check->shape.place);
        for (size_t c = 0; c < width; c++) {
            const uint8_t code = (uint8_t)(c + (size_t)(j + base));
            codes[c] = is_nan_code(code) && !has_nan ? 0 : code;
        }
        vectors[j] = codes;
    }
}

static void widen_codes(struct check *check, int base)
{
    const void *vectors[TILE_KEYS];
    const size_t width = (size_t)check->shape.width;
    place_codes(check, base, true, vectors);
    for (int j = 0; j < TILE_KEYS && !check->failed; j++) {
        float *y = guarded_place(&check->output, 0, width * sizeof *y, sizeof *y, PLACE_ENDS);
        check->kernels->widen(PKV_E4M3, vectors[j], width, y);
        for (size_t c = 0; c < width; c++) {
            check_bits(check, "y", (size_t)j, c, y[c], value_of(((const uint8_t *)vectors[j])[c]));
        }
    }
}

/* Query i is 1 at channel i of each of QUERIES channels from `first` on, or everywhere. */
static void dot_channels(struct check *check, const void *const *vectors, int first, bool is_sum,
                         float (*scores)[TILE_KEYS])
{
    static float q[QUERIES * MAX_STRIDE];
    const size_t stride = padded((size_t)check->shape.width);
    memset(q, 0, sizeof q);
    for (int i = 0; i < QUERIES; i++) {
        for (int c = 0; c < check->shape.width; c++) {
            q[(size_t)i * stride + (size_t)c] = is_sum || c == first + i ? 1.0f : 0.0f;
        }
    }
    const struct kernel_dot_job job = {
        .dtype = PKV_E4M3,
        .q = q,
        .q_stride = stride,
        .keys = vectors,
        .num_groups = 1,
        .num_queries = QUERIES,
        .num_keys = TILE_KEYS,
        .width = (size_t)check->shape.width,
        .scores = scores[0],
    };
    check->kernels->dot(&job);
}

static void dot_codes(struct check *check, int base)
{
    const void *vectors[TILE_KEYS];
    float scores[QUERIES][TILE_KEYS];
    place_codes(check, base, false, vectors);
    for (int first = 0; first < check->shape.width && !check->failed; first += QUERIES) {
        dot_channels(check, vectors, first, false, scores);
        for (int i = 0; i < QUERIES && first + i < check->shape.width; i++) {
            for (int j = 0; j < TILE_KEYS; j++) {
                const uint8_t code = ((const uint8_t *)vectors[j])[first + i];
                check_value(check, "score", (size_t)(first + i), (size_t)j, scores[i][j],
                            (double)value_of(code), 0);
            }
        }
    }
}

/* acc from 0, with weight 1 for value `key` alone. */
static void sum_key_alone(struct check *check, const void *const *vectors, int key, float *acc)
{
    static float weights[QUERIES * TILE_KEYS];
    const size_t stride = padded((size_t)check->shape.width);
    memset(weights, 0, sizeof weights);
    memset(acc, 0, QUERIES * stride * sizeof acc[0]);
    for (int i = 0; i < QUERIES; i++) {
        weights[i * TILE_KEYS + key] = 1.0f;
    }
    const struct kernel_weighted_sum_job job = {
        .dtype = PKV_E4M3,
        .weights = weights,
        .values = vectors,
        .num_groups = 1,
        .num_queries = QUERIES,
        .num_keys = TILE_KEYS,
        .width = (size_t)check->shape.width,
        .acc = acc,
        .acc_stride = stride,
    };
    check->kernels->weighted_sum(&job);
}

static void sum_codes(struct check *check, int base)
{
    static float acc[QUERIES * MAX_STRIDE];
    const void *vectors[TILE_KEYS];
    const size_t stride = padded((size_t)check->shape.width);
    place_codes(check, base, false, vectors);
    for (int j = 0; j < TILE_KEYS && !check->failed; j++) {
        sum_key_alone(check, vectors, j, acc);
        for (size_t i = 0; i < QUERIES; i++) {
            for (int c = 0; c < check->shape.width; c++) {
                const uint8_t code = ((const uint8_t *)vectors[j])[c];
                check_value(check, "acc", i, (size_t)c, acc[i * stride + (size_t)c],
                            (double)value_of(code), 0);
            }
        }
    }
}

/* A NaN at `channel` of vector 0 and zeros elsewhere: it is seen there and nowhere else. */
static void nan_at(struct check *check, uint8_t code, int channel)
{
    static float acc[QUERIES * MAX_STRIDE];
    const void *vectors[TILE_KEYS];
    float scores[QUERIES][TILE_KEYS];
    const size_t width = (size_t)check->shape.width;
    for (int j = 0; j < TILE_KEYS; j++) {
        uint8_t *codes = guarded_place(&check->cells, j, width, 1, check->shape.place);
        memset(codes, 0, width);
        codes[channel] = j == 0 ? code : 0;
        vectors[j] = codes;
    }
    dot_channels(check, vectors, 0, true, scores);
    sum_key_alone(check, vectors, 1, acc);
    for (int j = 0; j < TILE_KEYS; j++) {
        check_value(check, "score beside a NaN", 0, (size_t)j, scores[0][j],
                    j == 0 ? (double)NAN : 0, 0);
    }
    for (int c = 0; c < check->shape.width; c++) {
        check_value(check, "acc beside a NaN", 0, (size_t)c, acc[c], c == channel ? (double)NAN : 0,
                    0);
    }
}

/* All widths that fill a wide load and leave a tail of any length, and some longer ones. */
void check_codes(struct check *check)
{
    for (int width = 1; width <= MAX_WIDTH && !check->failed;
         width += width < 2 * TILE_KEYS + 4 ? 1 : 31) {
        const enum place place = width % 2 == 0 ? PLACE_ENDS : PLACE_MISALIGNED;
        check->shape = (struct shape){QUERIES, TILE_KEYS, width, place, "all codes"};
        for (int base = 0; base < CODES; base += TILE_KEYS) {
            widen_codes(check, base);
            dot_codes(check, base);
            sum_codes(check, base);
        }
        for (int channel = 0; channel < width && !check->failed; channel += 1 + width / 67) {
            nan_at(check, channel % 2 == 0 ? 0x7f : 0xff, channel);
        }
    }
}
