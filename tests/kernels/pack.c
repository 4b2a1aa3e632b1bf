/* SPDX-License-Identifier: MIT
 *
 * pack.c: one query split into two bf16 parts. Both are rounded once, so bits are compared with the
 * conversions of support/test.h; the dot products of the parts are in dot.c. */
#include <math.h>
#include <string.h>

#include "kernels/check.h"

/* x = hi + lo by the conversions of support/test.h, q_stride of each. */
static void pack_query(struct check *check, enum values values, size_t width, size_t stride)
{
    const enum place place = check->shape.place;
    float *q = guarded_place(&check->output, 0, stride * sizeof *q, sizeof *q, place);
    float *spare = guarded_place(&check->spare, 0, stride * sizeof *q, sizeof *q, place);
    uint16_t parts[2 * MAX_STRIDE];
    memset(q, 0, stride * sizeof *q);
    const double *wide = values_take(PKV_F32, values, &check->random, width, q);
    check->kernels->pack(q, stride, spare);
    memcpy(parts, q, stride * sizeof *q);
    for (size_t c = 0; c < stride; c++) {
        const double x = c < width ? wide[c] : 0.0;
        const uint16_t hi = ref_to_bf16(x);
        /* exact; an infinite x, or one that rounds to infinity, has no rest */
        const bool has_rest = isfinite(ref_from_bf16(hi)) != 0;
        const float rest = has_rest ? (float)(x - (double)ref_from_bf16(hi)) : 0.0f;
        check_half(check, PKV_BF16, "high part", c, parts[c], hi);
        check_half(check, PKV_BF16, "low part", c, parts[stride + c], ref_to_bf16((double)rest));
    }
    check_output_edges(check, q, stride * sizeof *q);
    check_that(check, guarded_is_clean(&check->spare, 0, spare, stride * sizeof *q),
               "bytes before or behind spare were written");
}

void check_pack(struct check *check)
{
    for (size_t n = 0; n < num_shape_widths * NUM_VALUES * NUM_PLACES && !check->failed; n++) {
        const size_t width = (size_t)shape_widths[n / (NUM_VALUES * NUM_PLACES)];
        const enum values values = (enum values)(n / NUM_PLACES % NUM_VALUES);
        check->shape =
            (struct shape){-1, -1, (int)width, (enum place)(n % NUM_PLACES), values_name(values)};
        pack_query(check, values, width, padded(width));
        pack_query(check, values, width, padded(width) + PAD_LANES);
    }
}
