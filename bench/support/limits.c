/* SPDX-License-Identifier: MIT
 *
 * limits.c: both loops by hand, once for each width of vector. They run on OpenMP's threads, as the
 * library does. What they compute goes into a volatile, or a compiler would drop it. */
#include "limits.h"

#include <stdint.h>

#include "attn/cpu.h"
#include "measure.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* The stream prefetches a page of 4 KiB ahead: without that it gets a tenth less here. */
enum { CHUNK = 1024, AHEAD = 4096, FMA_ROUNDS = 250000, PORTABLE_SUMS = 16 };

struct vectors {
    const char *name;
    int fma_flops; /* of one round */
    uint64_t (*read)(const char *memory, const char *ahead, size_t bytes);
    float (*fma)(int rounds);
};

static uint64_t read_portable(const char *memory, const char *ahead, size_t bytes)
{
    (void)ahead; /* there is no portable prefetch */
    const uint64_t *words = (const uint64_t *)(const void *)memory;
    uint64_t sums[4] = {0};
    for (size_t i = 0; i < bytes / sizeof words[0]; i += 4) {
        for (size_t lane = 0; lane < 4; lane++) {
            sums[lane] |= words[i + lane];
        }
    }
    return sums[0] | sums[1] | sums[2] | sums[3];
}

static float fma_portable(int rounds)
{
    float sums[PORTABLE_SUMS];
    for (int lane = 0; lane < PORTABLE_SUMS; lane++) {
        sums[lane] = (float)lane; /* equal sums would be computed once */
    }
    for (int i = 0; i < rounds; i++) {
        for (int lane = 0; lane < PORTABLE_SUMS; lane++) {
            sums[lane] = sums[lane] * 0.5f + 1.0f;
        }
    }
    float total = 0;
    for (int lane = 0; lane < PORTABLE_SUMS; lane++) {
        total += sums[lane];
    }
    return total;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static uint64_t read_avx512(const char *memory,
                                                               const char *ahead, size_t bytes)
{
    __m512i a = _mm512_setzero_si512();
    __m512i b = a, c = a, d = a;
    for (size_t at = 0; at < bytes; at += 256) {
        const char *from = memory + at;
        for (size_t line = 0; line < 256; line += 64) {
            _mm_prefetch(ahead + at + line, _MM_HINT_T1);
        }
        a = _mm512_or_si512(a, _mm512_loadu_si512(from));
        b = _mm512_or_si512(b, _mm512_loadu_si512(from + 64));
        c = _mm512_or_si512(c, _mm512_loadu_si512(from + 128));
        d = _mm512_or_si512(d, _mm512_loadu_si512(from + 192));
    }
    a = _mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(c, d));
    return (uint64_t)_mm512_reduce_or_epi64(a);
}

__attribute__((target("avx512f"))) static float fma_avx512(int rounds)
{
    const __m512 half = _mm512_set1_ps(0.5f);
    const __m512 one = _mm512_set1_ps(1.0f);
    __m512 s0 = _mm512_set1_ps(2), s1 = _mm512_set1_ps(3), s2 = _mm512_set1_ps(4);
    __m512 s3 = _mm512_set1_ps(5), s4 = _mm512_set1_ps(6), s5 = _mm512_set1_ps(7);
    __m512 s6 = _mm512_set1_ps(8), s7 = _mm512_set1_ps(9), s8 = _mm512_set1_ps(10);
    __m512 s9 = _mm512_set1_ps(11), s10 = _mm512_set1_ps(12), s11 = _mm512_set1_ps(13);
    for (int i = 0; i < rounds; i++) {
        s0 = _mm512_fmadd_ps(s0, half, one);
        s1 = _mm512_fmadd_ps(s1, half, one);
        s2 = _mm512_fmadd_ps(s2, half, one);
        s3 = _mm512_fmadd_ps(s3, half, one);
        s4 = _mm512_fmadd_ps(s4, half, one);
        s5 = _mm512_fmadd_ps(s5, half, one);
        s6 = _mm512_fmadd_ps(s6, half, one);
        s7 = _mm512_fmadd_ps(s7, half, one);
        s8 = _mm512_fmadd_ps(s8, half, one);
        s9 = _mm512_fmadd_ps(s9, half, one);
        s10 = _mm512_fmadd_ps(s10, half, one);
        s11 = _mm512_fmadd_ps(s11, half, one);
    }
    const __m512 low = _mm512_add_ps(_mm512_add_ps(s0, s1), _mm512_add_ps(s2, s3));
    const __m512 mid = _mm512_add_ps(_mm512_add_ps(s4, s5), _mm512_add_ps(s6, s7));
    const __m512 top = _mm512_add_ps(_mm512_add_ps(s8, s9), _mm512_add_ps(s10, s11));
    return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(low, mid), top));
}

