/* SPDX-License-Identifier: MIT
 *
 * vec_words.h: the names of vec_e4m3.h for levels that convert e4m3 a register at a time. Included
 * behind a vec_<isa>.h. */
#ifndef PKV_ATTN_VEC_WORDS_H
#define PKV_ATTN_VEC_WORDS_H

#ifndef VEC_E4M3_VECS
#define VEC_E4M3_VECS 1
typedef struct {
    vf x;
} vwords;

VEC_INLINE vwords vec_load_words(const uint8_t *p)
{
    return (vwords){vec_load_e4m3(p, VEC_LANES)};
}

VEC_INLINE vf vec_of_words(const vwords *words, int v)
{
    (void)v;
    return words->x;
}

VEC_INLINE vf vec_load_once(const float *p)
{
    return vec_load(p);
}
#endif

#endif
