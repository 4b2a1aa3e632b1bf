/* SPDX-License-Identifier: MIT */
#include "support/test.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attn/workspace.h"

void test_assert_status(enum pkv_status expected, enum pkv_status actual, const char *call,
                        const char *file, unsigned line)
{
    char text[512];
    snprintf(text, sizeof text, "%s answered %s, expected %s; last error: %s", call,
             pkv_status_name(actual), pkv_status_name(expected), pkv_last_error());
    CU_assertImplementation(actual == expected, line, text, file, "", CU_FALSE);
}

void test_assert_refused(const char *name, enum pkv_status expected, const char *part,
                         enum pkv_status actual, const char *file, unsigned line)
{
    char text[512];
    snprintf(text, sizeof text,
             "%s: answered %s, expected %s; last error \"%s\" (expected in it: \"%s\")", name,
             pkv_status_name(actual), pkv_status_name(expected), pkv_last_error(), part);
    const bool is_named = strstr(pkv_last_error(), part) != NULL;
    CU_assertImplementation(actual == expected && is_named, line, text, file, "", CU_FALSE);
}

void test_assert_case(const char *name, bool holds, const char *condition, const char *file,
                      unsigned line)
{
    char text[512];
    snprintf(text, sizeof text, "%s: %s", name, condition);
    CU_assertImplementation(holds, line, text, file, "", CU_FALSE);
}

enum pkv_isa test_isa(void)
{
    const char *wanted = getenv("PKV_TEST_ISA");
    enum pkv_isa isa = PKV_ISA_BEST;
    if (wanted != NULL && pkv_isa_by_name(wanted, &isa) != PKV_OK) {
        fprintf(stderr, "PKV_TEST_ISA: %s\n", pkv_last_error());
        exit(EXIT_FAILURE);
    }
    return isa;
}

bool test_has_isa(enum pkv_isa isa)
{
    pkv_workspace *workspace = NULL;
    const enum pkv_status status = pkv_workspace_create(1, isa, NULL, &workspace);
    pkv_workspace_destroy(workspace);
    return status != PKV_UNSUPPORTED;
}

uint64_t test_seed(void)
{
    const char *seed = getenv("PKV_TEST_SEED");
    return seed != NULL ? strtoull(seed, NULL, 0) : 20260101u;
}

uint64_t random_u64(struct test_random *random)
{
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int32_t random_between(struct test_random *random, int32_t low, int32_t high)
{
    const uint64_t span = (uint64_t)((int64_t)high - low) + 1;
    return (int32_t)(low + (int64_t)(random_u64(random) % span));
}

double random_unit(struct test_random *random)
{
    return (double)(random_u64(random) >> 11) * 0x1p-52 - 1.0;
}

/* Hooks are called from several threads at once. */
static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;

static bool may_allocate(struct test_memory *memory, size_t bytes)
{
    pthread_mutex_lock(&memory_lock);
    const bool fails = memory->fail_at > 0 && --memory->fail_at == 0;
    memory->calls++;
    memory->fail_at += fails;
    memory->live += !fails;
    memory->live_bytes += fails ? 0 : bytes;
    pthread_mutex_unlock(&memory_lock);
    return !fails;
}

static void count_freed(struct test_memory *memory, size_t bytes)
{
    pthread_mutex_lock(&memory_lock);
    memory->live--;
    memory->live_bytes -= bytes;
    pthread_mutex_unlock(&memory_lock);
}

static void *counted_alloc(void *context, size_t bytes, size_t alignment)
{
    return may_allocate(context, bytes) ? aligned_alloc(alignment, bytes) : NULL;
}

static void counted_free(void *context, void *pointer, size_t bytes, size_t alignment)
{
    (void)alignment;
    count_freed(context, bytes);
    free(pointer);
}

static void *counted_map(void *context, size_t bytes, size_t alignment, int node,
                         enum pkv_map_kind kind)
{
    (void)alignment;
    (void)node;
    (void)kind;
    if (!may_allocate(context, bytes)) {
        return NULL;
    }
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? NULL : pages;
}

static void counted_unmap(void *context, void *pages, size_t bytes, enum pkv_map_kind kind)
{
    (void)kind;
    count_freed(context, bytes);
    munmap(pages, bytes);
}

static void counted_log(void *context, enum pkv_log_level level, const char *line)
{
    struct test_memory *memory = context;
    (void)level;
    (void)line;
    memory->num_logged++;
}

struct pkv_hooks test_hooks(struct test_memory *memory)
{
    return (struct pkv_hooks){
        .context = memory,
        .alloc = counted_alloc,
        .free = counted_free,
        .map_pages = counted_map,
        .unmap_pages = counted_unmap,
        .log = counted_log,
    };
}

bool test_shared_file(const char *name, char *path, size_t bytes)
{
    const char *shared = getenv("PKV_SHARED");
    snprintf(path, bytes, "%s/%s", shared != NULL ? shared : "../shared", name);
    if (access(path, R_OK) == 0) {
        return true;
    }
    printf("skipped: no %s\n", name);
    return false;
}

/* Rounding to a small float by the definition: scale to the unit in the last place, round half to
 * even, scale back. mantissa counts the stored bits, min_exponent is that of the smallest normal.
 */
static double round_to(double x, int mantissa, int min_exponent)
{
    if (x == 0 || !isfinite(x)) {
        return x;
    }
    int exponent = 0;
    frexp(x, &exponent);
    const int unit = (exponent - 1 < min_exponent ? min_exponent : exponent - 1) - mantissa;
    return ldexp(nearbyint(ldexp(x, -unit)), unit);
}

float ref_from_f16(uint16_t bits)
{
    const int exponent = (bits >> 10) & 31;
    const int mantissa = bits & 1023;
    const double sign = bits >> 15 ? -1.0 : 1.0;
    if (exponent == 31) {
        return mantissa ? NAN : (float)(sign * (double)INFINITY);
    }
    return (float)(sign *
                   (exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24)));
}