__attribute__((target("avx2"))) static uint64_t read_avx2(const char *memory, const char *ahead,
                                                          size_t bytes)
{
    __m256i a = _mm256_setzero_si256();
    __m256i b = a, c = a, d = a;
    for (size_t at = 0; at < bytes; at += 128) {
        const __m256i *from = (const __m256i *)(const void *)(memory + at);
        _mm_prefetch(ahead + at, _MM_HINT_T1);
        _mm_prefetch(ahead + at + 64, _MM_HINT_T1);
        a = _mm256_or_si256(a, _mm256_loadu_si256(from));
        b = _mm256_or_si256(b, _mm256_loadu_si256(from + 1));
        c = _mm256_or_si256(c, _mm256_loadu_si256(from + 2));
        d = _mm256_or_si256(d, _mm256_loadu_si256(from + 3));
    }
    a = _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));
    return (uint64_t)_mm256_extract_epi64(a, 0) | (uint64_t)_mm256_extract_epi64(a, 3);
}

__attribute__((target("avx2,fma"))) static float fma_avx2(int rounds)
{
    const __m256 half = _mm256_set1_ps(0.5f);
    const __m256 one = _mm256_set1_ps(1.0f);
    __m256 s0 = _mm256_set1_ps(2), s1 = _mm256_set1_ps(3), s2 = _mm256_set1_ps(4);
    __m256 s3 = _mm256_set1_ps(5), s4 = _mm256_set1_ps(6), s5 = _mm256_set1_ps(7);
    __m256 s6 = _mm256_set1_ps(8), s7 = _mm256_set1_ps(9), s8 = _mm256_set1_ps(10);
    __m256 s9 = _mm256_set1_ps(11);
    for (int i = 0; i < rounds; i++) {
        s0 = _mm256_fmadd_ps(s0, half, one);
        s1 = _mm256_fmadd_ps(s1, half, one);
        s2 = _mm256_fmadd_ps(s2, half, one);
        s3 = _mm256_fmadd_ps(s3, half, one);
        s4 = _mm256_fmadd_ps(s4, half, one);
        s5 = _mm256_fmadd_ps(s5, half, one);
        s6 = _mm256_fmadd_ps(s6, half, one);
        s7 = _mm256_fmadd_ps(s7, half, one);
        s8 = _mm256_fmadd_ps(s8, half, one);
        s9 = _mm256_fmadd_ps(s9, half, one);
    }
    const __m256 low = _mm256_add_ps(_mm256_add_ps(s0, s1), _mm256_add_ps(s2, s3));
    const __m256 mid = _mm256_add_ps(_mm256_add_ps(s4, s5), _mm256_add_ps(s6, s7));
    return _mm256_cvtss_f32(_mm256_add_ps(_mm256_add_ps(low, mid), _mm256_add_ps(s8, s9)));
}
#endif

static const struct vectors *vectors_of_cpu(void)
{
    static const struct vectors portable = {"portable", 2 * PORTABLE_SUMS, read_portable,
                                            fma_portable};
#if defined(__x86_64__)
    const unsigned features = cpu_features();
    static const struct vectors avx512 = {"avx512", 2 * 16 * 12, read_avx512, fma_avx512};
    static const struct vectors avx2 = {"avx2", 2 * 8 * 10, read_avx2, fma_avx2};
    if ((features & CPU_AVX512F) != 0) {
        return &avx512;
    }
    if ((features & CPU_AVX2) != 0 && (features & CPU_FMA) != 0) {
        return &avx2;
    }
#endif
    return &portable;
}

double limits_read(int threads, const void *memory, size_t bytes)
{
    const struct vectors *vectors = vectors_of_cpu();
    const size_t chunks = bytes / CHUNK;
    volatile uint64_t sink = 0;
    const double start = measure_now();
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        const size_t begin = chunks * (size_t)t / (size_t)threads;
        const size_t end = chunks * (size_t)(t + 1) / (size_t)threads;
        const char *from = (const char *)memory + begin * CHUNK;
        sink = vectors->read(from, from + AHEAD, (end - begin) * CHUNK);
    }
    (void)sink;
    return measure_now() - start;
}

double limits_read_runs(int threads, const char *const *runs, size_t num_runs, size_t run_bytes)
{
    const struct vectors *vectors = vectors_of_cpu();
    volatile uint64_t sink = 0;
    const double start = measure_now();
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        const size_t end = num_runs * (size_t)(t + 1) / (size_t)threads;
        for (size_t i = num_runs * (size_t)t / (size_t)threads; i < end; i++) {
            sink = vectors->read(runs[i], runs[i + 1 < end ? i + 1 : i], run_bytes);
        }
    }
    (void)sink;
    return measure_now() - start;
}

double limits_fma(int threads)
{
    const struct vectors *vectors = vectors_of_cpu();
    volatile float sink = 0;
    const double start = measure_now();
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        sink = vectors->fma(FMA_ROUNDS);
    }
    (void)sink;
    return (double)threads * FMA_ROUNDS * vectors->fma_flops / (measure_now() - start);
}

const char *limits_vectors(void)
{
    return vectors_of_cpu()->name;
}
