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
 *
 * and includes this file. The order of operations is stated in kernels.h; register blocks change
 * how many sums are in flight, never the order within one. */
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
    .scale = scale_floats,
    .softcap = softcap_floats,
};
