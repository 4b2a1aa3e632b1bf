/* SPDX-License-Identifier: MIT
 *
 * kernels_avx512vnni.c: the template on sixteen lanes, with VNNI and VBMI. */
#include <math.h>
#include <string.h>

#include "attn/cpu.h"
#include "attn/kernels.h"
#include "attn/vec_avx512vnni.h"

#include "attn/kernels_int8.h"

#define KERNELS kernels_avx512vnni
#define KERNELS_ISA PKV_ISA_AVX512VNNI
#define KERNELS_NEEDS                                                                              \
    (CPU_AVX2 | CPU_FMA | CPU_F16C | CPU_AVX512F | CPU_AVX512BW | CPU_AVX512DQ | CPU_AVX512VL |    \
     CPU_AVX512VNNI | CPU_AVX512VBMI)
#define KERNELS_PACK NULL
#define KERNELS_DOT_PACKED NULL
#define KERNELS_PACK_INT8 pack_digits
#define KERNELS_DOT_INT8 dot_by_digits
#define KERNELS_PACK_WEIGHTS pack_weights
#define KERNELS_SUM_INT8 sum_by_digits
#include "attn/kernels_template.h"