uint16_t ref_to_f16(double x)
{
    const uint16_t sign = (uint16_t)(signbit(x) ? 0x8000 : 0);
    const double r = fabs(round_to(x, 10, -14));
    if (isnan(x)) {
        return 0x7e00;
    }
    if (r > 65504) {
        return (uint16_t)(sign | 0x7c00);
    }
    if (r < 0x1p-14) {
        return (uint16_t)(sign | (int)ldexp(r, 24));
    }
    int exponent = 0;
    const double fraction = frexp(r, &exponent); /* [0.5, 1) */
    return (uint16_t)(sign | ((exponent + 14) << 10) | ((int)ldexp(fraction, 11) - 1024));
}

float ref_from_bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}

uint16_t ref_to_bf16(double x)
{
    if (isnan(x)) {
        return 0x7fc0;
    }
    const float rounded = (float)round_to(x, 7, -126);
    uint32_t wide;
    memcpy(&wide, &rounded, sizeof wide);
    return (uint16_t)(wide >> 16);
}

float ref_from_e4m3(uint8_t bits)
{
    const int exponent = (bits >> 3) & 15;
    const int mantissa = bits & 7;
    const double sign = bits >> 7 ? -1.0 : 1.0;
    if (exponent == 15 && mantissa == 7) {
        return NAN;
    }
    return (float)(sign * (exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9)));
}

uint8_t ref_to_e4m3(double x)
{
    const uint8_t sign = (uint8_t)(signbit(x) ? 0x80 : 0);
    if (isnan(x)) {
        return 0x7f;
    }
    const double r = fmin(fabs(round_to(fmax(-448, fmin(448, x)), 3, -6)), 448);
    if (r < 0x1p-6) {
        return (uint8_t)(sign | (int)ldexp(r, 9));
    }
    int exponent = 0;
    const double fraction = frexp(r, &exponent);
    return (uint8_t)(sign | ((exponent + 6) << 3) | ((int)ldexp(fraction, 4) - 8));
}

double ref_load(enum pkv_dtype dtype, const void *array, size_t index)
{
    switch (dtype) {
    case PKV_F32: return (double)((const float *)array)[index];
    case PKV_F16: return (double)ref_from_f16(((const uint16_t *)array)[index]);
    case PKV_BF16: return (double)ref_from_bf16(((const uint16_t *)array)[index]);
    case PKV_INT8: return ((const int8_t *)array)[index];
    case PKV_E4M3: return (double)ref_from_e4m3(((const uint8_t *)array)[index]);
    }
    return NAN;
}

void ref_store(enum pkv_dtype dtype, void *array, size_t index, double x)
{
    switch (dtype) {
    case PKV_F32: ((float *)array)[index] = (float)x; break;
    case PKV_F16: ((uint16_t *)array)[index] = ref_to_f16(x); break;
    case PKV_BF16: ((uint16_t *)array)[index] = ref_to_bf16(x); break;
    case PKV_INT8:
        ((int8_t *)array)[index] = (int8_t)(isnan(x) ? 0 : fmax(-128, fmin(127, nearbyint(x))));
        break;
    case PKV_E4M3: ((uint8_t *)array)[index] = ref_to_e4m3(x); break;
    }
}

void test_eager_threads(pkv_workspace *workspace)
{
    workspace->thread_ns = 1000;
}

PKV_WEAK extern void __asan_init(void);
PKV_WEAK extern void __tsan_init(void);

bool test_is_sanitised(const char *need)
{
    const bool is = __asan_init != NULL || __tsan_init != NULL;
    if (is) {
        printf("skipped: this sanitiser needs %s\n", need);
    }
    return is;
}
