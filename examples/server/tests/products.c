/* SPDX-License-Identifier: MIT
 *
 * server_products [THREADS [LIBRARY]]: the products of examples/support/matrix.h beside those of a
 * BLAS that is loaded from LIBRARY (libopenblas.so.0), in turns: [2048][2048] with 1, 8 and 128
 * tokens, the median of several rounds. Eight matrices, so that weights come from memory, as they
 * do in a model. Then how many numbers of one token differ between alone and in a batch of 8. */
#include "matrix.h"
#include "report.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char program_name[] = "server_products";

enum { DIM = 2048, MATRICES = 8, MAX_TOKENS = 128, ROUNDS = 9, WAYS = 3 };
enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };

typedef void gemm_fn(int, int, int, int, int, int, float, const float *, int, const float *, int,
                     float, float *, int);
typedef void gemv_fn(int, int, int, int, float, const float *, int, const float *, int, float,
                     float *, int);
typedef void set_threads_fn(int);

struct products {
    float *weights;   /* [MATRICES][DIM][DIM] */
    uint16_t *narrow; /* the same in bf16 */
    float *in, *out;  /* [MAX_TOKENS][DIM] */
    float *scratch;
    gemm_fn *gemm;
    gemv_fn *gemv;
    int32_t threads;
};

/* A function of the library; dlsym's pointer is no pointer to a function in C17. */
static bool find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL || complain("the library has no %s", name);
}

static bool open_library(const char *path, struct products *p)
{
    set_threads_fn *set_threads = NULL;
    void *library = dlopen(path, RTLD_NOW);
    if (library == NULL) {
        return complain("%s", dlerror());
    }
    if (!find(library, "cblas_sgemm", &p->gemm) || !find(library, "cblas_sgemv", &p->gemv) ||
        !find(library, "openblas_set_num_threads", &set_threads)) {
        return false;
    }
    set_threads(p->threads);
    return true;
}

/* Numbers in [-0.5, 0.5) of 16 bits each, from their index alone. */
static float number(size_t i)
{
    return (float)((uint32_t)i * 2654435761U >> 16) / 65536 - 0.5f;
}

static bool fill(struct products *p)
{
    const size_t count = (size_t)MATRICES * DIM * DIM, values = (size_t)MAX_TOKENS * DIM;
    p->weights = malloc(count * sizeof *p->weights);
    p->narrow = malloc(count * sizeof *p->narrow);
    p->in = malloc(values * sizeof *p->in);
    p->out = calloc(values, sizeof *p->out);
    p->scratch = malloc(matrix_scratch(DIM, p->threads) * sizeof *p->scratch);
    if (!p->weights || !p->narrow || !p->in || !p->out || !p->scratch) {
        return complain("out of memory");
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        p->weights[i] = number(i);
        memcpy(&bits, &p->weights[i], sizeof bits);
        p->narrow[i] = (uint16_t)(bits >> 16);
    }
    for (size_t i = 0; i < values; i++) {
        p->in[i] = number(3 * i + 1);
    }
    return true;
}

static void by_blas(const struct products *p, const float *weights, int tokens)
{
    if (tokens == 1) {
        p->gemv(ROW_MAJOR, PLAIN, DIM, DIM, 1, weights, DIM, p->in, 1, 0, p->out, 1);
    } else {
        p->gemm(ROW_MAJOR, PLAIN, TRANSPOSED, tokens, DIM, DIM, 1, p->in, DIM, weights, DIM, 0,
                p->out, DIM);
    }
}

/* way 0: our f32; 1: our bf16; 2: the BLAS, f32. */
static void multiply(const struct products *p, int way, int matrix, int tokens)
{
    const size_t first = (size_t)matrix * DIM * DIM;
    const struct weight wide = {p->weights + first, PKV_F32, DIM, DIM};
    const struct weight narrow = {p->narrow + first, PKV_BF16, DIM, DIM};
    if (way == 2) {
        by_blas(p, p->weights + first, tokens);
    } else {
        matrix_multiply(p->out, p->in, way == 0 ? &wide : &narrow, tokens, p->threads, p->scratch);
    }
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void measure(const struct products *p, int tokens)
{
    double seconds[WAYS][ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        for (int way = 0; way < WAYS; way++) {
            const double start = now_seconds();
            for (int matrix = 0; matrix < MATRICES; matrix++) {
                multiply(p, way, matrix, tokens);
            }
            seconds[way][round] = (now_seconds() - start) / MATRICES;
        }
    }
    for (int way = 0; way < WAYS; way++) {
        qsort(seconds[way], ROUNDS, sizeof(double), by_size);
    }
    printf("%7d %7d %9.3f %10.3f %8.3f\n", p->threads, tokens, 1e3 * seconds[0][ROUNDS / 2],
           1e3 * seconds[1][ROUNDS / 2], 1e3 * seconds[2][ROUNDS / 2]);
}

static int count_different(const struct products *p, int way)
{
    float alone[DIM];
    int different = 0;
    multiply(p, way, 0, 1);
    memcpy(alone, p->out, sizeof alone);
    multiply(p, way, 0, 8);
    for (int i = 0; i < DIM; i++) {
        different += memcmp(&alone[i], &p->out[i], sizeof alone[i]) != 0;
    }
    return different;
}

int main(int argc, char **argv)
{
    struct products p = {.threads = 1};
    if ((argc > 1 && !parse_number("THREADS", argv[1], 1, 256, &p.threads)) ||
        !open_library(argc > 2 ? argv[2] : "libopenblas.so.0", &p) || !fill(&p)) {
        return 1;
    }
    puts("threads  tokens  f32 (ms)  bf16 (ms)  BLAS, f32 (ms)");
    measure(&p, 1);
    measure(&p, 8);
    measure(&p, MAX_TOKENS);
    printf("numbers of a token that differ between alone and among 8: %d of ours, %d of the "
           "BLAS's, of %d\n",
           count_different(&p, 0), count_different(&p, 2), DIM);
    return 0;
}
