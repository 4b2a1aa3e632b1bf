/* SPDX-License-Identifier: MIT
 *
 * kernels_avx512.c: the template on sixteen lanes; AVX-512 F, BW, DQ and VL. */
#include <math.h>
#include <string.h>

#include "attn/cpu.h"
#include "attn/kernels.h"
#include "attn/vec_avx512.h"

#define KERNELS kernels_avx512
#define KERNELS_ISA PKV_ISA_AVX512
#define KERNELS_NEEDS                                                                              \
    (CPU_AVX2 | CPU_FMA | CPU_F16C | CPU_AVX512F | CPU_AVX512BW | CPU_AVX512DQ | CPU_AVX512VL)
#define KERNELS_PACK NULL
#define KERNELS_DOT_PACKED NULL
#define KERNELS_PACK_INT8 NULL
#define KERNELS_DOT_INT8 NULL
#define KERNELS_PACK_WEIGHTS NULL
#define KERNELS_SUM_INT8 NULL
#include "attn/kernels_template.h"
