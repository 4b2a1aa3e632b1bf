/* SPDX-License-Identifier: MIT
 *
 * kernels_template.h: every kernel, once, in terms of the vectors of a vec_<isa>.h, and the table
 * of them. A kernels_<isa>.c includes its vectors, defines
 *
 *   KERNELS              the name of its table
 *   KERNELS_ISA          its level
 *   KERNELS_NEEDS        the features of cpu.h that its instructions need; 0 = the baseline
 *   KERNELS_PACK         pack and dot_packed of kernels_packed.h, or NULL
 *   KERNELS_DOT_PACKED
 *   KERNELS_PACK_INT8    pack_digits, dot_by_digits, pack_weights and sum_by_digits of
 *   KERNELS_DOT_INT8     kernels_int8.h, or NULL
 *   KERNELS_PACK_WEIGHTS
 *   KERNELS_SUM_INT8
 *
 * and includes this file. The order of operations is stated in kernels.h; register blocks change
 * how many sums are in flight, never the order within one. */
#include "attn/kernels_bound.h"
#include "attn/kernels_convert.h"
#include "attn/kernels_dot.h"
#include "attn/kernels_math.h"
#include "attn/kernels_softmax.h"
#include "attn/kernels_weighted_sum.h"

const struct kernels KERNELS = {
    .isa = KERNELS_ISA,
    .needs = KERNELS_NEEDS,
    .widen = widen,
    .narrow = narrow,
    .dot = dot,
    .pack = KERNELS_PACK,
    .dot_packed = KERNELS_DOT_PACKED,
    .softmax = softmax,
    .weighted_sum = weighted_sum,
    .bound = bound,
    .scale = scale_floats,
    .merge = merge_floats,
    .softcap = softcap_floats,
    .pack_int8 = KERNELS_PACK_INT8,
    .dot_int8 = KERNELS_DOT_INT8,
    .pack_weights = KERNELS_PACK_WEIGHTS,
    .weighted_sum_int8 = KERNELS_SUM_INT8,
};
