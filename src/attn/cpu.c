/* SPDX-License-Identifier: MIT
 *
 * cpu.c: asking the processor. Baseline code: it runs before anything is known. */
#include "attn/cpu.h"

#if defined(__AVX__)
#error "cpu.c is baseline code: do not compile it with AVX on"
#endif

#if defined(__x86_64__)
#include <cpuid.h>

/* clang 14 has no name for F16C in __builtin_cpu_supports */
static bool has_f16c(void)
{
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1u << 29)) != 0;
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool has_avx512bf16(void)
{
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    return has_avx512() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 &&
           (eax & (1u << 5)) != 0;
}

bool cpu_has(enum pkv_isa isa)
{
    switch (isa) {
    case PKV_ISA_SCALAR: return true;
    case PKV_ISA_AVX2: return has_avx2();
    case PKV_ISA_AVX512: return has_avx512();
    case PKV_ISA_AVX512BF16: return has_avx512bf16();
    case PKV_ISA_BEST: return false;
    }
    return false;
}
#else
bool cpu_has(enum pkv_isa isa)
{
    return isa == PKV_ISA_SCALAR;
}
#endif
