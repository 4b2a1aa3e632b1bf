/* SPDX-License-Identifier: MIT
 *
 * reference.h: the operator in float64, straight from its definition, for whole calls: every
 * option, every cache form, simple loops, nothing shared with the library. It never writes to what
 * a call points to: the cache it appends to is a copy of its own.
 *
 * reference_append makes that copy and appends; reference_attend attends over whatever the copy
 * holds then. A test that wants the attention of what the library stored puts those bytes into
 * ref->cache between the two. Cost O(sum over rows of heads * q_len * kv_len * width). */
#ifndef PKV_TEST_REFERENCE_H
#define PKV_TEST_REFERENCE_H

#include "support/test.h"

struct reference {
    struct pkv_kv_view cache; /* own memory, strides resolved; v NULL with v_in_k. For a call
                                 without a cache: dense, in the activation dtype */
    size_t k_bytes, v_bytes;
    double *k_size; /* [key tokens][kv_heads][k_width]: the sum of the magnitudes that a new key's
                       channel is made of, |a*c| + |b*s|, over the rms and times |weight| */
    double *out;    /* [num_tokens][num_heads][v_width] */
    double *lse;    /* [num_tokens][num_heads], and so the next two */
    double *logit_size; /* the largest |scale| * sum |q||k| + |mask| of a key seen, and |sink| */
    double *value_size; /* the largest |V| of a key seen */
};

/* Fills *ref, whose earlier content does not matter; reference_free frees it. */
void reference_append(const struct pkv_gqa_args *args, struct reference *ref);
void reference_attend(const struct pkv_gqa_args *args, struct reference *ref);
void reference_free(struct reference *ref);

/* Keys of row b after the append, and tokens of k in a call. */
int32_t reference_kv_len(const struct pkv_gqa_args *args, int32_t b);
int32_t reference_num_k_tokens(const struct pkv_gqa_args *args);

/* Where key j of row b lies: the block (-1: nowhere) and the cell in it. */
void reference_locate(const struct pkv_gqa_args *args, int32_t b, int32_t j, int32_t *block,
                      int32_t *cell);

/* view with its zero strides resolved, and the elements that its K or V spans. */
struct pkv_kv_view reference_view(struct pkv_kv_view view);
size_t reference_k_span(const struct pkv_kv_view *view);
size_t reference_v_span(const struct pkv_kv_view *view);
size_t reference_k_index(const struct pkv_kv_view *view, int32_t block, int32_t head, int32_t cell);
size_t reference_v_index(const struct pkv_kv_view *view, int32_t block, int32_t head, int32_t cell);

/* True when some query head may see key j of row b by query i; *bias is what the mask adds. */
bool reference_sees(const struct pkv_gqa_args *args, int32_t b, int32_t i, int32_t h, int32_t j,
                    double *bias);

/* The unit in the last place of a float dtype at x; steps between two codes of int8 or e4m3. */
double reference_ulp(enum pkv_dtype dtype, double x);
int reference_code_steps(enum pkv_dtype dtype, uint8_t a, uint8_t b);

/* Zeroed memory, never NULL: a test without memory ends here. */
void *reference_alloc(size_t count, size_t bytes);

#endif
