/* SPDX-License-Identifier: MIT
 *
 * kernels_avx2.c: the template on eight lanes; AVX2, FMA and F16C. */
#include <math.h>
#include <string.h>

#include "attn/cpu.h"
#include "attn/kernels.h"
#include "attn/vec_avx2.h"

#define KERNELS kernels_avx2
#define KERNELS_ISA PKV_ISA_AVX2
#define KERNELS_NEEDS (CPU_AVX2 | CPU_FMA | CPU_F16C)
#define KERNELS_PACK NULL
#define KERNELS_DOT_PACKED NULL
#define KERNELS_PACK_INT8 NULL
#define KERNELS_DOT_INT8 NULL
#define KERNELS_PACK_WEIGHTS NULL
#define KERNELS_SUM_INT8 NULL
#include "attn/kernels_template.h"
