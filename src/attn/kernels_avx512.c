/* SPDX-License-Identifier: MIT
 *
 * kernels_avx512.c: the template on sixteen lanes; AVX-512 F, BW, DQ and VL. */
#include <math.h>
#include <string.h>

#include "attn/kernels.h"
#include "attn/vec_avx512.h"

#define KERNELS kernels_avx512
#define KERNELS_ISA PKV_ISA_AVX512
#define KERNELS_PACK NULL
#define KERNELS_DOT_PACKED NULL
#include "attn/kernels_template.h"
