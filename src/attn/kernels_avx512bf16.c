/* SPDX-License-Identifier: MIT
 *
 * kernels_avx512bf16.c: avx512vnni, and dot products of bf16 pairs. */
#include <math.h>
#include <string.h>

#include "attn/cpu.h"
#include "attn/kernels.h"
#include "attn/vec_avx512bf16.h"

#include "attn/kernels_int8.h"
#include "attn/kernels_packed.h"

#define KERNELS kernels_avx512bf16
#define KERNELS_ISA PKV_ISA_AVX512BF16
#define KERNELS_NEEDS                                                                              \
    (CPU_AVX2 | CPU_FMA | CPU_F16C | CPU_AVX512F | CPU_AVX512BW | CPU_AVX512DQ | CPU_AVX512VL |    \
     CPU_AVX512VNNI | CPU_AVX512VBMI | CPU_AVX512BF16)
#define KERNELS_PACK pack
#define KERNELS_DOT_PACKED dot_packed
#define KERNELS_PACK_INT8 pack_digits
#define KERNELS_DOT_INT8 dot_by_digits
#define KERNELS_PACK_WEIGHTS pack_weights
#define KERNELS_SUM_INT8 sum_by_digits
#include "attn/kernels_template.h"
