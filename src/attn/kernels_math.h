/* SPDX-License-Identifier: MIT
 *
 * kernels_math.h: exp and tanh of a register, and the kernels that change scores element by
 * element. Errors: docs/numerics.md. Part of kernels_template.h. */
#ifndef PKV_ATTN_KERNELS_MATH_H
#define PKV_ATTN_KERNELS_MATH_H

/* exp(x) for x <= 0: x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts of which the first has
 * so few bits that n times it is exact; exp(r) by its series to r^7, whose next term is below 6e-9.
 * Below -87.33 the result would be subnormal and is 0. NaN stays NaN. */
VEC_INLINE vf exp_of(vf x)
{
    static const float series[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6,
                                   1.0f / 2,   1.0f,       1.0f};
    const vf n = vec_round(vec_mul(x, vec_set(1.44269504f)));
    vf r = vec_fma(n, vec_set(-0.693359375f), x);
    r = vec_fma(n, vec_set(2.12194440e-4f), r);
    vf power = vec_set(1.0f / 5040);
    for (size_t i = 0; i < sizeof series / sizeof series[0]; i++) {
        power = vec_fma(power, r, vec_set(series[i]));
    }
    return vec_zero_if_less(x, vec_set(-87.33f), vec_scale2(power, n));
}

/* tanh(x): below 1/2 its series to x^15 (the next term is under 5e-9 there), above
 * (1 - e) / (1 + e) with e = exp(-2 |x|). */
VEC_INLINE vf tanh_of(vf x)
{
    static const float series[] = {-21844.0f / 6081075, 1382.0f / 155925, -62.0f / 2835,
                                   17.0f / 315,         -2.0f / 15,       1.0f / 3};
    const vf size = vec_abs(x);
    const vf e = exp_of(vec_mul(size, vec_set(-2.0f)));
    const vf large = vec_div(vec_sub(vec_set(1.0f), e), vec_add(vec_set(1.0f), e));
    const vf square = vec_mul(size, size);
    vf sum = vec_set(929569.0f / 638512875.0f);
    for (size_t i = 0; i < sizeof series / sizeof series[0]; i++) {
        sum = vec_fma(sum, square, vec_set(-series[i]));
    }
    const vf small = vec_fma(vec_mul(size, square), sum, size);
    return vec_copysign(vec_if_less(size, vec_set(0.5f), small, large), x);
}

static void scale_floats(float *x, size_t count, float factor)
{
    size_t i = 0;
    for (; i + VEC_LANES <= count; i += VEC_LANES) {
        vec_store(x + i, vec_mul(vec_load(x + i), vec_set(factor)));
    }
    if (i < count) {
        vec_store_f32(x + i, vec_mul(vec_load_f32(x + i, count - i), vec_set(factor)), count - i);
    }
}

static void merge_floats(float *total, float keep, const float *x, float add, size_t count)
{
    size_t i = 0;
    for (; i + VEC_LANES <= count; i += VEC_LANES) {
        const vf kept = vec_mul(vec_load(total + i), vec_set(keep));
        vec_store(total + i, vec_add(kept, vec_mul(vec_load(x + i), vec_set(add))));
    }
    for (; i < count; i++) {
        total[i] = total[i] * keep + x[i] * add;
    }
}

static void softcap_floats(float *x, size_t count, float cap)
{
    for (size_t i = 0; i < count; i += VEC_LANES) {
        const vf ratio = vec_div(vec_load_f32(x + i, count - i), vec_set(cap));
        vec_store_f32(x + i, vec_mul(tanh_of(ratio), vec_set(cap)), count - i);
    }
}

#endif
