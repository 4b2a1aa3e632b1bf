/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <string.h>

#include "attn/kernels.h"
#include "attn/vec_avx2.h"

#define KERNELS kernels_avx2
#define KERNELS_ISA PKV_ISA_AVX2
#include "attn/kernels_template.h"
