/* SPDX-License-Identifier: MIT
 *
 * matrix.c: a few rows of the weight are widened into scratch that the first-level cache holds, and
 * multiplied with four tokens at a time, in 16 registers of sums. Written in vectors of 16 floats,
 * which the compiler makes of what the machine has; the loops are compiled for several machines,
 * and the best is chosen when the program starts. Products and sums round apart everywhere, so
 * machines agree to the bit. */
#include "matrix.h"

#if defined(_OPENMP)
#include <omp.h>
#endif
#include <string.h>

enum { LANES = 16, ROWS = 4, TOKENS = 4 };

/* Products of fewer multiply-adds are not worth waking a second thread. */
enum { MIN_WORK = 1 << 21 };

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define EACH_MACHINE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define EACH_MACHINE
#endif

/* Rows and tokens of one block of sums. */
struct block {
    const float *rows[ROWS];
    const float *in[TOKENS];
    int32_t columns;
};

static float sum_of(const float *sums)
{
    float part[LANES];
    memcpy(part, sums, sizeof part);
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int l = 0; l < half; l++) {
            part[l] += part[l + half];
        }
    }
    return part[0];
}

/* The columns behind the last whole register go to the lanes that would have them. */
static void add_rest(const float *row, const float *in, int32_t from, int32_t columns, float *sums)
{
    for (int32_t c = from; c < columns; c++) {
        sums[c - from] += row[c] * in[c];
    }
}

EACH_MACHINE
static void multiply_block(const struct block *block, float sums[ROWS][TOKENS][LANES])
{
    lanes sum[ROWS][TOKENS];
    memset(sum, 0, sizeof sum);
    for (int32_t c = 0; c + LANES <= block->columns; c += LANES) {
        lanes in[TOKENS];
#pragma GCC unroll 4
        for (int t = 0; t < TOKENS; t++) {
            in[t] = *(const lanes *)(block->in[t] + c);
        }
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) {
            const lanes row = *(const lanes *)(block->rows[r] + c);
#pragma GCC unroll 4
            for (int t = 0; t < TOKENS; t++) {
                sum[r][t] += row * in[t];
            }
        }
    }
    memcpy(sums, sum, sizeof sum);
}

EACH_MACHINE
static void multiply_one(const float *row, const float *in, int32_t columns, float *sums)
{
    lanes sum = {0};
    for (int32_t c = 0; c + LANES <= columns; c += LANES) {
        sum += *(const lanes *)(row + c) * *(const lanes *)(in + c);
    }
    memcpy(sums, &sum, sizeof sum);
}

float matrix_dot(const float *a, const float *b, int32_t count)
{
    float sums[LANES];
    multiply_one(a, b, count, sums);
    add_rest(a, b, count / LANES * LANES, count, sums);
    return sum_of(sums);
}

/* Four rows from `first` on with four tokens from `token` on. */
static void multiply_four(const struct weight *w, const float *const *rows, int32_t first,
                          const float *in, int32_t token, float *out)
{
    const size_t columns = (size_t)w->columns;
    const int32_t rest = w->columns / LANES * LANES;
    float sums[ROWS][TOKENS][LANES];
    struct block block = {.columns = w->columns};
    for (int r = 0; r < ROWS; r++) {
        block.rows[r] = rows[r];
    }
    for (int t = 0; t < TOKENS; t++) {
        block.in[t] = in + (size_t)(token + t) * columns;
    }
    multiply_block(&block, sums);
    for (int r = 0; r < ROWS; r++) {
        for (int t = 0; t < TOKENS; t++) {
            add_rest(rows[r], block.in[t], rest, w->columns, sums[r][t]);
            out[(size_t)(token + t) * (size_t)w->rows + (size_t)(first + r)] = sum_of(sums[r][t]);
        }
    }
}

/* Up to four rows from `first` on with all tokens. */
static void multiply_rows(const struct weight *w, int32_t first, int32_t count, const float *in,
                          int32_t num_tokens, float *scratch, float *out)
{
    const size_t columns = (size_t)w->columns;
    const float *rows[ROWS];
    int32_t token = 0;
    for (int32_t r = 0; r < count; r++) {
        rows[r] = weight_row(w, first + r, scratch + (size_t)r * columns);
    }
    for (; count == ROWS && token + TOKENS <= num_tokens; token += TOKENS) {
        multiply_four(w, rows, first, in, token, out);
    }
    for (; token < num_tokens; token++) {
        for (int32_t r = 0; r < count; r++) {
            out[(size_t)token * (size_t)w->rows + (size_t)(first + r)] =
                matrix_dot(rows[r], in + (size_t)token * columns, w->columns);
        }
    }
}

#if defined(_OPENMP)
int32_t matrix_threads(int32_t wish)
{
    return wish > 0 ? wish : omp_get_max_threads();
}

static size_t this_thread(void)
{
    return (size_t)omp_get_thread_num();
}
#else
int32_t matrix_threads(int32_t wish)
{
    (void)wish;
    return 1;
}

static size_t this_thread(void)
{
    return 0;
}
#endif

size_t matrix_scratch(int32_t columns, int32_t threads)
{
    return (size_t)ROWS * (size_t)columns * (size_t)threads;
}

void matrix_multiply(float *out, const float *in, const struct weight *w, int32_t num_tokens,
                     int32_t threads, float *scratch)
{
    const size_t own = (size_t)ROWS * (size_t)w->columns;
    const double work = (double)w->rows * w->columns * num_tokens;
#pragma omp parallel for num_threads(work < MIN_WORK ? 1 : threads) schedule(static)
    for (int32_t first = 0; first < w->rows; first += ROWS) {
        const int32_t left = w->rows - first;
        multiply_rows(w, first, left < ROWS ? left : ROWS, in, num_tokens,
                      scratch + own * this_thread(), out);
    }
}
