/* SPDX-License-Identifier: MIT
 *
 * kernels_scalar.c: the template in plain C, for any machine. */
#include <math.h>
#include <string.h>

#include "attn/kernels.h"
#include "attn/vec_scalar.h"

#define KERNELS kernels_scalar
#define KERNELS_ISA PKV_ISA_SCALAR
#define KERNELS_NEEDS 0
#define KERNELS_PACK NULL
#define KERNELS_DOT_PACKED NULL
#define KERNELS_PACK_INT8 NULL
#define KERNELS_DOT_INT8 NULL
#define KERNELS_PACK_WEIGHTS NULL
#define KERNELS_SUM_INT8 NULL
#include "attn/kernels_template.h"
