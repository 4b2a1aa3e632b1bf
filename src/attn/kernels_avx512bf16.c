/* SPDX-License-Identifier: MIT
 *
 * kernels_avx512bf16.c: the same, and dot products of bf16 pairs. */
#include <math.h>
#include <string.h>

#include "attn/kernels.h"
#include "attn/vec_avx512bf16.h"

#define KERNELS kernels_avx512bf16
#define KERNELS_ISA PKV_ISA_AVX512BF16
#define KERNELS_PACK pack_query
#define KERNELS_DOT_HI pair_dot_hi
#define KERNELS_DOT_BOTH pair_dot_both
#include "attn/kernels_template.h"
