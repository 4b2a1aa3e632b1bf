/* SPDX-License-Identifier: MIT
 *
 * vec_avx512vnni.h: vec_avx512.h, on a machine that also has VNNI and VBMI. */
#ifndef PKV_ATTN_VEC_AVX512VNNI_H
#define PKV_ATTN_VEC_AVX512VNNI_H

#include "attn/vec_avx512.h"
#include "attn/vec_e4m3.h"

#endif
