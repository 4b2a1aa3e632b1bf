/* SPDX-License-Identifier: MIT
 *
 * cpu.h: what this CPU can do beyond the baseline of its machine. Capability only: which features a
 * level needs is said in its kernels_<isa>.c, and which level is used is dispatch's choice. */
#ifndef PKV_ATTN_CPU_H
#define PKV_ATTN_CPU_H

enum cpu_feature {
    CPU_AVX2 = 1 << 0,
    CPU_FMA = 1 << 1,
    CPU_F16C = 1 << 2,
    CPU_AVX512F = 1 << 3,
    CPU_AVX512BW = 1 << 4,
    CPU_AVX512DQ = 1 << 5,
    CPU_AVX512VL = 1 << 6,
    CPU_AVX512BF16 = 1 << 7,
    CPU_AVX512VNNI = 1 << 8,
    CPU_AVX512VBMI = 1 << 9
};

/* The features that CPU and operating system support, as a set of bits. */
unsigned cpu_features(void);

#endif
