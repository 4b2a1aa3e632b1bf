/* SPDX-License-Identifier: MIT
 *
 * cpu.c: asks the processor. Baseline code: it runs before anything is known. */
#include "attn/cpu.h"

#if defined(__AVX__)
#error "cpu.c is baseline code: do not compile it with AVX on"
#endif

#if defined(__x86_64__)
#include <cpuid.h>

static unsigned feature_if(int has, enum cpu_feature feature)
{
    return has != 0 ? (unsigned)feature : 0;
}

/* clang 14 has no names for F16C and AVX512-BF16 in __builtin_cpu_supports. */
static unsigned features_by_cpuid(void)
{
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    unsigned features = 0;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) {
        features |= feature_if((ecx >> 29 & 1) != 0, CPU_F16C);
    }
    if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) {
        features |= feature_if((eax >> 5 & 1) != 0, CPU_AVX512BF16);
    }
    return features;
}

/* The builtin also looks whether the operating system keeps the registers. */
unsigned cpu_features(void)
{
    return feature_if(__builtin_cpu_supports("avx2"), CPU_AVX2) |
           feature_if(__builtin_cpu_supports("fma"), CPU_FMA) |
           feature_if(__builtin_cpu_supports("avx512f"), CPU_AVX512F) |
           feature_if(__builtin_cpu_supports("avx512bw"), CPU_AVX512BW) |
           feature_if(__builtin_cpu_supports("avx512dq"), CPU_AVX512DQ) |
           feature_if(__builtin_cpu_supports("avx512vl"), CPU_AVX512VL) |
           feature_if(__builtin_cpu_supports("avx512vnni"), CPU_AVX512VNNI) |
           feature_if(__builtin_cpu_supports("avx512vbmi"), CPU_AVX512VBMI) | features_by_cpuid();
}
#else
unsigned cpu_features(void)
{
    return 0;
}
#endif
