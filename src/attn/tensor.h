/* SPDX-License-Identifier: MIT
 *
 * tensor.h: the tensors of the overloaded form, as far as any of its parameters wants them checked.
 */
#ifndef PKV_ATTN_TENSOR_H
#define PKV_ATTN_TENSOR_H

#include "pagedkv/contract.h"

bool tensor_is_float(const struct pkv_tensor *t);
bool tensor_is_integer(const struct pkv_tensor *t);

/* Elements of a tensor that tensor_check has accepted. */
int64_t tensor_count(const struct pkv_tensor *t);

/* Rank in [0, 4], dimensions that an int32_t holds, data where there are elements. An absent tensor
 * (NULL) is accepted here and below. PKV_INVALID_ARGUMENT. */
enum pkv_status tensor_check(const struct pkv_tensor *t, const char *name);

/* A vector of this type and length; length < 0: any. PKV_INVALID_ARGUMENT. */
enum pkv_status tensor_check_vector(const struct pkv_tensor *t, enum pkv_tensor_type type,
                                    int64_t length, const char *name);

#endif
